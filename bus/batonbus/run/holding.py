"""The bus's side of the context gate: what may not be delivered now is held, and waits here.

A held handoff stays the window manager's: its message is kept, in ledger order by addressee, and
given again to a window manager after this one's end. Whoever comes for an addressee for whom
something waits, waits behind it.
"""

import bisect
import time
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from batonbus.rules.receipts import why_all_closed
from batonbus.run.arrivals import Arrival
from batonbus.run.changes import Changes
from batonbus.run.core import Core
from batonbus.run.listings import Listings
from batonbus.wire.feed import Received
from batonbus.wire.streams import MANAGER_ACK_WAIT

RETRY_INTERVAL = 0.2
"""Seconds between two looks at what is held."""


class Waiting(Struct, eq=False):
    """A handoff that is held: its message, and under which reason it was held last."""

    received: Received
    arrival: Arrival
    trace: dict[str, str]
    reason: str = ""

    @property
    def place(self) -> int:
        """Where it stands in the ledger."""
        return self.arrival.source.event.sequence


Deliver = Callable[[Waiting], Awaitable[None]]
"""Delivers a held handoff and acknowledges its message."""

Tell = Callable[[Waiting], Awaitable[None]]
"""Stores that a handoff is held, and why."""


class Holding:
    """What is held for closed agents, by addressee."""

    def __init__(self, core: Core, listings: Listings) -> None:
        self._core = core
        self._listings = listings
        self._queues: dict[str, list[Waiting]] = {}
        self._told: dict[str, float] = {}
        self._opening: set[str] = set()
        self._kept = Changes()

    async def why(self, addressee: str) -> str:
        """Why a handoff that comes now is not delivered; empty where it is."""
        listing = await self._listings.fresh()
        # No pause from here until `keep`: else one might pass another that came before it.
        queue = self._queues.get(addressee)
        return queue[0].reason if queue else why_all_closed(listing.listening(addressee))

    def keep(self, waiting: Waiting) -> bool:
        """Keep a handoff until its addressee opens. False where that is just opening: then it only
        waits its turn."""
        addressee = waiting.arrival.addressee
        queue = self._queues.setdefault(addressee, [])
        if not queue:
            self._told[addressee] = time.monotonic()
        # The server may give it to us again: the newer message is the one to acknowledge.
        queue[:] = [it for it in queue if it.place != waiting.place]
        bisect.insort(queue, waiting, key=lambda it: it.place)
        self._kept.tell()
        return addressee not in self._opening

    def drop(self, waiting: Waiting) -> None:
        """It waits here no more."""
        queue = self._queues.get(waiting.arrival.addressee, [])
        if waiting in queue:
            queue.remove(waiting)

    async def run(self, deliver: Deliver, tell: Tell) -> None:
        """Keep what waits, and deliver it in order when the gate opens. Never returns."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_alive)
            while True:
                self._queues = {it: queue for it, queue in self._queues.items() if queue}
                self._told = {it: self._told[it] for it in self._queues}
                while not self._queues:
                    await self._kept.wait()
                async with anyio.create_task_group() as looks:
                    for addressee in self._queues:
                        looks.start_soon(self._look_again, addressee, deliver, tell)
                await anyio.sleep(RETRY_INTERVAL)

    async def _look_again(self, addressee: str, deliver: Deliver, tell: Tell) -> None:
        queue = self._queues[addressee]
        while queue:
            waiting = list(queue)
            agents = (await self._listings.fresh()).listening(addressee)
            if closed := why_all_closed(agents):
                await self._tell_again(addressee, closed, tell)
                return
            if not agents and not self._knows_who_is_gone():
                return
            self._opening.add(addressee)
            try:
                for it in waiting:
                    # Dropped afterwards: what comes meanwhile finds that somebody is before it.
                    await deliver(it)
                    self.drop(it)
            finally:
                self._opening.discard(addressee)

    def _knows_who_is_gone(self) -> bool:
        """After an outage the registry is empty though all agents live."""
        return self._core.connection.connected_for >= self._core.settings.trust_after

    async def _tell_again(self, addressee: str, reason: str, tell: Tell) -> None:
        """Say a new reason, at most once in a presence."""
        now = time.monotonic()
        if now - self._told[addressee] < self._core.settings.presence_timeout:
            return
        self._told[addressee] = now
        for waiting in [it for it in self._queues[addressee] if it.reason != reason]:
            waiting.reason = reason
            await tell(waiting)

    async def _keep_alive(self) -> None:
        interval = min(self._core.settings.ack_wait, MANAGER_ACK_WAIT) / 3
        while True:
            await anyio.sleep(interval)
            for queue in list(self._queues.values()):
                for waiting in list(queue):
                    await waiting.received.in_progress()
