"""How many handoffs each work has used, counted by one window manager of several."""

from collections import OrderedDict
from uuid import UUID

import anyio

from batonbus.rules.loops import next_count
from batonbus.wire.ledger import Ledger
from batonbus_schemas.envelope import ADHOC

KNOWN_WORKS = 1_000
"""Works whose count is kept in memory; one that was forgotten begins as at a new start."""


class Tally:
    """Lets handoffs of a work in until it has used its limit.

    The ledger is the count: what was delivered stands there, whoever delivered it, at any start.
    It is counted by a scan (34 ms at 100,000 handoffs), so seldom: each window manager delivers an
    eighth of what it believes to be left before it looks. With up to 8 of them a work ends within 7
    of its limit; each start of one may add an eighth of the limit.
    """

    def __init__(self, ledger: Ledger, limit: int) -> None:
        self._ledger = ledger
        self._limit = limit
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    async def admits(self, work: str, handoff_id: UUID) -> bool:
        """Whether the work has room for this handoff, which then counts; asked again, it counts
        once."""
        if work == ADHOC:
            return True
        count = self._find(work)
        while not count.has_room(handoff_id):
            if count.spent:
                return False
            async with count.lock:
                # Whoever had the lock before may have counted.
                if not count.spent and not count.has_room(handoff_id):
                    await self._read(work, count)
        count.own.add(handoff_id)
        return True

    async def _read(self, work: str, count: "_Count") -> None:
        delivered = await self._ledger.delivered_of(work)
        # What is just being delivered may not be stored yet.
        count.own -= delivered
        count.stored = len(delivered)
        count.until = next_count(count.used, self._limit)
        count.spent = count.used >= self._limit

    def _find(self, work: str) -> "_Count":
        if work not in self._counts:
            self._counts[work] = _Count(next_count(0, self._limit))
            if len(self._counts) > KNOWN_WORKS:
                self._counts.popitem(last=False)
        self._counts.move_to_end(work)
        return self._counts[work]


class _Count:
    """One work: `stored` were delivered when it was last counted, `own` are ours since, and at
    `until` it is counted again."""

    def __init__(self, until: int) -> None:
        self.stored = 0
        self.own: set[UUID] = set()
        self.until = until
        self.spent = False
        self.lock = anyio.Lock()

    @property
    def used(self) -> int:
        return self.stored + len(self.own)

    def has_room(self, handoff_id: UUID) -> bool:
        return handoff_id in self.own or self.used < self.until
