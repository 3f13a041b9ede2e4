"""Whether an event that somebody heard is really in the ledger, and counts there.

A message to a waiter is no proof: an event that lost its compare-and-set, or is void, is heard all
the same. The keepers fold every chain anyway, and confirm what they have seen to count.
"""

from collections import OrderedDict
from typing import Literal
from uuid import UUID

import anyio
from msgspec import Struct

from batonbus.rules.chain import Chain, Event, Kind
from batonbus.rules.errors import BusUnavailableError
from batonbus.run.changes import Changes

REMEMBERED = 50_000
"""Events that a keeper can confirm; an older one is looked up in the ledger by whoever waits."""

PATIENCE = 1.0
"""Seconds that a keeper waits for an event that it has not read yet."""


class Word(Struct, frozen=True):
    """An event as it was heard: only one event of a chain can follow a tail and count."""

    handoff_id: UUID
    tail: int
    kind: Kind | Literal["unknown"]
    actor: str


class Confirmed:
    """The newest events that count."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._words: OrderedDict[Word, None] = OrderedDict()
        self._size = size
        self._grown = Changes()
        self.ready = False

    def note(self, chain: Chain, event: Event) -> None:
        """Remember an event, if it counts in the chain that was just folded up to it."""
        if event.sequence in chain.void:
            return
        self._words[Word(chain.id, event.tail, event.kind, event.actor)] = None
        if len(self._words) > self._size:
            self._words.popitem(last=False)
        self._grown.tell()

    async def check(self, words: tuple[Word, ...]) -> tuple[bool, ...]:
        """Which of these count; waits a moment for those that are just being read.

        Raises BusUnavailableError while the ledger is being read for the first time.
        """
        if not self.ready:
            raise BusUnavailableError("this keeper is still reading the ledger: ask again")
        with anyio.move_on_after(PATIENCE):
            while not all(word in self._words for word in words):
                await self._grown.wait()
        return tuple(word in self._words for word in words)
