"""The ledger: one stream that holds every event of every handoff; every write a compare-and-set."""

from collections.abc import Callable, Mapping
from datetime import datetime
from uuid import UUID

import anyio
import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from batonbus.logs import log
from batonbus.rules.chain import Chain, Event, Marks, Number, fold
from batonbus.rules.errors import NoAnswerError
from batonbus.wire.connection import ApiError, Connection
from batonbus.wire.feed import Received
from batonbus.wire.nats_client import parse_headers
from batonbus.wire.publisher import EXPECTED, LostRaceError, Publisher
from batonbus.wire.subjects import (
    Subject,
    all_events,
    chain_filter,
    check_token,
    deliveries_of,
    stream_name,
)

NO_MESSAGE = 10037
RETRY_DELAY = 0.1
"""Seconds after which a server that did not answer, or could not yet, is asked again."""

READ_TIMEOUT = 2.0
"""Seconds that a read may take; one that is asked for while a cluster has no leader is never
answered."""

_EXPECTED_FILTER = f"{EXPECTED}-Subject"

MARKS = "Batonbus"
"""The one header of ours: what a chain's fold needs, so that a headers-only read is enough."""


REASON_LIMIT = 200
"""Characters of a reason that the header repeats; the payload has the whole."""


class Header(Marks, frozen=True, kw_only=True, omit_defaults=True):
    """The header of an event, as JSON."""

    tail: Number


class Draft(Marks, frozen=True, kw_only=True):
    """An event before it is stored."""

    subject: Subject
    payload: bytes
    trace: Mapping[str, str] = {}


class Stored(Struct, frozen=True, kw_only=True):
    """One event as the ledger holds it: the part that folds, its payload, its headers."""

    event: Event
    subject: Subject
    payload: bytes
    headers: Mapping[str, str]


class Message(Struct, frozen=True):
    """A message of the stream as it is stored, whatever it is. `hdrs` are its raw headers."""

    subject: str
    seq: int
    time: datetime
    data: bytes = b""
    hdrs: bytes = b""

    @property
    def headers(self) -> dict[str, str]:
        """The headers as names and values."""
        return parse_headers(self.hdrs)


class _RawAnswer(Struct):
    message: Message


class _StreamState(Struct):
    last_seq: int
    subjects: dict[str, int] = {}


class _StreamInfo(Struct):
    state: _StreamState


NO_HEADER = Header(tail=-1)
_decode_header = msgspec.json.Decoder(Header).decode
_decode_raw = msgspec.json.Decoder(_RawAnswer).decode


