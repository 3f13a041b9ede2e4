"""One connection to NATS, kept for ever, and closed only by us or with a clear error."""

import asyncio
import os
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from batonbus.logs import log
from batonbus.rules.errors import (
    BusUnavailableError,
    NoAnswerError,
    NobodyAnswersError,
    ServerAwayError,
    describe,
)
from batonbus.wire.nats_client import NatsClient
from batonbus.wire.subjects import check_token

MINIMUM_SERVER = (2, 11)
"""Older servers ignore the compare-and-set's subject filter without a word."""

CREDENTIALS_VARIABLE = "BATONBUS_CREDS"
"""Names the .creds file that every process of ours logs in with, where the server wants a JWT. A
user and password, or a token, stand in the address."""

PING_INTERVAL = 5
"""Seconds. A connection that leaves two pings without an answer is given up and made again: one
that was cut without a word is noticed within three of them."""


DRAIN_TIMEOUT = 2.0
"""Seconds that a subscription may take to end."""


_BETWEEN = re.compile(r",\s*(?=\w+://)")
"""Stands between two addresses; in a password a comma is just a letter."""


OF_A_MOMENT = frozenset({10005, 10009, 10118, 10119})
"""Errors, beside those that say so by their code, of a cluster that is choosing its leaders: no
peers known yet, not the leader, a stream or a consumer whose nodes are away."""


_DENIED = re.compile(r'permissions violation for publish to "([^"]*)"')
"""As nats-py hands it on: in lower case."""


LOOK_AGAIN = 1.0
"""Seconds after which a connection that is away is looked at without a word of it."""


class ApiError(BusUnavailableError):
    """JetStream answered a request with an error."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        self.code, self.err_code, self.description = code, err_code, description
        super().__init__(f"JetStream error {err_code} ({code}): {description}")

    @property
    def temporary(self) -> bool:
        """Whether the same request may be answered in a moment."""
        return self.code in {429, 503} or self.err_code in OF_A_MOMENT


class DeniedError(BusUnavailableError):
    """The server does not let this actor publish to a subject, or ask there. `user`: as whom it is
    logged in, where that is another name."""

    def __init__(self, actor: str, subject: str, user: str | None = None) -> None:
        self.subject = subject
        if user is None or user == actor:
            who, advice = actor, "see its user's permissions, or start as the id that they are for"
        else:
            who = f"the user {user!r}, who asks as {actor},"
            advice = "log in as one who may, by --url or BATONBUS_URL, or let an operator permit it"
        super().__init__(f"the server does not let {who} publish to {subject}: {advice}")


class ServiceError(BusUnavailableError):
    """A service answered a request with an error; `kind` is the name of its class."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {text}")


