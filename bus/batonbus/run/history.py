"""All that the ledger holds of a handoff, and of those that it was handed on to."""

from collections.abc import Callable, Collection
from typing import TypeVar
from uuid import UUID

from msgspec import Struct

from batonbus.logs import log
from batonbus.rules.chain import Chain, child_id, fold, objection
from batonbus.rules.errors import BatonbusError
from batonbus.run.core import Core
from batonbus.wire.ledger import Ledger, Stored, read_received
from batonbus.wire.reader import read_from, read_to_head
from batonbus.wire.subjects import is_token, kind_filter, work_filter
from batonbus_schemas import (
    Delivery,
    Envelope,
    InvalidMessageError,
    Settlement,
    decode,
    read_handoff,
)

T = TypeVar("T")

READ_SINGLY = 200
"""Chains that are read one by one, each of them about as long as 50 events of the whole ledger."""


class HandoffNotFoundError(BatonbusError):
    """The ledger has no such handoff."""


class Step(Struct, frozen=True):
    """One event, why it is void if it is, and for an accepted one that takes over, from whom: what
    that owner answers later is stale, and not stored."""

    stored: Stored
    objection: str | None
    takes_over_from: str | None = None


class History(Struct, frozen=True, kw_only=True):
    """One handoff: its folded chain, its events in ledger order, and what they carry.

    `envelope` is what was handed over (None where its first event is none that the bus allows).
    """

    chain: Chain
    steps: tuple[Step, ...]
    envelope: Envelope | None = None
    delivery: Delivery | None = None
    settlement: Settlement | None = None

    @property
    def completed(self) -> Envelope | None:
        """The envelope as it was delivered, for the bus completes it: work, task and waiter travel
        on with `then`. Before that, as it was handed over."""
        return self.delivery.envelope if self.delivery else self.envelope

    @property
    def last_actor(self) -> str:
        """Who wrote the newest event that counts; empty where none does."""
        counting = [it.stored.event.actor for it in self.steps if it.objection is None]
        return counting[-1] if counting else ""

    def event(self, sequence: int | None) -> Stored | None:
        """The event at this sequence of the ledger, if it is one of this handoff."""
        return next((it.stored for it in self.steps if it.stored.event.sequence == sequence), None)


async def read_line(ledger: Ledger, handoff_id: UUID) -> list[History]:
    """A handoff and, where it was settled with a next one, that one too, to the line's end. Empty
    where the ledger does not know it."""
    line: list[History] = []
    handed_on: Envelope | None = None
    while True:
        events = await ledger.read_chain(handoff_id)
        if not events and handed_on is None:
            return line
        history = make_history(handoff_id, events, handed_on)
        line.append(history)
        if history.settlement is None or history.settlement.next is None:
            return line
        handed_on, handoff_id = history.settlement.next, child_id(handoff_id)


async def read_work(ledger: Ledger, work: str) -> list[History]:
    """All handoffs of a work, in the order in which they began. Reads its own events, about 20,000
    a second; a name that no event can bear has none."""
    if not is_token(work):
        return []
    found: dict[UUID, list[Stored]] = {}

    def hear(stored: Stored) -> None:
        found.setdefault(stored.subject.handoff_id, []).append(stored)

    subject = work_filter(ledger.fleet, work)
    await read_to_head(ledger, hear, subject=subject, headers_only=False)
    histories: list[History] = []
    handed_on: dict[UUID, Envelope] = {}
    for handoff_id, events in found.items():
        history = make_history(handoff_id, events, handed_on.get(handoff_id))
        if history.chain.void:
            # Some of its events stand elsewhere: it was sent outside of the work that it inherited.
            whole = await ledger.read_chain(handoff_id)
            history = make_history(handoff_id, whole, handed_on.get(handoff_id))
        histories.append(history)
        if history.settlement is not None and history.settlement.next is not None:
            handed_on[child_id(handoff_id)] = history.settlement.next
    return histories