class Ledger:
    """Reads and writes chains. Reads go to the stream's leader: direct gets can be stale.

    Agents and senders write alone (`may_read` False): the server does not let them read.
    """

    def __init__(
        self, connection: Connection, publisher: Publisher, fleet: str, *, may_read: bool = True
    ) -> None:
        self.fleet = fleet
        self.stream = stream_name(fleet)
        self.connection = connection
        self._publisher = publisher
        self._may_read = may_read

    async def append(self, draft: Draft, *, tail: int) -> int:
        """Store an event if the chain's tail is still `tail`; returns its sequence.

        Raises LostRaceError where another writer was first (read, fold and decide again), and
        MessageTooLargeError, InvalidTokenError, ApiError. A lost answer is settled by reading the
        chain, however long it takes; for who may not read, the winner of a lost race may be this
        very event.
        """
        filter_ = chain_filter(self.fleet, draft.subject.handoff_id)
        headers = _headers(draft, tail, filter_)
        subject, unanswered = str(draft.subject), False
        while True:
            try:
                return await self._publisher.publish(subject, draft.payload, headers)
            except NoAnswerError as error:
                log.warning("event.unanswered", subject=subject, error=str(error))
                unanswered = True
                await anyio.sleep(RETRY_DELAY)
            except LostRaceError as error:
                if not (unanswered or error.undecided):
                    raise
                if not self._may_read:
                    await anyio.sleep(RETRY_DELAY if error.undecided else 0)
                    raise
                winner = await self.next_of_chain(draft.subject.handoff_id, after=tail)
                if winner is None and error.undecided:
                    # Nobody has won, and nobody may: what is on its way can be lost.
                    await anyio.sleep(RETRY_DELAY)
                elif winner is not None and unanswered and _is_own(winner, draft, tail):
                    return winner.event.sequence
                else:
                    raise

    def is_first(self, stored: Stored) -> bool:
        """Whether the server itself stored this event as the first of its chain: it demanded the
        empty chain that the event's own header names."""
        filter_ = chain_filter(self.fleet, stored.subject.handoff_id)
        headers = stored.headers
        return headers.get(EXPECTED) == "0" and headers.get(_EXPECTED_FILTER) == filter_

    async def last_sequence(self) -> int:
        """The sequence of the newest event; 0 where none was ever stored."""
        data = await self._ask(f"STREAM.INFO.{self.stream}")
        return msgspec.json.decode(data, type=_StreamInfo).state.last_seq

    async def is_head(self, sequence: int, subject: str | None = None) -> bool:
        """Whether nothing (under a subject) stands behind this sequence. The newest one alone does
        not tell: it stays when all that there was has been purged."""
        behind = {"seq": sequence + 1, "next_by_subj": subject or all_events(self.fleet)}
        return await self._get_message(behind) is None

    async def delivered_of(self, work: str) -> set[UUID]:
        """The handoffs of a work that were delivered, of at most 100,000. The server looks through
        all handoffs for it: 34 ms at 100,000. Raises ApiError, NoAnswerError."""
        body = {"subjects_filter": deliveries_of(self.fleet, work)}
        data = await self.connection.api(f"STREAM.INFO.{self.stream}", body)
        subjects = msgspec.json.decode(data, type=_StreamInfo).state.subjects
        return {it.handoff_id for it in map(Subject.parse, subjects) if it is not None}

    async def read(self, sequence: int) -> Stored | None:
        """The event at this sequence of the ledger, or None where there is none."""
        return await self._get({"seq": sequence})

    async def next_of_chain(self, handoff_id: UUID, *, after: int) -> Stored | None:
        """The first event of a handoff behind this sequence, or None."""
        filter_ = chain_filter(self.fleet, handoff_id)
        return await self._get({"seq": after + 1, "next_by_subj": filter_})

    async def _get(self, body: Mapping[str, object]) -> Stored | None:
        message = await self._get_message(body)
        if message is None:
            return None
        return to_stored(
            message.subject, message.seq, message.time.timestamp(), message.headers, message.data
        )

    async def _get_message(self, body: Mapping[str, object]) -> Message | None:
        try:
            raw = await self._ask(f"STREAM.MSG.GET.{self.stream}", body)
        except ApiError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise
        return _decode_raw(raw).message

    async def _ask(self, verb: str, body: Mapping[str, object] | None = None) -> bytes:
        """An answer of the stream's leader, however long there is none. Raises ApiError."""
        while True:
            try:
                return await self.connection.api(verb, body, timeout=READ_TIMEOUT)
            except NoAnswerError as error:
                log.warning("ledger.unanswered", error=str(error))
            except ApiError as error:
                if not error.temporary:
                    raise
            await anyio.sleep(RETRY_DELAY)

    async def listen(self, filter_: str, hear: Callable[[Stored], None]) -> None:
        """Call `hear` with each event that is stored from now on, until the connection ends. At
        most once: what is missed is in the ledger. These events know no sequence (0)."""

        async def on_message(message: Msg) -> None:
            headers = message.headers or {}
            stored = to_stored(message.subject, 0, 0.0, headers, message.data)
            if stored is not None:
                hear(stored)

        await self.connection.subscribe(filter_, on_message)

    async def read_chain(self, handoff_id: UUID, *, after: int = 0) -> list[Stored]:
        """All events of a handoff behind `after`, in ledger order."""
        events: list[Stored] = []
        while (found := await self.next_of_chain(handoff_id, after=after)) is not None:
            events.append(found)
            after = found.event.sequence
        return events

    async def read_messages(self, handoff_id: UUID) -> list[Message]:
        """All that is stored of a handoff, as it is stored, in ledger order."""
        messages: list[Message] = []
        body = {"seq": 1, "next_by_subj": chain_filter(self.fleet, handoff_id)}
        while (found := await self._get_message(body)) is not None:
            messages.append(found)
            body["seq"] = found.seq + 1
        return messages

    async def delete(self, sequence: int) -> None:
        """Remove one event for good; what is gone already stays gone. For a whole chain, from its
        first event on: what an interruption leaves is void by its tail. Never by a purge of the
        chain's subjects: the server looks through all of them then. Raises ApiError (an agent may
        not), NoAnswerError."""
        body = {"seq": sequence, "no_erase": True}
        try:
            await self.connection.api(f"STREAM.MSG.DELETE.{self.stream}", body)
        except ApiError:
            if await self._get_message({"seq": sequence}) is not None:
                raise

    async def read_folded(self, chain: Chain, *, upto: int | None = None) -> Chain:
        """The chain with the events that the ledger holds behind its tail (up to `upto`)."""
        while upto is None or chain.tail < upto:
            found = await self.next_of_chain(chain.id, after=chain.tail)
            if found is None or (upto is not None and found.event.sequence > upto):
                break
            chain = fold(chain, [found.event])
        return chain


