"""The chains that a keeper folds: it holds every open one until it is final, and of the others the
few that had an event of late.

What anybody may write under an id that is no handoff's takes no memory for it.
"""

from collections import OrderedDict
from uuid import UUID

from msgspec.structs import replace

from batonbus.rules.chain import BUS_ACTORS, Chain, fold
from batonbus.wire.ledger import Ledger, Stored

STRAYS = 1_000
"""Chains that are not open and are held though: a stranger's next event there needs no read."""


class Chains:
    """See the module. Of the void events of a chain, the newest alone is listed in it."""

    def __init__(self, ledger: Ledger, strays: int = STRAYS) -> None:
        self._ledger = ledger
        self._limit = strays
        self._open: dict[UUID, Chain] = {}
        self._strays: OrderedDict[UUID, Chain] = OrderedDict()

    def __len__(self) -> int:
        """How many are held."""
        return len(self._open) + len(self._strays)

    def open(self) -> list[Chain]:
        """Every open chain, as it is now."""
        return list(self._open.values())

    def find(self, handoff_id: UUID) -> Chain | None:
        """The chain of an open handoff."""
        return self._open.get(handoff_id)

    async def fold(self, stored: Stored) -> Chain:
        """The chain up to this event, which is the next one of the ledger."""
        handoff_id, event = stored.subject.handoff_id, stored.event
        known = self._known(handoff_id)
        if self._ledger.is_first(stored):
            # What stood there was removed (retention), and its id is used again.
            known = replace(known, tail=0) if handoff_id in self._open else Chain(id=handoff_id)
        elif not known.tail:
            # Void events, or an end, that were forgotten: only the ledger knows what it follows.
            if handoff_id not in self._open and not await self._may_count(stored):
                return replace(known, tail=event.sequence, void=(event.sequence,))
            known = await self._ledger.read_folded(known, upto=event.sequence - 1)
        chain = fold(replace(known, void=()) if known.void else known, [event])
        self._note(chain)
        return chain

    async def _may_count(self, stored: Stored) -> bool:
        """Behind void events or an end counts only what begins a handoff, and right behind the tail
        that it names. Asked before the chain is read, which whoever writes there makes long."""
        event, handoff_id = stored.event, stored.subject.handoff_id
        if event.kind != "sent" and event.actor not in BUS_ACTORS:
            return False
        if event.tail:
            named = await self._ledger.read(event.tail) if event.tail < event.sequence else None
            if named is None or named.subject.handoff_id != handoff_id:
                return False
        following = await self._ledger.next_of_chain(handoff_id, after=event.tail)
        return following is not None and following.event.sequence == event.sequence

    def expect(self, parent: Chain, to: str | None, at: float) -> Chain | None:
        """A settled handoff's next one is open from that very event on, at the server's moment
        `at`."""
        if parent.child is None:
            return None
        child = replace(
            self._known(parent.child),
            began=at,
            changed=at,
            work=parent.work,
            waiter=parent.waiter,
            addressee=to,
        )
        self._note(child)
        return child

    def forget(self, handoff_id: UUID) -> None:
        """It has ended, though no event of it said so here."""
        self._open.pop(handoff_id, None)

    def _known(self, handoff_id: UUID) -> Chain:
        return self._open.get(handoff_id) or self._strays.get(handoff_id) or Chain(id=handoff_id)

    def _note(self, chain: Chain) -> None:
        if chain.began and not chain.final:
            self._open[chain.id] = chain
            self._strays.pop(chain.id, None)
            return
        self._open.pop(chain.id, None)
        if not chain.void:
            self._strays.pop(chain.id, None)
            return
        self._strays[chain.id] = chain
        self._strays.move_to_end(chain.id)
        if len(self._strays) > self._limit:
            self._strays.popitem(last=False)
