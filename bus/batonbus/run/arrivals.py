"""A handoff that wants to be delivered, and the event that brings it."""

from uuid import UUID

from msgspec import Struct

from batonbus.rules.chain import Chain, child_id, fold
from batonbus.wire.ledger import Ledger, Stored
from batonbus_schemas import Violation


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


async def arrive(ledger: Ledger, stored: Stored) -> tuple[Arrival | None, Chain]:
    """The handoff that an event brings, and its chain up to there; None for a void event."""
    handoff_id = stored.subject.handoff_id
    if stored.event.kind == "sent":
        before = Chain(id=handoff_id)
        if not ledger.is_first(stored):
            before = await ledger.read_folded(before, upto=stored.event.sequence - 1)
        chain = fold(before, [stored.event])
        arrival = Arrival(
            handoff_id=handoff_id,
            source=stored,
            addressee=stored.event.to,
            payload=stored.payload,
        )
        return (None if chain.void != before.void else arrival), chain
    child = Chain(id=child_id(handoff_id))
    if stored.event.child_to is None:
        return None, child
    parent = await ledger.read_folded(Chain(id=handoff_id), upto=stored.event.sequence)
    if parent.settled_sequence != stored.event.sequence:
        return None, child
    arrival = Arrival(
        handoff_id=child.id,
        source=stored,
        addressee=stored.event.child_to,
        payload=stored.payload,
        parent=parent,
    )
    return arrival, child
