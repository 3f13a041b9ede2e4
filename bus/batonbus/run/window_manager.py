"""The window manager: checks each handoff, builds its window, and delivers it.

It reads `sent` and `settled` from one durable consumer. Any number run side by side, and one that
is killed at any instant loses nothing: the compare-and-set decides who delivered.
"""

from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import anyio
from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.trace import SpanKind

from batonbus.logs import bind, log
from batonbus.rules.admission import (
    check_capabilities,
    check_deadline,
    check_origin,
    expected_capabilities,
)
from batonbus.rules.chain import WINDOW_MANAGER, Chain, child_id
from batonbus.rules.errors import MessageTooLargeError
from batonbus.rules.lineage import LineageError, Position, Record, check_after, place
from batonbus.rules.ownership import holds
from batonbus.rules.window import build_window, second_parents
from batonbus.run.core import Core
from batonbus.run.records import Records
from batonbus.run.telemetry import span
from batonbus.wire.feed import Feed, Received, open_feed
from batonbus.wire.ledger import Draft, Stored, fold_stored, to_stored
from batonbus.wire.publisher import LostRaceError
from batonbus.wire.subjects import Subject
from batonbus.wire.topology import WINDOW_MANAGER_CONSUMER
from batonbus_schemas import (
    Delivery,
    Envelope,
    InvalidMessageError,
    Receipt,
    Settlement,
    Violation,
    decode,
    encode,
    read_handoff,
)

IN_FLIGHT = 256
"""Handoffs that one window manager works on at a time."""

RETRY_DELAY = 1.0
"""Seconds after which an event that could not be handled is read again."""


class RefusedError(Exception):
    """This handoff is not delivered: every violation that was found."""

    def __init__(self, reason: str, violations: tuple[Violation, ...] = ()) -> None:
        self.reason, self.violations = reason, violations
        super().__init__(reason)


class Arrival(Struct, frozen=True, kw_only=True):
    """A handoff that wants to be delivered: its envelope as sent, and the event that brings it.

    `parent` is the settled handoff that hands on to it, for a child.
    """

    handoff_id: UUID
    source: Stored
    addressee: str
    payload: bytes
    parent: Chain | None = None

    @property
    def waiter(self) -> str:
        """Who is told how it goes."""
        return self.source.event.waiter or self.source.event.actor


