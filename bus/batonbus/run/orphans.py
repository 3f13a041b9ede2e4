"""A keeper's part that ends what nobody needs any more, whether or not its asker lives."""

from uuid import UUID

from batonbus.logs import log
from batonbus.rules.chain import RECEIPT_KEEPER, Chain, Event
from batonbus.rules.orphans import Families, Orphan
from batonbus.run.cancellation import cancelled
from batonbus.run.changes import Changes
from batonbus.run.core import Core
from batonbus.wire.publisher import LostRaceError


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
        ledger = self._core.ledger
        seed = Chain(id=orphan.chain.id, work=orphan.chain.work, waiter=orphan.chain.waiter)
        while not (chain := await ledger.read_folded(seed)).final:
            draft = cancelled(self._core.fleet, chain, by=RECEIPT_KEEPER, reason=orphan.reason)
            try:
                await ledger.append(draft, tail=chain.tail)
            except LostRaceError:
                continue
            log.info("handoff.cancelled", handoff=str(chain.id), reason=orphan.reason)
            break
        self._ended.add(orphan.chain.id)