class _ErrorBody(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    error: _ErrorBody | None = None


class Connection:
    """A connected NATS client with the few verbs that the bus needs."""

    def __init__(self, client: NatsClient, actor: str, user: str | None = None) -> None:
        self.client = client
        self.actor = actor
        self.user = user
        self.closed = anyio.Event()
        self.leaving = False
        self._connected_since: float | None = None
        self._is_back = anyio.Event()
        self._when_lost: list[Callable[[], None]] = []
        self._when_denied: list[Callable[[str], None]] = []
        self._asking: list[tuple[str, anyio.CancelScope]] = []
        self._until_lost: list[anyio.CancelScope] = []
        self._clock: tuple[float, float] | None = None

    @property
    def connected_for(self) -> float:
        """Seconds since the last (re)connect; 0 while disconnected."""
        if self._connected_since is None or not self.client.is_connected:
            return 0.0
        return time.monotonic() - self._connected_since

    @property
    def session(self) -> int:
        """Counts the reconnects: what was asked in an earlier session is not answered any more."""
        return self.client.stats["reconnects"]

    @property
    def is_clustered(self) -> bool:
        """Whether the server is a node of a cluster."""
        return bool(self.client.cluster)

    @property
    def address(self) -> str:
        """Host and port of the server, without credentials."""
        return without_credentials(
            self.client.connected_url.geturl() if self.client.connected_url else ""
        )

    @property
    def open_at(self) -> str | None:
        """Where the server lets anybody in who is not on its machine, without credentials; None
        where it does not."""
        said = self.client._server_info  # pyright: ignore[reportPrivateUsage] - has no public name
        if said.get("auth_required") or said.get("tls_verify"):
            return None
        url = self.client.connected_url
        # We may have come by loopback while it listens everywhere, or through a tunnel.
        hosts = (str(said.get("host") or ""), (url and url.hostname) or "")
        return next((it for it in hosts if it and not _is_loopback(it)), None)

    def connected(self) -> None:
        """Connected, maybe again: what was known of the others before is not known any more."""
        self._connected_since = time.monotonic()
        self._is_back.set()

    async def until_connected(self, timeout: float) -> None:
        """Returns as soon as the connection stands, or is closed for good. Before anything is sent:
        nats-py would keep it meanwhile, and who tries again would send it as often when it is back.
        Raises NoAnswerError after `timeout` seconds."""
        with anyio.move_on_after(timeout):
            while not (self.client.is_connected or self.client.is_closed):
                with anyio.move_on_after(LOOK_AGAIN):
                    await self._is_back.wait()
        if not (self.client.is_connected or self.client.is_closed):
            raise NoAnswerError(f"the connection was lost, and not back within {timeout:g} s")

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call this each time that the connection is lost: what was asked is not answered now."""
        self._when_lost.append(call)

    def when_denied(self, call: Callable[[str], None]) -> None:
        """Call this with each subject (in lower case) that we may not publish to."""
        self._when_denied.append(call)

    def failed(self, error: Exception) -> None:
        """An error that belongs to no call: the server's answer to a publish, or a try to connect
        again. While it is away each try fails alike, and that it is lost has been said."""
        denied = _DENIED.search(str(error))
        waiting = [scope for subject, scope in self._asking if denied and subject == denied[1]]
        # Who waits for the answer is told by an error of its own.
        say = log.warning if self.client.is_connected and not waiting else log.debug
        say("connection.error", actor=self.actor, error=repr(error))
        for scope in waiting:
            scope.cancel()
        if denied:
            for call in self._when_denied:
                call(denied[1])

    def disconnected(self) -> None:
        """Away, until it is connected again."""
        self._connected_since = None
        self._is_back = anyio.Event()
        for call in self._when_lost:
            call()
        for scope in self._until_lost:
            scope.cancel()
        if not self.leaving:
            log.warning("connection.lost", actor=self.actor)

    async def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Publish without waiting for an answer. nats-py swallows a cancellation under
        back-pressure, so it is checked for here."""
        await self.client.publish(subject, payload, reply=reply)
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def subscribe(
        self, subject: str, on_message: Callable[[Msg], Awaitable[None]], *, pending: int = 65_536
    ) -> Subscription:
        """Call `on_message` for each message, one at a time; at most `pending` wait for it."""
        return await self.client.subscribe(  # pyright: ignore[reportUnknownMemberType] - untyped future
            subject, cb=on_message, pending_msgs_limit=pending, pending_bytes_limit=0
        )

    async def unsubscribe(self, subscription: Subscription | None) -> None:
        """End a subscription, if the connection still stands."""
        if subscription is not None and not self.client.is_closed:
            await subscription.unsubscribe()

    async def drain(self, subscription: Subscription | None) -> None:
        """End a subscription when what the server has sent to it already was handled, or after
        DRAIN_TIMEOUT: then it ends by itself. Not cancelled, for all of it must be handed back."""
        if self.client.is_connected and subscription is not None:
            patient = anyio.move_on_after(DRAIN_TIMEOUT, shield=True)
            with patient, suppress(NatsError):  # it may be closed meanwhile
                await asyncio.shield(subscription.drain())  # type: ignore[no-untyped-call]
        else:
            await self.unsubscribe(subscription)

    async def request(self, subject: str, payload: bytes = b"", *, timeout: float = 5.0) -> bytes:
        """Ask and wait for one answer. Raises NoAnswerError after `timeout` seconds, or at once
        where nobody serves the subject or the connection is lost; DeniedError where the server does
        not let us ask there, and BusUnavailableError where a service says no or the connection is
        closed."""
        if not self.client.is_connected:
            await self.until_connected(timeout)
        try:
            with self._unless_denied(subject), self.until_lost(subject):
                answer = await self.client.request(subject, payload, timeout=timeout)
        except NoRespondersError as error:
            raise NobodyAnswersError(f"nobody answers {subject}") from error
        except NatsTimeoutError as error:
            raise NoAnswerError(f"no answer to {subject} within {timeout:g} s") from error
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        except (NatsError, OSError) as error:
            raise NoAnswerError(f"{subject} could not be asked: {error!r}") from error
        if problem := (answer.headers or {}).get("Nats-Service-Error"):
            raise ServiceError(problem, answer.data.decode(errors="replace"))
        return answer.data

    @contextmanager
    def until_lost(self, subject: str) -> Generator[None]:
        """Wait for an answer in this block: it ends when the connection is lost, for what was asked
        is answered to nobody then, however soon it is back. Raises NoAnswerError."""
        scope = anyio.CancelScope()
        self._until_lost.append(scope)
        try:
            with scope:
                yield
        finally:
            self._until_lost.remove(scope)
        if scope.cancelled_caught:
            raise NoAnswerError(f"the connection was lost before {subject} was answered")

    @contextmanager
    def _unless_denied(self, subject: str) -> Generator[None]:
        """A question that the server does not pass on is answered to nobody: end the block when it
        says so. Raises DeniedError."""
        asking = (subject.lower(), anyio.CancelScope())
        self._asking.append(asking)
        try:
            with asking[1] as scope:
                yield
        finally:
            self._asking.remove(asking)
        if scope.cancelled_caught:
            raise self.denied_error(subject)

    async def api(self, verb: str, body: object = None, *, timeout: float = 5.0) -> bytes:
        """A JetStream API request. Raises ApiError where it answers with one, DeniedError where we
        may not ask it, or NoAnswerError."""
        payload = b"" if body is None else msgspec.json.encode(body)
        data = await self.request(f"$JS.API.{verb}", payload, timeout=timeout)
        error = msgspec.json.decode(data, type=_Answer).error
        if error is not None:
            raise ApiError(error.code, error.err_code, error.description)
        return data

    def set_clock(self, server_time: datetime) -> None:
        """Note the server's time, as one of its answers just told it."""
        self._clock = (server_time.timestamp(), time.monotonic())

    def server_time(self) -> float:
        """The server's clock in Unix seconds: its last word plus the monotonic time since. Never
        the local wall clock, which may jump."""
        if self._clock is None:
            raise BusUnavailableError("the server's clock has not been read yet")
        told, at = self._clock
        return told + time.monotonic() - at

    async def wait_closed(self) -> None:
        """Returns never; raises when NATS closed the connection for good."""
        await self.closed.wait()
        raise self.closed_error()

    def denied_error(self, subject: str) -> DeniedError:
        """What to say where we may not publish."""
        return DeniedError(self.actor, subject, self.user)

    def closed_error(self) -> BusUnavailableError:
        """Why nothing can be asked any more."""
        if self.leaving:
            return BusUnavailableError(f"{self.actor} has left the bus: nothing more can be asked")
        return BusUnavailableError(
            f"NATS closed the connection of {self.actor} for good ({self.client.last_error}): "
            "look at the server's log for the reason, then start this process again"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def without_credentials(url: str) -> str:
    """The address of a server, or of several with commas between them, that may be shown."""
    parts = [it.rpartition("://") for it in _BETWEEN.split(url)]
    return ",".join(f"{scheme or 'nats'}://{rest.rpartition('@')[2]}" for scheme, _, rest in parts)


def _credentials(urls: list[str]) -> dict[str, str]:
    """The user of the first address that names one, as an option: nodes of a cluster that a client
    only hears of have no address with a user in it, and would close the connection for good."""
    for url in urls:
        user, colon, password = url.rpartition("://")[2].rpartition("@")[0].partition(":")
        if user:
            return {"user": user, "password": password} if colon else {"token": user}
    return {}


@asynccontextmanager
async def connect(
    url: str, actor: str, *, connect_timeout: float = 5.0
) -> AsyncGenerator[Connection]:
    """Connect as `actor` to a server, or to any node of a cluster: `url` is an address, or several
    with commas between them. Raises ServerAwayError where no server answers within
    `connect_timeout` seconds, and BusUnavailableError where it lets nobody in, or is an old one;
    later it reconnects for ever."""
    check_token("actor", actor)
    client = NatsClient()
    connection = Connection(client, actor, _credentials(_BETWEEN.split(url)).get("user"))
    try:
        await _reach(url, connection, connect_timeout)
        _check_version(client)
        yield connection
    finally:
        connection.leaving = True
        # A server that is gone cannot be taken leave of.
        with anyio.CancelScope(shield=True), anyio.move_on_after(2), suppress(OSError, NatsError):
            if client.options:  # else it did not get far enough to be closed
                await client.close()


async def _reach(url: str, connection: Connection, connect_timeout: float) -> None:
    client = connection.client
    urls = _BETWEEN.split(url)

    async def on_error(error: Exception) -> None:
        connection.failed(error)

    async def on_closed() -> None:
        connection.closed.set()

    async def on_disconnected() -> None:
        connection.disconnected()

    async def on_reconnected() -> None:
        connection.connected()
        log.info("connection.restored", actor=connection.actor)

    try:
        with anyio.fail_after(connect_timeout):
            await client.connect(
                urls,
                **_credentials(urls),  # type: ignore[arg-type]
                user_credentials=_find_credentials(),
                name=f"batonbus {connection.actor}",
                inbox_prefix=f"_INBOX_{connection.actor}",
                # Jitter: a fleet that lost its server must not come back in one instant.
                reconnect_time_wait=random.uniform(0.05, 0.3),  # type: ignore[arg-type]  # noqa: S311
                max_reconnect_attempts=-1,
                ping_interval=PING_INTERVAL,
                error_cb=on_error,
                closed_cb=on_closed,
                disconnected_cb=on_disconnected,
                reconnected_cb=on_reconnected,
                skip_subject_validation=True,
                pending_size=16 * 1024 * 1024,
            )
        connection.connected()
    except (OSError, NatsError, TimeoutError) as error:
        why = client.last_error or error
        if "authorization" in str(why).lower():
            raise BusUnavailableError(_why_locked_out(url, connection.user)) from error
        # A wrong certificate does not mend itself.
        is_away = isinstance(why, OSError) and not isinstance(why, ssl.SSLError)
        kind = ServerAwayError if is_away else BusUnavailableError
        raise kind(
            f"cannot connect to NATS at {without_credentials(url)} ({describe(why)}): "
            "start a server with `batonbus up`, or set BATONBUS_URL"
        ) from error


def _why_locked_out(url: str, user: str | None) -> str:
    """What to say where a server runs, and does not let us in."""
    server = f"the server at {without_credentials(url)}"
    if path := os.environ.get(CREDENTIALS_VARIABLE):
        return (
            f"{server} does not let the user of {path} in: name another .creds file in "
            f"{CREDENTIALS_VARIABLE}"
        )
    if user is not None:
        return (
            f"{server} does not let {user!r} in (wrong user or password): correct them in --url "
            "or BATONBUS_URL"
        )
    if _credentials(_BETWEEN.split(url)):
        return f"{server} does not take this token: correct it in --url or BATONBUS_URL"
    return (
        f"{server} lets in only whom it knows, and its address names no user: write "
        f"nats://USER:PASSWORD@HOST:PORT in --url or BATONBUS_URL, or set {CREDENTIALS_VARIABLE}"
    )


def _find_credentials() -> str | None:
    """The file with our user's JWT and seed, if one is named. Raises BusUnavailableError."""
    path = os.environ.get(CREDENTIALS_VARIABLE)
    if not path:
        return None
    if find_spec("nkeys") is None:
        raise BusUnavailableError(
            f"{CREDENTIALS_VARIABLE} names {path}, and the package that signs with it is not "
            "installed: pip install 'batonbus[creds]'"
        )
    if not Path(path).is_file():
        raise BusUnavailableError(
            f"{CREDENTIALS_VARIABLE} names {path}, which is no file: name the .creds file of a user"
        )
    return path


def _check_version(client: NatsClient) -> None:
    version = client.connected_server_version
    if (version.major, version.minor) < MINIMUM_SERVER:
        raise BusUnavailableError(
            f"nats-server {version.major}.{version.minor}.{version.patch} is too old: it ignores "
            "compare-and-set filters; use 2.11.16, 2.12.7, 2.14.0 or newer"
        )
