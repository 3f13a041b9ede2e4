"""The ledger: one stream that holds every event of every handoff; every write a compare-and-set."""

from collections.abc import Callable, Mapping
from datetime import datetime
from uuid import UUID

import anyio
import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from batonbus.logs import log
from batonbus.rules.chain import Chain, Event, fold
from batonbus.rules.errors import NoAnswerError
from batonbus.wire.connection import ApiError, Connection
from batonbus.wire.publisher import LostRaceError, Publisher
from batonbus.wire.subjects import Subject, chain_filter, stream_name

NO_MESSAGE = 10037
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED_FILTER = "Nats-Expected-Last-Subject-Sequence-Subject"

# What a chain's fold needs stands in headers, so that a headers-only read is enough.
TAIL = "Batonbus-Tail"
_NUMBERS = {
    "accepted": "Batonbus-Accepted",
    "attempt": "Batonbus-Attempt",
    "lease": "Batonbus-Lease",
}
_TEXTS = {
    "waiter": "Batonbus-Waiter",
    "addressee": "Batonbus-Addressee",
    "reason": "Batonbus-Reason",
    "child_to": "Batonbus-Child-To",
}
CHILD = "Batonbus-Child"


class Draft(Struct, frozen=True, kw_only=True):
    """An event before it is stored. Fields as in `rules.chain.Event`."""

    subject: Subject
    payload: bytes
    accepted: int | None = None
    attempt: int | None = None
    lease: int | None = None
    waiter: str | None = None
    addressee: str | None = None
    reason: str | None = None
    child: UUID | None = None
    child_to: str | None = None
    trace: Mapping[str, str] = {}


class Stored(Struct, frozen=True, kw_only=True):
    """One event as the ledger holds it: the part that folds, its payload, its headers."""

    event: Event
    subject: Subject
    payload: bytes
    headers: Mapping[str, str]


class _RawMessage(Struct):
    subject: str
    seq: int
    time: datetime
    data: bytes = b""
    hdrs: bytes = b""


class _RawAnswer(Struct):
    message: _RawMessage


class _StreamState(Struct):
    last_seq: int


class _StreamInfo(Struct):
    state: _StreamState


_decode_raw = msgspec.json.Decoder(_RawAnswer).decode


class Ledger:
    """Reads and writes chains. Reads go to the stream's leader: direct gets can be stale."""

    def __init__(self, connection: Connection, publisher: Publisher, fleet: str) -> None:
        self.fleet = fleet
        self.stream = stream_name(fleet)
        self.connection = connection
        self._publisher = publisher

    async def append(self, draft: Draft, *, tail: int) -> int:
        """Store an event if the chain's tail is still `tail`; returns its sequence.

        Raises LostRaceError where another writer was first (read, fold and decide again), and
        MessageTooLargeError. A lost answer is settled by reading the chain, however long it takes.
        """
        headers = _headers(draft, tail)
        filter_ = chain_filter(self.fleet, draft.subject.handoff_id)
        headers |= {_EXPECTED: str(tail), _EXPECTED_FILTER: filter_}
        subject, unanswered = str(draft.subject), False
        while True:
            try:
                return await self._publisher.publish(subject, draft.payload, headers)
            except NoAnswerError as error:
                log.warning("event.unanswered", subject=subject, error=str(error))
                unanswered = True
                await anyio.sleep(0.1)
            except LostRaceError:
                # After an unanswered try the winner may have been our own write.
                mine = await self._find_own(draft, tail) if unanswered else None
                if mine is None:
                    raise
                return mine

    async def _find_own(self, draft: Draft, tail: int) -> int | None:
        """The sequence at which this very event stands right behind `tail`, if it does."""
        found = await self.next_of_chain(draft.subject.handoff_id, after=tail)
        same = found and found.subject == draft.subject and found.payload == draft.payload
        return found.event.sequence if found and same and found.event.tail == tail else None

    async def is_empty(self) -> bool:
        """Whether no event was ever stored."""
        info = msgspec.json.decode(
            await self.connection.api(f"STREAM.INFO.{self.stream}"), type=_StreamInfo
        )
        return info.state.last_seq == 0

    async def read(self, sequence: int) -> Stored | None:
        """The event at this sequence of the ledger, or None where there is none."""
        return await self._get({"seq": sequence})

    async def next_of_chain(self, handoff_id: UUID, *, after: int) -> Stored | None:
        """The first event of a handoff behind this sequence, or None."""
        filter_ = chain_filter(self.fleet, handoff_id)
        return await self._get({"seq": after + 1, "next_by_subj": filter_})

    async def _get(self, body: Mapping[str, object]) -> Stored | None:
        while True:
            try:
                raw = await self.connection.api(f"STREAM.MSG.GET.{self.stream}", body)
            except NoAnswerError as error:
                log.warning("ledger.unanswered", error=str(error))
                await anyio.sleep(0.1)
            except ApiError as error:
                if error.err_code == NO_MESSAGE:
                    return None
                if error.code != 503:
                    raise
                await anyio.sleep(0.1)
            else:
                message = _decode_raw(raw).message
                return to_stored(
                    message.subject,
                    message.seq,
                    message.time.timestamp(),
                    _parse_headers(message.hdrs),
                    message.data,
                )

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

    async def read_folded(self, chain: Chain, *, upto: int | None = None) -> Chain:
        """The chain with the events that the ledger holds behind its tail (up to `upto`)."""
        while upto is None or chain.tail < upto:
            found = await self.next_of_chain(chain.id, after=chain.tail)
            if found is None or (upto is not None and found.event.sequence > upto):
                break
            chain = fold_stored(chain, found)
        return chain


