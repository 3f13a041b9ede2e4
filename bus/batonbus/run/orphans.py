"""A keeper's part that ends what nobody needs any more, whether or not its asker lives."""

from uuid import UUID

from batonbus.logs import log
from batonbus.rules.chain import RECEIPT_KEEPER, Chain, Event
from batonbus.rules.orphans import Families, Orphan
from batonbus.run.cancellation import cancel_chain
from batonbus.run.changes import Changes
from batonbus.run.core import Core


class Orphans:
    """Cancels what was asked for inside a handler whose handoff was cancelled or is dead, as far as
    it is open: from level to level, for each end that is read makes the next ones orphans."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._families = Families()
        self._ended: set[UUID] = set()
        self._changed = Changes()

    def note(self, chain: Chain, event: Event) -> None:
        """The chain that was just folded up to this event."""
        self._families.note(chain, event.sequence)
        if self._families.orphans:
            self._changed.tell()

    async def run(self) -> None:
        """End them until cancelled. To be started when the ledger was read to its head: what looks
        open before may have ended long ago."""
        while True:
            count = self._changed.count
            for orphan in list(self._families.orphans.values()):
                if orphan.chain.id not in self._ended:
                    await self._end(orphan)
            # What ended is an orphan until its last event comes to us as well.
            self._ended.intersection_update(self._families.orphans)
            await self._changed.wait(since=count)

    async def _end(self, orphan: Orphan) -> None:
        seed = Chain(id=orphan.chain.id, work=orphan.chain.work, waiter=orphan.chain.waiter)
        before = await cancel_chain(self._core, seed, by=RECEIPT_KEEPER, reason=orphan.reason)
        if not before.final:
            log.info("handoff.cancelled", handoff=str(seed.id), reason=orphan.reason)
        self._ended.add(orphan.chain.id)
