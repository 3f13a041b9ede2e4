"""Who is let in, as what, and where it stands: the checks before a handoff is delivered."""

from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from batonbus.rules.admission import (
    check_capabilities,
    check_deadline,
    check_origin,
    expected_capabilities,
    may_be_retried,
)
from batonbus.rules.chain import Chain, child_id
from batonbus.rules.lineage import Position, Record, check_after, place
from batonbus.rules.loops import find_loop, make_hop, spent
from batonbus.run.arrivals import Arrival, RefusedError, arrive
from batonbus.run.core import Core
from batonbus.run.history import History, make_history
from batonbus.run.listings import Listings
from batonbus.run.passages import Passages
from batonbus.run.records import Records
from batonbus.run.tally import Tally
from batonbus.secrecy import find_in
from batonbus.wire.ledger import Stored
from batonbus_schemas import (
    Delivery,
    Envelope,
    Hop,
    Settlement,
    Violation,
    decode,
    read_handoff,
)


class Admitted(Struct, frozen=True, kw_only=True):
    """A handoff that may be delivered: as the bus completes it, where it stands, the way to it."""

    envelope: Envelope
    position: Position
    trail: tuple[Hop, ...]


class _Completed(Struct, frozen=True, kw_only=True):
    """An envelope with what travels on to it: what it comes after, the handoff in whose handler it
    was sent, and the trail of the handoff before it."""

    envelope: Envelope
    after: tuple[UUID, ...] | None
    handled: Envelope | None = None
    trail: tuple[Hop, ...] = ()


