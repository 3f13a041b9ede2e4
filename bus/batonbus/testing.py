"""A bus for tests: the real server on a temporary folder, with window manager and keeper."""

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from batonbus.rules.chain import RECEIPT_KEEPER, WINDOW_MANAGER
from batonbus.rules.settings import Settings
from batonbus.run.agent import Agent
from batonbus.run.bus import DEFAULT_FLEET, Bus
from batonbus.run.core import open_core
from batonbus.run.receipt_keeper import ReceiptKeeper
from batonbus.run.window_manager import WindowManager
from batonbus.wire.server import EmbeddedServer, embedded_server

FAST = Settings(
    receipt_timeout=2.0,
    ack_wait=1.0,
    heartbeat=0.2,
    give_up_after=5.0,
    retry_delay=0.05,
    stop_grace=5.0,
)
"""The fleet's numbers, shortened so that a test need not wait for them."""


class TestBus(Bus):
    """`async with TestBus(reviewer) as bus:` starts the real server (it listens after 0.05 s), runs
    the agents, and is a Bus. Nothing is left behind."""

    __test__ = False  # no test class for pytest

    def __init__(self, *agents: Agent, settings: Settings = FAST) -> None:
        super().__init__("", actor="test")
        self._agents = agents
        self._settings = settings
        self._all = AsyncExitStack()
        self._server: EmbeddedServer | None = None

    @property
    def server(self) -> EmbeddedServer:
        """The running server. Raises RuntimeError outside of the `async with` block."""
        if self._server is None:
            raise RuntimeError("the server is not running: use `async with TestBus(agent) as bus`")
        return self._server

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            store = stack.enter_context(tempfile.TemporaryDirectory(prefix="batonbus-"))
            self._server = await stack.enter_async_context(embedded_server(Path(store)))
            self._url = self._server.url
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(run_window_manager, self._url, DEFAULT_FLEET, self._settings)
            tasks.start_soon(run_receipt_keeper, self._url, DEFAULT_FLEET, self._settings)
            for agent in self._agents:
                tasks.start_soon(self.run, agent)
            await super().__aenter__()
            stack.push_async_exit(super().__aexit__)
            self._all = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if not isinstance(error, anyio.get_cancelled_exc_class()):
            # A failed assertion comes out as it is, not in the groups of our tasks.
            kind = error = trace = None
        return await self._all.__aexit__(kind, error, trace)


async def run_window_manager(url: str, fleet: str, settings: Settings | None = None) -> None:
    """A window manager on a connection of its own, until cancelled."""
    async with open_core(url, WINDOW_MANAGER, fleet=fleet, settings=settings) as core:
        await WindowManager(core).run()


async def run_receipt_keeper(url: str, fleet: str, settings: Settings | None = None) -> None:
    """A receipt keeper on a connection of its own, until cancelled."""
    async with open_core(url, RECEIPT_KEEPER, fleet=fleet, settings=settings) as core:
        await ReceiptKeeper(core).run()
