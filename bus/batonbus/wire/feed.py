"""A pull feed that survives restarts: its own inbox, continuous requests, idle heartbeats.

nats-py's `fetch` sleeps through a server's restart with a message waiting.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from batonbus.logs import log
from batonbus.rules.errors import BusUnavailableError, NoAnswerError
from batonbus.wire.connection import ApiError, Connection, DeniedError

CONSUMER_NOT_FOUND = 10014
STREAM_NOT_FOUND = 10059
DELETED = "Consumer Deleted"
EXPIRES = 30.0
IDLE_HEARTBEAT = 2.0
"""Seconds; the server sends one when it has nothing else, so that a dead request is noticed."""

MakeConsumer = Callable[[int], Awaitable[str]]
"""Makes a consumer behind this sequence and returns its name."""


class ConsumerGoneError(BusUnavailableError):
    """The consumer that a feed reads does not exist any more."""


class Received:
    """One message of a consumer."""

    __slots__ = ("_connection", "_message", "at", "deliveries", "number", "pending", "sequence")

    def __init__(self, connection: Connection, message: Msg) -> None:
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>,
        # with domain and account hash before the stream in its longer form.
        tokens = message.reply.split(".")
        offset = 2 if len(tokens) >= 11 else 0
        self._connection = connection
        self._message = message
        self.deliveries = int(tokens[4 + offset])
        self.sequence = int(tokens[5 + offset])
        self.number = int(tokens[6 + offset])  # among those of its consumer
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
            await self._connection.client.publish(self._message.reply, payload)
        except (NatsError, OSError) as error:
            # Not lost: the server hands the message out again after `ack_wait`.
            log.warning("answer.not_sent", sequence=self.sequence, error=repr(error))


class Feed:
    """Messages of one consumer. At most `window` are requested, buffered or not yet released:
    `release` gives each one's place back.

    `consumer` names a durable consumer; or it makes one behind the last message, each time that
    what was requested may be lost. What comes of a made one is without a gap: it goes without acks,
    so what it sent while the connection was away does not come again.
    """

    def __init__(
        self, connection: Connection, stream: str, consumer: str | MakeConsumer, *, window: int
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._consumer = consumer
        self._window = window
        self._outstanding = 0
        self._in_hand = 0
        self._last = 0
        self._number = 0
        self._heard = 0.0
        self._session = -1
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._next = ""
        self._doubt = ""
        self._stopped = False
        self._paused = False
        self._changing = anyio.Lock()
        self._buffer: asyncio.Queue[Received | None] = asyncio.Queue()

    async def receive(self) -> Received:
        """The next message. Raises EndOfStream after `stop`."""
        received = await self._buffer.get()
        if received is None:
            self._buffer.put_nowait(None)
            raise anyio.EndOfStream
        return received

    @property
    def has_more(self) -> bool:
        """Whether a message (or the end) is here already, and `receive` does not wait."""
        return not self._buffer.empty()

    async def release(self) -> None:
        """One message less in hand: its place may be filled again."""
        self._in_hand -= 1
        await self._request()

    async def stop(self) -> None:
        """Ask for nothing more and hand back what nobody has received yet."""
        self._stopped = True
        await self._hand_back()
        self._buffer.put_nowait(None)

    async def pause(self) -> None:
        """Ask for nothing until `resume`, and hand back what nobody has received yet."""
        self._paused = True
        await self._hand_back()

    async def resume(self) -> None:
        """Ask again."""
        self._paused = False
        await self._renew()
        await self._request()

    async def _hand_back(self) -> None:
        async with self._changing:
            await self._drain()
        while not self._buffer.empty():
            received = self._buffer.get_nowait()
            if received is None:
                # Stopped meanwhile.
                self._buffer.put_nowait(None)
                return
            self._in_hand -= 1
            await received.nak(0)

    async def run(self) -> None:
        """Keep a request open: renewed when the connection or the server was away.
        Raises ConsumerGoneError."""
        while not self._stopped:
            if not self._paused and not self._can_request():
                await self._renew()
            await self._request()
            await anyio.sleep(IDLE_HEARTBEAT / 8)

    def _can_request(self) -> bool:
        """Whether the inbox still gets all that was requested for it."""
        if self._subscription is None or self._doubt or self._session != self._connection.session:
            return False
        return self._outstanding == 0 or time.monotonic() - self._heard < 2.5 * IDLE_HEARTBEAT

    async def _renew(self) -> None:
        async with self._changing:
            if self._stopped or self._paused or not self._connection.client.is_connected:
                return
            await self._drain()
            self._inbox = ""  # nothing that comes later counts
            self._session = self._connection.session
            try:
                consumer = await self._find_consumer()
            except (NoAnswerError, ApiError) as error:
                if isinstance(error, ApiError) and not error.temporary:
                    raise
                log.warning("feed.not_renewed", stream=self._stream, error=str(error))
                return
            self._doubt = ""
            self._number = 0
            self._next = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer}"
            # A new inbox, so that late answers to old requests cannot confuse the count.
            self._inbox = self._connection.client.new_inbox()
            self._outstanding = 0
            self._subscription = await self._connection.subscribe(
                self._inbox, partial(self._on_message, self._inbox), pending=4 * self._window + 64
            )

    async def _drain(self) -> None:
        """End the inbox; what the server has sent to it already still arrives."""
        subscription, self._subscription = self._subscription, None
        await self._connection.drain(subscription)

    async def _find_consumer(self) -> str:
        if not isinstance(self._consumer, str):
            return await self._consumer(self._last)
        name = f"{self._stream}.{self._consumer}"
        if self._doubt == DELETED or (self._doubt and not await self._is_there(name)):
            raise ConsumerGoneError(f"the consumer {name} is gone")
        return self._consumer

    async def _is_there(self, name: str) -> bool:
        """False where the consumer is known to be gone; an agent may not be allowed to ask."""
        try:
            await self._connection.api(f"CONSUMER.INFO.{name}", timeout=1.0)
        except (NoAnswerError, DeniedError) as error:
            log.debug("feed.consumer_unknown", consumer=name, error=str(error))
        except ApiError as error:
            return error.err_code not in {CONSUMER_NOT_FOUND, STREAM_NOT_FOUND}
        return True

    async def _request(self) -> None:
        capacity = self._window - self._in_hand
        free = capacity - self._outstanding
        # Half is enough to keep messages coming, and saves a request for each of them.
        if self._stopped or free < 1 or free < capacity / 2 or not self._can_request():
            return
        if not self._connection.client.is_connected:
            return  # it would be sent after the reconnect, when this inbox is given up
        if not self._outstanding:
            self._heard = time.monotonic()
        self._outstanding += free
        body = {
            "batch": free,
            "expires": int(EXPIRES * 1e9),
            "idle_heartbeat": int(IDLE_HEARTBEAT * 1e9),
        }
        try:
            await self._connection.publish(self._next, msgspec.json.encode(body), reply=self._inbox)
        except (NatsError, OSError) as error:
            log.warning("feed.request_failed", consumer=self._next, error=repr(error))

    async def _on_message(self, inbox: str, message: Msg) -> None:
        self._heard = time.monotonic()
        if message.reply.startswith("$JS.ACK"):
            received = Received(self._connection, message)
            if not isinstance(self._consumer, str) and not self._follows(inbox, received):
                return
            self._outstanding -= inbox == self._inbox
            self._in_hand += 1
            self._last = received.sequence
            self._buffer.put_nowait(received)
            return
        if inbox != self._inbox:
            return
        headers = message.headers or {}
        match headers.get("Status"):
            case "100":
                pass
            case "408":
                self._outstanding -= int(headers["Nats-Pending-Messages"])
                await self._request()
            case _:
                # How much of the requests is left is not known: begin anew.
                self._doubt = headers.get("Description") or "no answer"
                log.warning("feed.interrupted", consumer=self._next, why=self._doubt)

    def _follows(self, inbox: str, received: Received) -> bool:
        """Whether this is the next message of the made consumer. Right after a reconnect the former
        one still sends, though what it sent before is lost: to go on behind that would be a gap."""
        if inbox != self._inbox:
            return False  # the present consumer sends it again
        if received.number != self._number + 1:
            self._doubt = f"message {self._number + 1} of the consumer is lost"
            return False
        self._number = received.number
        return True


@asynccontextmanager
async def open_feed(
    connection: Connection, stream: str, consumer: str | MakeConsumer, *, window: int
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
