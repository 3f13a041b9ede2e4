"""Looks at the registry that the handoffs of a window manager share, and the questions of a keeper:
who listens, in one listing for all that came before it began."""

import time
from collections.abc import Mapping

import anyio
from msgspec import Struct

from batonbus.logs import log
from batonbus.rules.errors import BatonbusError
from batonbus.rules.gate import judge_card
from batonbus.rules.receipts import by_name
from batonbus.run.changes import Changes
from batonbus.run.core import Core
from batonbus_schemas import Presence

INTERVAL = 0.01
"""Seconds after a listing that several shared: all handoffs that come meanwhile share the next. One
that comes alone is kept waiting by nothing."""

RETRY_INTERVAL = 0.2
"""Seconds after a listing that failed."""


class Listing(Struct, frozen=True):
    """The live agents, by each name under which they listen, and the monotonic moment at which they
    were asked for."""

    agents: Mapping[str, list[Presence]]
    began: float

    def listening(self, addressee: str) -> list[Presence]:
        """The agents that listen as a role, or under an id."""
        return self.agents.get(addressee, [])


class _Batch:
    """Those who wait for one listing, which begins after all of them came."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.listing: Listing | None = None
        self.waiting = 0


class Listings:
    """See the module."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next: _Batch | None = None
        self._asked = Changes()
        self.newest: Listing | None = None
        """The last one that was made."""

    async def run(self) -> None:
        """List whenever somebody asks. Never returns."""
        while True:
            while self._next is None:
                await self._asked.wait()
            batch, self._next = self._next, None
            began = time.monotonic()
            try:
                agents = await self._core.registry.list()
            except BatonbusError as error:
                log.warning("registry.unread", error=str(error))
            else:
                policy = self._core.policy
                judged = [judge_card(it, policy) for it in agents]
                self.newest = batch.listing = Listing(by_name(judged), began)
            batch.done.set()
            if batch.listing is None:
                await anyio.sleep(RETRY_INTERVAL)
            elif batch.waiting > 1:
                await anyio.sleep(INTERVAL)

    async def fresh(self) -> Listing:
        """A listing that begins after this call, however long the registry is away."""
        while True:
            if self._next is None:
                self._next = _Batch()
                self._asked.tell()
            batch = self._next
            batch.waiting += 1
            await batch.done.wait()
            if batch.listing is not None:
                return batch.listing