def to_stored(
    subject: str, sequence: int, at: float, headers: Mapping[str, str], payload: bytes
) -> Stored | None:
    """A message of the stream as an event, or None where its subject is none of a chain."""
    parsed = Subject.parse(subject)
    if parsed is None:
        return None
    header = _read_header(headers.get(MARKS))
    event = Event(
        sequence=sequence,
        kind=parsed.kind,
        actor=parsed.actor,
        to=parsed.to,
        work=parsed.work,
        at=at,
        tail=header.tail,
        accepted=header.accepted,
        attempt=header.attempt,
        lease=header.lease,
        waiter=header.waiter,
        addressee=header.addressee,
        reason=header.reason,
        child_to=header.child_to,
        interrupted=header.interrupted,
        deadline=header.deadline,
        question=header.question,
    )
    return Stored(event=event, subject=parsed, payload=payload, headers=headers)


def _is_own(found: Stored, draft: Draft, tail: int) -> bool:
    """Whether this very event is the one that stands there, right behind `tail`."""
    same = found.subject == draft.subject and found.payload == draft.payload
    return same and found.event.tail == tail


def read_received(received: Received) -> Stored | None:
    """A message of a feed as an event, or None where its subject is none of a chain."""
    return to_stored(
        received.subject, received.sequence, received.at, received.headers, received.data
    )


def _headers(draft: Draft, tail: int, filter_: str) -> dict[str, str]:
    for name in filter(None, (draft.waiter, draft.addressee, draft.child_to)):
        check_token("addressee", name)  # else its readers would find the event void
    header = Header(
        tail=tail,
        accepted=draft.accepted,
        attempt=draft.attempt,
        lease=draft.lease,
        waiter=draft.waiter,
        addressee=draft.addressee,
        reason=draft.reason[:REASON_LIMIT],
        child_to=draft.child_to,
        interrupted=draft.interrupted,
        deadline=draft.deadline,
        question=draft.question,
    )
    return {
        **draft.trace,
        MARKS: msgspec.json.encode(header).decode(),
        EXPECTED: str(tail),
        _EXPECTED_FILTER: filter_,
    }


def _read_header(text: str | None) -> Header:
    """The header of an event; one without a valid one folds as void."""
    try:
        return _decode_header(text) if text else NO_HEADER
    except (msgspec.MsgspecError, RecursionError):
        return NO_HEADER
