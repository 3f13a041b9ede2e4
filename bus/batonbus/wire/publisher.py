"""Publishing with acknowledgements: one reply inbox, a window, a deadline for each message.

nats-py publishes one by one (2,000 a second), or leaks a slot for each lost answer.
"""

import asyncio
import itertools
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError

from batonbus.rules.errors import (
    BatonbusError,
    BusUnavailableError,
    MessageTooLargeError,
    NoAnswerError,
)
from batonbus.wire.connection import ApiError, Connection

WRONG_TAIL, UNDECIDED = 10071, 10164
"""Error codes of a lost compare-and-set. The second one is a cluster's, without a number."""


EXPECTED = "Nats-Expected-Last-Subject-Sequence"
"""The header of a compare-and-set: the sequence of the subject's last message, or 0."""


class LostRaceError(Exception):
    """Another writer was first: read the chain again, fold again, decide again.

    `undecided`: that writer's message is still on its way to the replicas, and may be lost with the
    leader.
    """

    def __init__(self, description: str, *, undecided: bool) -> None:
        self.undecided = undecided
        super().__init__(description)


class _PubError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: _PubError | None = None


NOT_WAITING: tuple[float, None, str] = (0.0, None, "")

_decode_ack = msgspec.json.Decoder(_PubAck).decode


class Publisher:
    """Publishes to JetStream and waits for its answers, many at a time."""

    def __init__(self, connection: Connection, *, window: int = 512, timeout: float = 5.0) -> None:
        self._connection = connection
        self._timeout = timeout
        self._window = anyio.Semaphore(window, fast_acquire=True)
        self._numbers = itertools.count()
        # In the order of their deadlines, for all wait equally long.
        self._waiting: dict[str, tuple[float, asyncio.Future[int], str]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._prefix = ""
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> Self:
        self._prefix = self._connection.client.new_inbox() + "."
        self._subscription = await self._connection.subscribe(self._prefix + "*", self._on_answer)
        self._connection.when_lost(self._lose_answers)
        self._connection.when_denied(self._deny)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._fail_all(BusUnavailableError, "left before the server answered")
        await self._connection.unsubscribe(self._subscription)

    async def publish(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> int:
        """Store one message and return its sequence.

        Raises LostRaceError, MessageTooLargeError, ApiError; BusUnavailableError where the
        connection is closed, or the server does not let this actor publish there; NoAnswerError
        where no answer came in time, or the connection was lost before: then it may be stored or
        not.
        """
        check_size(payload, headers, self._connection.client.max_payload)
        async with self._window:
            if not self._connection.client.is_connected:
                await self._connection.until_connected(self._timeout)
            number = str(next(self._numbers))
            loop = asyncio.get_running_loop()
            future: asyncio.Future[int] = loop.create_future()
            self._waiting[number] = (loop.time() + self._timeout, future, subject)
            if self._sweeper is None:
                self._sweeper = loop.call_later(self._timeout, self._sweep)
            try:
                return await self._exchange(number, future, subject, payload, headers)
            finally:
                self._waiting.pop(number, None)

    async def _exchange(
        self,
        number: str,
        future: "asyncio.Future[int]",
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
    ) -> int:
        try:
            # A fresh dict: nats-py changes the one that it is given.
            await self._connection.client.publish(
                subject, payload, reply=self._prefix + number, headers=dict(headers)
            )
        except ConnectionClosedError as error:
            raise self._connection.closed_error() from error
        except (NatsError, OSError) as error:
            raise NoAnswerError(f"{subject} could not be published: {error!r}") from error
        return await future

    def _lose_answers(self) -> None:
        """What was published before the connection was lost is answered to nobody."""
        self._fail_all(NoAnswerError, "the connection was lost before an answer came")

    def _deny(self, denied: str) -> None:
        for _, future, subject in self._waiting.values():
            if not future.done() and denied == subject.lower():
                future.set_exception(self._connection.denied_error(subject))

    def _fail_all(self, kind: type[BatonbusError], problem: str) -> None:
        """Tell all who wait."""
        for _, future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(kind(problem))

    def _sweep(self) -> None:
        """One timer for all messages: one each would cost more than the message."""
        loop = asyncio.get_running_loop()
        self._sweeper = None
        for deadline, future, _ in self._waiting.values():
            if deadline > loop.time():
                self._sweeper = loop.call_at(deadline, self._sweep)
                return
            if not future.done():
                future.set_exception(NoAnswerError(f"no answer within {self._timeout:g} s"))

    async def _on_answer(self, message: Msg) -> None:
        _, future, _ = self._waiting.get(message.subject[len(self._prefix) :], NOT_WAITING)
        if future is None or future.done():
            return
        if not message.data:
            # For a moment, while a cluster chooses a leader; for good, where the stream is gone.
            future.set_exception(NoAnswerError("no stream takes this subject"))
            return
        ack = _decode_ack(message.data)
        if ack.error is None:
            future.set_result(ack.seq)
        elif ack.error.err_code in {WRONG_TAIL, UNDECIDED}:
            undecided = ack.error.err_code == UNDECIDED
            future.set_exception(LostRaceError(ack.error.description, undecided=undecided))
        else:
            error = ApiError(ack.error.code, ack.error.err_code, ack.error.description)
            # A server without space or leader may have both in a moment.
            future.set_exception(NoAnswerError(str(error)) if error.temporary else error)


def check_size(payload: bytes, headers: Mapping[str, str], limit: int) -> None:
    """Raises MessageTooLargeError where payload and headers exceed the server's limit: nats-py
    counts the payload alone, and the server then closes the connection for good."""
    # "NATS/1.0" CRLF, then "key: value" CRLF each, then CRLF.
    head = 12 + sum(len(key) + len(value.encode()) + 4 for key, value in headers.items())
    if len(payload) + head > limit:
        raise MessageTooLargeError(len(payload) + head, limit)