def fold_stored(chain: Chain, stored: Stored) -> Chain:
    """Fold one stored event; a void one leaves a trace as a security event."""
    after = fold(chain, [stored.event])
    if after.void != chain.void:
        log.warning(
            "security.void_event",
            handoff=str(chain.id),
            sequence=stored.event.sequence,
            kind=stored.event.kind,
            actor=stored.event.actor,
            stage=chain.stage,
        )
    return after


def to_stored(
    subject: str, sequence: int, at: float, headers: Mapping[str, str], payload: bytes
) -> Stored | None:
    """A message of the stream as an event, or None where its subject is none of ours."""
    parsed = Subject.parse(subject)
    if parsed is None:
        return None
    event = Event(
        sequence=sequence,
        kind=parsed.kind,
        actor=parsed.actor,
        to=parsed.to,
        work=parsed.work,
        at=at,
        tail=_number(headers.get(TAIL)) or 0,
        accepted=_number(headers.get(_NUMBERS["accepted"])),
        attempt=_number(headers.get(_NUMBERS["attempt"])),
        lease=_number(headers.get(_NUMBERS["lease"])),
        waiter=headers.get(_TEXTS["waiter"]),
        addressee=headers.get(_TEXTS["addressee"]),
        reason=headers.get(_TEXTS["reason"], ""),
        child=_uuid(headers.get(CHILD)),
        child_to=headers.get(_TEXTS["child_to"]),
    )
    return Stored(event=event, subject=parsed, payload=payload, headers=headers)


def _headers(draft: Draft, tail: int) -> dict[str, str]:
    headers = {**draft.trace, TAIL: str(tail)}
    for field, name in _NUMBERS.items():
        if (number := getattr(draft, field)) is not None:
            headers[name] = str(number)
    for field, name in _TEXTS.items():
        if text := getattr(draft, field):
            headers[name] = _one_line(text)
    if draft.child is not None:
        headers[CHILD] = str(draft.child)
    return headers


def _one_line(text: str) -> str:
    """A header value: one line of at most 200 characters; the payload has the whole."""
    return " ".join(text.split())[:200]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _parse_headers(raw: bytes) -> dict[str, str]:
    lines = raw.decode(errors="replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {key: value.strip() for key, _, value in pairs}
