"""A pull feed that survives restarts: its own inbox, continuous requests, idle heartbeats.

nats-py's `fetch` sleeps through a server's restart with a message waiting.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from batonbus.logs import log
from batonbus.rules.errors import BusUnavailableError, NoAnswerError
from batonbus.wire.connection import ApiError, Connection

CONSUMER_NOT_FOUND = 10014
EXPIRES = 30.0
IDLE_HEARTBEAT = 2.0
"""Seconds; the server sends one when it has nothing else, so that a dead request is noticed."""


class ConsumerGoneError(BusUnavailableError):
    """The consumer that a feed reads does not exist any more."""


class Received:
    """One message of a consumer."""

    __slots__ = ("_connection", "_message", "at", "deliveries", "pending", "sequence")

    def __init__(self, connection: Connection, message: Msg) -> None:
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>,
        # with domain and account hash before the stream in its longer form.
        tokens = message.reply.split(".")
        offset = 2 if len(tokens) >= 11 else 0
        self._connection = connection
        self._message = message
        self.deliveries = int(tokens[4 + offset])
        self.sequence = int(tokens[5 + offset])
        self.at = int(tokens[7 + offset]) / 1e9
        self.pending = int(tokens[8 + offset])

    @property
    def subject(self) -> str:
        return self._message.subject

    @property
    def data(self) -> bytes:
        return self._message.data

    @property
    def headers(self) -> dict[str, str]:
        return self._message.headers or {}

    async def ack(self) -> None:
        """Done with it. A hint: the chain is the fact."""
        await self._answer(b"")

    async def nak(self, delay: float) -> None:
        """Hand it out again after `delay` seconds."""
        await self._answer(b'-NAK {"delay": %d}' % int(delay * 1e9))

    async def in_progress(self) -> None:
        """Still working: start `ack_wait` again."""
        await self._answer(b"+WPI")

    async def _answer(self, payload: bytes) -> None:
        try:
            await self._connection.publish(self._message.reply, payload)
        except (NatsError, OSError) as error:
            # Not lost: the server hands the message out again after `ack_wait`.
            log.warning("answer.not_sent", sequence=self.sequence, error=repr(error))


class Feed:
    """Messages of one durable consumer. At most `window` are requested, buffered or not yet
    released: `release` gives each one's place back."""

    def __init__(self, connection: Connection, stream: str, consumer: str, *, window: int) -> None:
        self._connection = connection
        self._name = f"{stream}.{consumer}"
        self._window = window
        self._outstanding = 0
        self._in_hand = 0
        self._generation = 0
        self._heard = 0.0
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._stopped = False
        self._doubted = False
        self._buffer: asyncio.Queue[Received | None] = asyncio.Queue()

    async def receive(self) -> Received:
        """The next message. Raises EndOfStream after `stop`."""
        received = await self._buffer.get()
        if received is None:
            self._buffer.put_nowait(None)
            raise anyio.EndOfStream
        return received

    async def release(self) -> None:
        """One message less in hand: its place may be filled again."""
        self._in_hand -= 1
        await self._request()

    async def stop(self) -> None:
        """Ask for nothing more and hand back what nobody has received yet."""
        self._stopped = True
        await self._unsubscribe()
        while not self._buffer.empty():
            received = self._buffer.get_nowait()
            if received is not None:
                self._in_hand -= 1
                await received.nak(0)
        self._buffer.put_nowait(None)

    async def run(self) -> None:
        """Keep a request open: renewed when the connection or the server was away.
        Raises ConsumerGoneError."""
        while not self._stopped:
            if self._doubted:
                await self._check_consumer()
            silent = time.monotonic() - self._heard > 2.5 * IDLE_HEARTBEAT
            stale = self._heard < time.monotonic() - self._connection.connected_for
            if self._connection.client.is_connected and (silent or stale):
                await self._renew()
            await anyio.sleep(IDLE_HEARTBEAT / 8)

    async def _check_consumer(self) -> None:
        try:
            await self._connection.api(f"CONSUMER.INFO.{self._name}")
            self._doubted = False
        except NoAnswerError as error:
            log.warning("feed.consumer_unknown", consumer=self._name, error=str(error))
        except ApiError as error:
            if error.err_code == CONSUMER_NOT_FOUND:
                raise ConsumerGoneError(f"the consumer {self._name} is gone") from error

    async def _renew(self) -> None:
        # A new inbox, so that late answers to old requests cannot confuse the count.
        await self._unsubscribe()
        self._generation += 1
        self._outstanding = 0
        self._heard = time.monotonic()
        self._inbox = self._connection.client.new_inbox()
        generation = self._generation

        async def on_message(message: Msg) -> None:
            if generation == self._generation:
                await self._on_message(message)

        self._subscription = await self._connection.subscribe(
            self._inbox, on_message, pending=4 * self._window + 64
        )
        await self._request()

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        await self._connection.unsubscribe(subscription)

    async def _request(self) -> None:
        capacity = self._window - self._in_hand
        free = capacity - self._outstanding
        # Half is enough to keep messages coming, and saves a request for each of them.
        if self._stopped or self._subscription is None or free < 1 or free < capacity / 2:
            return
        self._outstanding += free
        body = {
            "batch": free,
            "expires": int(EXPIRES * 1e9),
            "idle_heartbeat": int(IDLE_HEARTBEAT * 1e9),
        }
        try:
            await self._connection.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._name}",
                msgspec.json.encode(body),
                reply=self._inbox,
            )
        except (NatsError, OSError) as error:
            log.warning("feed.request_failed", consumer=self._name, error=repr(error))

    async def _on_message(self, message: Msg) -> None:
        self._heard = time.monotonic()
        if message.reply.startswith("$JS.ACK"):
            self._outstanding -= 1
            self._in_hand += 1
            self._buffer.put_nowait(Received(self._connection, message))
            return
        headers = message.headers or {}
        if headers.get("Status") == "100":
            return
        pending = int(headers.get("Nats-Pending-Messages", 0))
        self._outstanding = max(0, self._outstanding - pending) if pending else 0
        if headers.get("Status") in {"409", "503"}:
            log.warning("feed.interrupted", consumer=self._name, why=headers.get("Description", ""))
            self._doubted = True
            await anyio.sleep(0.1)
        await self._request()


@asynccontextmanager
async def open_feed(
    connection: Connection, stream: str, consumer: str, *, window: int
) -> AsyncGenerator[Feed]:
    """A feed that runs while the block does."""
    feed = Feed(connection, stream, consumer, window=window)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        try:
            yield feed
        finally:
            with anyio.CancelScope(shield=True):
                await feed.stop()
            tasks.cancel_scope.cancel()