class Admission:
    """Reads, checks, completes and places a handoff."""

    def __init__(self, core: Core, records: Records, listings: Listings) -> None:
        self._core = core
        self._listings = listings
        self._ledger = core.ledger
        self._records = records
        self._tally = Tally(core.ledger, core.settings.work_limit)
        self._passages = Passages()

    async def admit(self, arrival: Arrival) -> Admitted:
        """The handoff as it may be delivered. Raises RefusedError, InvalidMessageError,
        LineageError."""
        settings = self._core.settings
        now = datetime.fromtimestamp(self._core.connection.server_time(), UTC)
        admitted = await self._stand(arrival, now)
        envelope = admitted.envelope
        if loop := find_loop(envelope.hops, admitted.trail, limit=settings.hop_limit):
            raise RefusedError(loop)
        # Of the work that it inherits, too.
        if pastes := self._passages.find_pastes(envelope):
            raise RefusedError("the envelope is not admitted", tuple(pastes))
        await self._check_capabilities(envelope)
        # The last check: what is refused for something else uses nothing up.
        if not await self._tally.admits(envelope.work, envelope.id):
            raise RefusedError(spent(envelope.work, settings.work_limit))
        self._passages.note(envelope)
        return admitted

    async def _stand(self, arrival: Arrival, now: datetime) -> Admitted:
        """The envelope as the bus completes it, and where it stands, judged at the moment `now`."""
        actor, handoff_id = arrival.source.event.actor, str(arrival.handoff_id)
        envelope = self._read_envelope(arrival)
        violations = check_origin(
            envelope, actor=actor, handoff_id=handoff_id, to=arrival.addressee
        )
        violations += check_deadline(envelope, now)
        violations += find_in(envelope)
        if violations:
            raise RefusedError("the envelope is not admitted", tuple(violations))
        if envelope.retry_of is not None:
            return await self._stand_again(envelope, envelope.retry_of)
        completed = await self._complete(arrival, envelope)
        envelope = completed.envelope
        # The deadline that it inherits binds it like one of its own.
        if late := check_deadline(envelope, now):
            raise RefusedError("the envelope is not admitted", tuple(late))
        return Admitted(
            envelope=envelope,
            position=await self._place(envelope, completed.after, completed.handled),
            trail=(*completed.trail, make_hop(envelope)),
        )

    async def _stand_again(self, envelope: Envelope, tried: UUID) -> Admitted:
        """A retry stands where the handoff stood that it tries again
        (see decisions/retries-of-the-dead.md)."""
        history = make_history(tried, await self._ledger.read_chain(tried))
        if not may_be_retried(history.chain, history.envelope):
            raise RefusedError(
                f"handoff {tried} is {history.chain.stage}: only a dead one is retried"
            )
        delivery = history.delivery
        if delivery is not None:
            before, trail = delivery.envelope, delivery.trail
            position = Position(
                to=envelope.to,
                opener=delivery.opener,
                stage_parents=before.stage_parents,
                task_parents=before.task_parents,
            )
        else:
            # Nobody had looked at it: that is done now, as of the moment at which it was sent.
            source = await self._find_source(envelope, history)
            arrival, _ = await arrive(self._ledger, source)
            if arrival is None:
                raise RefusedError(f"nothing in the ledger opened handoff {tried}")
            sent_at = datetime.fromtimestamp(source.event.at, UTC)
            stood = await self._stand(arrival, sent_at)
            before, position, trail = stood.envelope, stood.position, stood.trail
        again = replace(
            envelope,
            work=before.work,
            task=before.task,
            within=before.within,
            after=before.after,
            hops=before.hops,
        )
        # On the way it takes the place of the one that it tries again.
        return Admitted(envelope=again, position=position, trail=(*trail[:-1], make_hop(again)))

    async def _find_source(self, envelope: Envelope, history: History) -> Stored:
        """The event that opened a handoff which was never delivered. Where that is another one's
        settled event, the retry names that handoff in `after`: no chain names its parent."""
        for step in history.steps:
            if step.objection is None and step.stored.event.kind == "sent":
                return step.stored
        for parent in envelope.after or ():
            chain = await self._ledger.read_folded(Chain(id=parent))
            if child_id(parent) == history.chain.id and chain.settled_sequence is not None:
                source = await self._ledger.read(chain.settled_sequence)
                if source is not None:
                    return source
        raise RefusedError(f"the ledger does not say who sent handoff {history.chain.id}")

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
        listening = (await self._listings.fresh()).listening(envelope.to)
        if violations := check_capabilities(envelope, listening):
            raise RefusedError("the addressee lacks a capability", tuple(violations))

    async def _complete(self, arrival: Arrival, envelope: Envelope) -> _Completed:
        """What travels on comes from the settled handoff for a child, from the handled one for
        what was sent inside a handler."""
        if arrival.parent is not None:
            settled = await self._delivered(arrival.parent)
            before = settled.envelope
            following = replace(
                envelope,
                work=before.work,
                task=envelope.task or before.task,
                reply_to=before.reply_to or before.sender,
                within=before.within,
                hops=before.hops + 1,
                deadline=envelope.deadline or before.deadline,
            )
            after = (arrival.parent.id,)
            return _Completed(envelope=following, after=after, trail=settled.trail)
        delivered = await self._handled(arrival, envelope)
        if delivered is None:
            return _Completed(envelope=envelope, after=envelope.after or ())
        handled = delivered.envelope
        sent = replace(
            envelope,
            hops=handled.hops + 1,
            deadline=envelope.deadline or handled.deadline,
            within=handled.id,
        )
        return _Completed(
            envelope=sent, after=envelope.after, handled=handled, trail=delivered.trail
        )

    async def _handled(self, arrival: Arrival, envelope: Envelope) -> Delivery | None:
        """The handoff in whose handler this one was sent: by one who accepted it, while it was open
        (see decisions/sends-of-a-former-owner.md)."""
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
        actor = arrival.source.event.actor
        if chain.final or stored.event.actor != actor or accepted in chain.void:
            raise RefusedError(
                f"{actor} did not own handoff {chain.id} when it sent this: "
                f"it was {chain.stage}, its owner {chain.owner}"
            )
        return await self._delivered(chain)

    async def _delivered(self, chain: Chain) -> Delivery:
        stored = await self._ledger.read(chain.delivered_sequence or 0)
        if stored is None:
            raise RefusedError(f"the ledger has no delivered event of handoff {chain.id}")
        return decode(stored.payload, Delivery)

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
