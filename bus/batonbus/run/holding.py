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

from batonbus.logs import log
from batonbus.rules.errors import BatonbusError
from batonbus.rules.receipts import why_all_closed
from batonbus.run.arrivals import Arrival
from batonbus.run.changes import Changes
from batonbus.run.core import Core
from batonbus.wire.feed import Received
from batonbus.wire.topology import MANAGER_ACK_WAIT
from batonbus_schemas import Presence

LOOK_INTERVAL = 0.005
"""Seconds between two looks at the registry: all handoffs that come meanwhile share the next."""

RETRY_INTERVAL = 0.2
"""Seconds between two looks at what is held."""


class Batch:
    """Handoffs that share one look, which begins after all of them came."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.agents: list[Presence] | None = None
        self._found: dict[str, Door] = {}

    def door_of(self, addressee: str) -> "Door":
        """What was seen of an addressee."""
        if addressee not in self._found:
            agents = of_addressee(self.agents or [], addressee)
            self._found[addressee] = Door(why_all_closed(agents), bool(agents))
        return self._found[addressee]


class Door(Struct, frozen=True):
    """Why all live agents of an addressee are closed (empty where one is open, or none is there),
    and whether any is there."""

    closed: str
    has_agents: bool


class Doors:
    """Who is closed, by looks at the registry that many share."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next: Batch | None = None
        self._asked = Changes()

    async def run(self) -> None:
        """Look whenever somebody asks. Never returns."""
        while True:
            while self._next is None:
                await self._asked.wait()
            batch, self._next = self._next, None
            try:
                batch.agents = await self._core.registry.list()
            except BatonbusError as error:
                log.warning("registry.unread", error=str(error))
            batch.done.set()
            await anyio.sleep(LOOK_INTERVAL)

    async def look(self, addressee: str) -> Door:
        """By a look that begins after this call."""
        while True:
            if self._next is None:
                self._next = Batch()
                self._asked.tell()
            batch = self._next
            await batch.done.wait()
            if batch.agents is not None:
                return batch.door_of(addressee)


def of_addressee(agents: list[Presence], addressee: str) -> list[Presence]:
    """The agents that listen as a role, or under an id."""
    return [it for it in agents if addressee in {it.card.role, it.card.id}]


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

    def __init__(self, core: Core) -> None:
        self._core = core
        self._doors = Doors(core)
        self._queues: dict[str, list[Waiting]] = {}
        self._told: dict[str, float] = {}
        self._opening: set[str] = set()
        self._kept = Changes()

    async def why(self, addressee: str) -> str:
        """Why a handoff that comes now is not delivered; empty where it is."""
        door = await self._doors.look(addressee)
        # No pause from here until `keep`: else one might pass another that came before it.
        queue = self._queues.get(addressee)
        return queue[0].reason if queue else door.closed

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
            tasks.start_soon(self._doors.run)
            tasks.start_soon(self._keep_alive)
            while True:
                self._queues = {it: queue for it, queue in self._queues.items() if queue}
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
            door = await self._doors.look(addressee)
            if door.closed:
                await self._tell_again(addressee, door.closed, tell)
                return
            if not door.has_agents and not self._knows_who_is_gone():
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