class WindowManager:
    """Delivers handoffs. See `run_window_manager`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ledger = core.ledger
        self._records = Records(core.ledger)

    async def run(self) -> None:
        """Read and deliver until cancelled."""
        async with (
            open_feed(
                self._core.connection,
                self._ledger.stream,
                WINDOW_MANAGER_CONSUMER,
                window=IN_FLIGHT,
            ) as feed,
            anyio.create_task_group() as tasks,
        ):
            log.info("window_manager.started", fleet=self._core.fleet)
            while True:
                tasks.start_soon(self._handle, feed, await feed.receive())

    async def _handle(self, feed: Feed, received: Received) -> None:
        try:
            await self._on_event(received)
            await received.ack()
        except Exception as error:  # noqa: BLE001 - The top of the loop: what went wrong with one event must not stop the others.
            log.exception("event.failed", subject=received.subject, error=repr(error))
            await received.nak(RETRY_DELAY)
        finally:
            await feed.release()

    async def _on_event(self, received: Received) -> None:
        stored = to_stored(
            received.subject, received.sequence, received.at, received.headers, received.data
        )
        if stored is None:
            log.warning("event.foreign", subject=received.subject)
            return
        arrival, chain = await self._arrive(stored)
        if arrival is None:
            return
        if received.deliveries > 1:
            chain = await self._ledger.read_folded(chain)
        event = stored.event
        with (
            bind(handoff=str(arrival.handoff_id), work=event.work),
            span(f"deliver {arrival.addressee}", SpanKind.CONSUMER, stored.headers) as trace,
        ):
            await self._deliver(arrival, chain, trace)

    async def _arrive(self, stored: Stored) -> tuple[Arrival | None, Chain]:
        """The handoff that an event brings, and its chain up to there; None for a void event."""
        handoff_id = stored.subject.handoff_id
        if stored.event.kind == "sent":
            before = await self._ledger.read_folded(
                Chain(id=handoff_id), upto=stored.event.sequence - 1
            )
            chain = fold_stored(before, stored)
            arrival = Arrival(
                handoff_id=handoff_id,
                source=stored,
                addressee=stored.event.to,
                payload=stored.payload,
            )
            return (None if chain.void != before.void else arrival), chain
        child = Chain(id=child_id(handoff_id))
        if stored.event.child is None:
            return None, child
        parent = await self._ledger.read_folded(Chain(id=handoff_id), upto=stored.event.sequence)
        if parent.settled_sequence != stored.event.sequence:
            return None, child
        arrival = Arrival(
            handoff_id=child.id,
            source=stored,
            addressee=stored.event.child_to or "_",
            payload=stored.payload,
            parent=parent,
        )
        return arrival, child

    async def _deliver(self, arrival: Arrival, chain: Chain, trace: dict[str, str]) -> None:
        """Write `delivered` or `refused`, unless somebody else has moved the handoff on."""
        while not chain.final and chain.delivered_sequence is None:
            draft = await self._decide(arrival, chain, trace)
            try:
                sequence = await self._ledger.append(draft, tail=chain.tail)
            except LostRaceError:
                chain = await self._ledger.read_folded(chain)
                continue
            except MessageTooLargeError as error:
                draft = self._refusal(arrival, RefusedError(str(error)), trace)
                sequence = await self._ledger.append(draft, tail=chain.tail)
            log.info(f"handoff.{draft.subject.kind}", to=arrival.addressee, sequence=sequence)
            return

    async def _decide(self, arrival: Arrival, chain: Chain, trace: dict[str, str]) -> Draft:
        try:
            envelope, position = await self._admit(arrival)
            return await self._delivery(arrival, envelope, position, trace)
        except RefusedError as error:
            return self._refusal(arrival, error, trace)
        except InvalidMessageError as error:
            refused = RefusedError("the message is not valid", error.violations)
            return self._refusal(arrival, refused, trace)
        except LineageError as error:
            return self._refusal(arrival, RefusedError(str(error)), trace)

    async def _admit(self, arrival: Arrival) -> tuple[Envelope, Position]:
        """The envelope as the bus completes it, and its position. Raises RefusedError,
        InvalidMessageError, LineageError."""
        event = arrival.source.event
        envelope = self._read_envelope(arrival)
        violations = check_origin(
            envelope, actor=event.actor, handoff_id=str(arrival.handoff_id), to=arrival.addressee
        )
        now = datetime.fromtimestamp(self._core.connection.server_time(), UTC)
        violations += check_deadline(envelope, now)
        if violations:
            raise RefusedError("the envelope is not admitted", tuple(violations))
        await self._check_capabilities(envelope)
        envelope, after, handled = await self._complete(arrival, envelope)
        return envelope, await self._place(envelope, after, handled)

    def _read_envelope(self, arrival: Arrival) -> Envelope:
        if arrival.parent is None:
            actor = arrival.source.event.actor
            return read_handoff(arrival.payload, sender=actor, to=arrival.addressee)
        envelope = decode(arrival.payload, Settlement).next
        if envelope is None:
            raise RefusedError("its headers announce a next handoff, its payload has none")
        return envelope

    async def _check_capabilities(self, envelope: Envelope) -> None:
        if not expected_capabilities(envelope):
            return
        agents = await self._core.registry.list()
        listening = [it for it in agents if envelope.to in {it.card.role, it.card.id}]
        if violations := check_capabilities(envelope, listening):
            raise RefusedError("the addressee lacks a capability", tuple(violations))

    async def _complete(
        self, arrival: Arrival, envelope: Envelope
    ) -> tuple[Envelope, tuple[UUID, ...] | None, Envelope | None]:
        """The envelope with what travels on: for a child from the settled handoff, for one sent
        inside a handler from the handled one. Also what it comes after, and the handled envelope.
        """
        if arrival.parent is not None:
            before = await self._delivered(arrival.parent)
            following = replace(
                envelope,
                work=before.work,
                task=envelope.task or before.task,
                reply_to=before.reply_to or before.sender,
                within=before.within,
                hops=before.hops + 1,
                deadline=envelope.deadline or before.deadline,
            )
            return following, (arrival.parent.id,), None
        handled = await self._handled(arrival, envelope)
        if handled is None:
            return envelope, envelope.after or (), None
        deadline = envelope.deadline or handled.deadline
        sent = replace(envelope, hops=handled.hops + 1, deadline=deadline, within=handled.id)
        return sent, envelope.after, handled

    async def _handled(self, arrival: Arrival, envelope: Envelope) -> Envelope | None:
        """The handoff in whose handler this one was sent: its owner must have held it then."""
        accepted = arrival.source.event.accepted
        if accepted is None:
            if envelope.within is not None:
                raise RefusedError("it says `within`, but names no accepted event")
            return None
        stored = await self._ledger.read(accepted)
        if stored is None or stored.event.kind != "accepted":
            raise RefusedError(f"the ledger has no accepted event at {accepted}")
        chain = await self._ledger.read_folded(
            Chain(id=stored.subject.handoff_id), upto=arrival.source.event.sequence
        )
        if not holds(chain, arrival.source.event.actor, accepted):
            raise RefusedError(
                f"{arrival.source.event.actor} did not own handoff {chain.id} when it sent this: "
                f"it was {chain.stage}, its owner {chain.owner}"
            )
        return await self._delivered(chain)

    async def _delivered(self, chain: Chain) -> Envelope:
        stored = await self._ledger.read(chain.delivered_sequence or 0)
        if stored is None:
            raise RefusedError(f"the ledger has no delivered event of handoff {chain.id}")
        return decode(stored.payload, Delivery).envelope

    async def _place(
        self, envelope: Envelope, after: tuple[UUID, ...] | None, handled: Envelope | None
    ) -> Position:
        """Where the handoff stands. Without `after` it inherits the position of the handled one."""
        if after is None and handled is not None:
            inherited = await self._records.read((*handled.stage_parents, *handled.task_parents))
            return place(work=envelope.work, task=envelope.task, to=envelope.to, records=inherited)
        records: list[Record] = []
        missing: list[Violation] = []
        for handoff_id in after or ():
            record = await self._records.find(handoff_id)
            if record is None:
                problem = f"handoff {handoff_id} is not settled: await its result first"
                missing.append(Violation(path="$.after", problem=problem))
            else:
                records.append(record)
        # A child comes after the settled handoff by itself, nobody named it.
        if envelope.after:
            missing += check_after(
                work=envelope.work,
                sender=envelope.sender,
                within=envelope.within,
                records=records,
            )
        if missing:
            raise RefusedError("`after` names handoffs that it may not", tuple(missing))
        return place(work=envelope.work, task=envelope.task, to=envelope.to, records=records)

    async def _delivery(
        self, arrival: Arrival, envelope: Envelope, position: Position, trace: dict[str, str]
    ) -> Draft:
        first = await self._records.read(position.parents_shown())
        second = await self._records.read(second_parents(position, first))
        window, cuts = build_window(position, [*first, *second])
        placed = replace(
            envelope, stage_parents=position.stage_parents, task_parents=position.task_parents
        )
        delivery = Delivery(envelope=placed, opener=position.opener, window=window, cuts=cuts)
        return Draft(
            subject=self._subject(arrival, "delivered", placed.work, placed.to),
            payload=encode(delivery),
            attempt=placed.attempt,
            waiter=placed.reply_to or placed.sender,
            addressee=placed.to,
            trace=trace,
        )

    def _refusal(self, arrival: Arrival, error: RefusedError, trace: dict[str, str]) -> Draft:
        receipt = Receipt(
            handoff_id=arrival.handoff_id,
            state="refused",
            by=WINDOW_MANAGER,
            reason=error.reason,
            violations=error.violations,
        )
        return Draft(
            subject=self._subject(arrival, "refused", arrival.source.event.work, arrival.waiter),
            payload=encode(receipt),
            waiter=arrival.waiter,
            addressee=arrival.addressee,
            reason=error.reason,
            trace=trace,
        )

    def _subject(
        self, arrival: Arrival, kind: Literal["delivered", "refused"], work: str, to: str
    ) -> Subject:
        return Subject(self._core.fleet, arrival.handoff_id, kind, work, WINDOW_MANAGER, to)