def make_history(
    handoff_id: UUID, events: list[Stored], handed_on: Envelope | None = None
) -> History:
    """What a chain's events say. `handed_on` is the envelope with which another handoff, settled,
    opened this one."""
    chain = Chain(id=handoff_id)
    steps: list[Step] = []
    for stored in events:
        problem = objection(chain, stored.event)
        takes_over = problem is None and (stored.event.kind, chain.stage) == ("accepted",) * 2
        steps.append(Step(stored, problem, chain.owner if takes_over else None))
        chain = fold(chain, [stored.event])
    valid = {it.stored.event.sequence: it.stored for it in steps if it.objection is None}
    sent = next((it for it in valid.values() if it.event.kind == "sent"), None)
    delivered = valid.get(chain.delivered_sequence or 0)
    settled = valid.get(chain.settled_sequence or 0)
    return History(
        chain=chain,
        steps=tuple(steps),
        envelope=handed_on if sent is None else read_sent(sent),
        delivery=_read(delivered, Delivery),
        settlement=_read(settled, Settlement),
    )


def read_sent(sent: Stored) -> Envelope | None:
    """None for what was refused because it cannot be read."""
    try:
        return read_handoff(sent.payload, sender=sent.event.actor, to=sent.event.to)
    except InvalidMessageError:
        return None


def _read(stored: Stored | None, type_: type[T]) -> T | None:
    try:
        return decode(stored.payload, type_) if stored else None
    except InvalidMessageError:
        return None


async def read_chains(ledger: Ledger) -> dict[UUID, Chain]:
    """Every chain, folded, in the order in which they began. Reads the headers of the whole ledger,
    about 70,000 events a second."""
    chains: dict[UUID, Chain] = {}

    def hear(stored: Stored) -> None:
        handoff_id = stored.subject.handoff_id
        chains[handoff_id] = fold(chains.get(handoff_id, Chain(id=handoff_id)), [stored.event])

    await read_to_head(ledger, hear)
    return chains


async def find_chains(ledger: Ledger, subject: str) -> dict[UUID, Chain]:
    """Every chain that has an event under this subject, folded whole, in the order of those events.
    Reads these events' headers, then each chain; where they are many, the whole ledger."""
    found: dict[UUID, None] = {}

    def hear(stored: Stored) -> None:
        found[stored.subject.handoff_id] = None

    await read_to_head(ledger, hear, subject=subject)
    if len(found) > READ_SINGLY:
        chains = await read_chains(ledger)
        return {it: chains[it] for it in found if it in chains}
    return {it: await ledger.read_folded(Chain(id=it)) for it in found}


async def find_parents(ledger: Ledger, children: Collection[UUID]) -> dict[UUID, Chain]:
    """Which settled handoff opened each of these, by the child's id. Reads the headers of all
    settled ones, for an id does not tell whose child it is."""
    found: dict[UUID, UUID] = {}

    def hear(stored: Stored) -> None:
        parent = stored.subject.handoff_id
        if stored.event.child_to and (child := child_id(parent)) in children:
            found[child] = parent

    if children:
        await read_to_head(ledger, hear, subject=kind_filter(ledger.fleet, "settled"))
    parents = {it: await ledger.read_folded(Chain(id=parent)) for it, parent in found.items()}
    # A void event opens nothing.
    return {child: parent for child, parent in parents.items() if parent.child == child}


async def find_ids(core: Core, prefix: str) -> list[UUID]:
    """The handoffs whose id begins so. Reads the headers of the whole ledger, about 70,000 events
    a second."""
    found: dict[UUID, None] = {}

    def compare(stored: Stored) -> None:
        if str(stored.subject.handoff_id).startswith(prefix):
            found[stored.subject.handoff_id] = None

    await read_to_head(core.ledger, compare)
    return list(found)


async def follow(core: Core, hear: Callable[[Stored], None], *, everything: bool) -> None:
    """Call `hear` with each event as it is stored, from now on or from the ledger's first one on,
    until cancelled."""
    start = 1 if everything else await core.ledger.last_sequence() + 1
    async with read_from(core.connection, core.fleet, start, headers_only=False) as feed:
        log.info("follow.started", start=start)
        while True:
            received = await feed.receive()
            stored = read_received(received)
            if stored is not None:
                hear(stored)
            await feed.release()
