"""What was asked for inside a handler whose handoff ended without an answer: nobody needs it.

A handoff that is taken over or tried again is still open, and its handler finds its questions
again. Who settles or refuses has decided what becomes of them (see decisions/orphans.md).
"""

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from batonbus.rules.chain import Chain, Stage

ABANDONS: Mapping[Stage, str] = MappingProxyType({"cancelled": "was cancelled", "dead": "is dead"})
"""Ends of a handoff after which nobody waits for what was asked for inside it."""


class Orphan(Struct, frozen=True, kw_only=True):
    """An open handoff that nobody needs any more, and why. `chain` has its id, its work and who
    waits: what is not in the ledger yet where another one has just handed on to it."""

    chain: Chain
    reason: str


class Families:
    """Who asked for what inside which handler, as far as both are open: a fold of all chains.

    A line that hands on stays with whoever asked for it.
    """

    def __init__(self) -> None:
        self.orphans: dict[UUID, Orphan] = {}
        self._askers: dict[int, UUID] = {}
        """The open handoffs, by the accepted events that their handlers ran under."""
        self._accepted: dict[UUID, list[int]] = {}
        self._asked: dict[UUID, dict[UUID, Chain]] = {}
        self._asker_of: dict[UUID, UUID] = {}

    def note(self, chain: Chain, sequence: int) -> None:
        """The chain as it is after the event at this sequence."""
        if sequence in chain.void:
            return
        if chain.stage == "accepted":
            self._askers[sequence] = chain.id
            self._accepted.setdefault(chain.id, []).append(sequence)
        elif chain.stage == "sent":
            asker = self._askers.get(chain.sent_under or 0)
            if asker is not None:
                self._adopt(asker, chain)
        elif chain.final:
            following = (
                Chain(id=chain.child, work=chain.work, waiter=chain.waiter) if chain.child else None
            )
            self._hand_on(chain.id, following)
            self._end(chain)

    def _adopt(self, asker: UUID, chain: Chain) -> None:
        self._asked.setdefault(asker, {})[chain.id] = chain
        self._asker_of[chain.id] = asker

    def _hand_on(self, handoff_id: UUID, following: Chain | None) -> None:
        """An asked one has ended: what it handed on to takes its place."""
        orphan = self.orphans.pop(handoff_id, None)
        asker = self._asker_of.pop(handoff_id, None)
        if asker is not None:
            del self._asked[asker][handoff_id]
        if following is None:
            return
        if orphan is not None:
            self.orphans[following.id] = replace(orphan, chain=following)
        elif asker is not None:
            self._adopt(asker, following)

    def _end(self, asker: Chain) -> None:
        """A handoff has ended, and with it what its handlers might ask for."""
        for sequence in self._accepted.pop(asker.id, ()):
            del self._askers[sequence]
        for chain in self._asked.pop(asker.id, {}).values():
            del self._asker_of[chain.id]
            if ended := ABANDONS.get(asker.stage):
                reason = f"handoff {asker.id}, which asked for it, {ended}"
                self.orphans[chain.id] = Orphan(chain=chain, reason=reason)
