"""A real bus in processes that can be killed, stopped and watched, all on 127.0.0.1.

Each program is started again when it dies, as a supervisor does; none outlives its block, for each
is ended by its own pid, and by the kernel where this process itself is killed.
"""

import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import anyio
import failpoints
import fault_agents
from anyio.abc import TaskGroup

from batonbus import Settings
from batonbus.rules.chain import OPERATOR, RECEIPT_KEEPER, WINDOW_MANAGER
from batonbus.run.core import Core, open_core
from batonbus.wire.ledger import Stored
from batonbus.wire.processes import start_child, stop_child
from batonbus.wire.server import EmbeddedServer, free_port

HERE = Path(__file__).parent
FLEET = "faults"
SERVER = "server"
RESTART_DELAY = 0.05

WITH_FAILPOINTS = (str(HERE / "failpoints.py"),)
"""A launcher."""

FAST = Settings(
    receipt_timeout=3.0,
    ack_wait=1.5,
    heartbeat=0.2,
    give_up_after=60.0,
    retry_delay=0.05,
    stop_grace=5.0,
)
"""A takeover takes seconds, nothing is given up on."""


class Program:
    """One program, started again whenever it dies, until it ends by itself with exit code 0."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self._process: Process | None = None
        self._began = 0.0
        self._log_start = 0
        self.codes: list[int] = []

    @property
    def pid(self) -> int:
        """Its process id; 0 between two lives."""
        return self._process.pid if self._process else 0

    @property
    def alive_for(self) -> float:
        """Seconds since its process was started; 0 between two lives, and while it is stopped."""
        if self._process is None or self._process.returncode is not None:
            return 0.0
        stopped = is_stopped(self._process.pid)
        return 0.0 if stopped else time.monotonic() - self._began

    def logged(self, event: str) -> int:
        """How often it logged this event, in all its lives."""
        return self._log.read_text().count(f'"message":"{event}"')

    def is_up(self, event: str) -> bool:
        """Whether it logged this event, which ends its start, in its present life."""
        if not self.alive_for:
            return False
        return f'"message":"{event}"'.encode() in self._log.read_bytes()[self._log_start :]

    @property
    def done(self) -> bool:
        """Whether it ended by itself, and well."""
        return 0 in self.codes

    def send_signal(self, number: signal.Signals) -> bool:
        """Send a signal to the living process; False between two lives."""
        if self._process is None or self._process.returncode is not None:
            return False
        self._process.send_signal(number)
        return True

    async def run(self) -> None:
        """Keep it running."""
        while not self.done:
            with self._log.open("ab") as log:
                self._began, self._log_start = time.monotonic(), log.tell()
                self._process = await start_child(
                    self._command, env=self._environment, cwd=HERE, stdout=log, stderr=log
                )
            try:
                self.codes.append(await self._process.wait())
            finally:
                # At the end of a block nobody waits for a program's last words.
                await stop_child(self._process, grace=0)
                self._process = None
            await anyio.sleep(RESTART_DELAY)


class FaultBus:
    """The running server, and the programs on it by name.

    `launcher` stands before the command of each program that is started, and `urls` say by which
    other address a program reaches the server.
    """

    def __init__(self, folder: Path, server: EmbeddedServer, core: Core, tasks: TaskGroup) -> None:
        self._folder = folder
        self.launcher: tuple[str, ...] = ()
        self.urls: dict[str, str] = {}
        self._tasks = tasks
        self.server = server
        self.core = core
        self.programs: dict[str, Program] = {}
        self._supervision = anyio.CancelScope()
        self._outage_over = anyio.Event()

    def start(self, name: str, *command: str, **variables: str) -> Program:
        """A Python program of this fleet: `python COMMAND`."""
        armed = self._armed(name)
        armed.mkdir(parents=True)
        environment = {
            **os.environ,
            "BATONBUS_URL": self.urls.get(name, self.server.url),
            "BATONBUS_FLEET": FLEET,
            "BATONBUS_LOG_LEVEL": "INFO",
            "BATONBUS_LOG_FORMAT": "json",
            fault_agents.EFFECTS: str(self._folder / "effects"),
            fault_agents.ACKNOWLEDGED: str(self._folder / "acknowledged-in-handlers"),
            failpoints.ARMED: str(armed),
            failpoints.FIRED: str(self._folder / "fired"),
            **variables,
        }
        log = self._folder / f"{name}.log"
        program = Program([sys.executable, *self.launcher, *command], environment, log)
        self.programs[name] = program
        self._tasks.start_soon(program.run)
        return program

    def start_parts(self, *, each: int = 1) -> None:
        """Window managers and receipt keepers."""
        for part in (WINDOW_MANAGER, RECEIPT_KEEPER):
            for number in range(each):
                self.start(f"{part}-{number}", *part_command(part))

    async def start_agents(self, *names: str) -> None:
        """Agents of `fault_agents`, by their names there; returns when the fleet knows them."""
        for name in names:
            self.start(name, *agent_command(name))
        await self.wait_for_agents(*names)

    def of_agent(self, actor: str) -> Program:
        """The program of an agent."""
        return self.programs[actor.replace("-", "_")]

    async def supervise_server(self) -> None:
        """Keep the server running, but for outages."""
        while True:
            with anyio.CancelScope() as self._supervision:
                await self.server.supervise()
            await self._outage_over.wait()

    @asynccontextmanager
    async def outage(self, *, hangs_for: float = 0) -> AsyncGenerator[None]:
        """The server stays away while the block runs: it hangs for so many seconds, in which all
        that is written to it is lost, then it is killed with -9."""
        self._outage_over = anyio.Event()
        self._supervision.cancel()
        os.kill(self.server.pid, signal.SIGSTOP)
        await anyio.sleep(hangs_for)
        self.kill(SERVER)
        yield
        self._outage_over.set()

    def kill(self, name: str) -> bool:
        """Kill a program, or the server, with -9; False where it does not live at this moment."""
        if name != SERVER:
            return self.programs[name].send_signal(signal.SIGKILL)
        pid = self.server.pid
        if pid == 0:  # between two lives; to signal it would hit our own process group
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def arm(self, name: str, step: str, action: str) -> None:
        """Arm a step of a program that runs with failpoints."""
        folder = self._armed(name)
        whole = folder / ".new"
        whole.write_text(action)
        whole.rename(folder / step)

    def disarm(self, name: str) -> None:
        """Disarm all steps of a program."""
        for step in self._armed(name).glob("[!.]*"):
            step.unlink(missing_ok=True)

    def fired(self) -> list[tuple[str, str, str]]:
        """The program, the step and the action of each failpoint that was reached when armed."""
        log = self._folder / "fired"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(name, step, action) for name, step, action in (it.split(" ", 2) for it in lines)]

    def _armed(self, name: str) -> Path:
        return self._folder / "armed" / name

    def effects(self) -> list[tuple[UUID, int]]:
        """Each effect that an agent had: the handoff, and the accepted event that it was under."""
        log = self._folder / "effects"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(UUID(handoff), int(accepted)) for handoff, accepted, _ in map(str.split, lines)]

    def effect_count(self) -> Counter[UUID]:
        """How often each handoff had its effect."""
        return Counter(handoff for handoff, _ in self.effects())

    async def wait_for_agents(self, *names: str) -> None:
        """Until these agents are in the registry."""
        ids = {name.replace("_", "-") for name in names}

        async def present() -> bool:
            return ids <= {it.card.id for it in await self.core.registry.list()}

        await wait_until(present, "the agents did not start", limit=20)

    async def chain(self, handoff_id: UUID) -> list[Stored]:
        """All events of a handoff."""
        return await self.core.ledger.read_chain(handoff_id)

    async def wait_for_event(
        self, handoff_id: UUID, kind: str, *, count: int = 1, limit: float = 20
    ) -> Stored:
        """Until the handoff has that many events of a kind; returns the last one of them."""
        found: list[Stored] = []

        async def there() -> bool:
            found[:] = [it for it in await self.chain(handoff_id) if it.event.kind == kind]
            return len(found) >= count

        await wait_until(there, f"no {kind} of {handoff_id}", limit=limit)
        return found[-1]


def is_stopped(pid: int) -> bool:
    """Whether a process stands still by SIGSTOP."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
    except OSError:
        return False


def part_command(part: str) -> list[str]:
    """What `python` runs as a window manager or receipt keeper."""
    return ["-m", "batonbus", "run", part]


def agent_command(name: str) -> list[str]:
    """What `python` runs as an agent of `fault_agents`."""
    return ["-m", "batonbus", "agent", f"{fault_agents.__name__}:{name}"]


async def wait_until(fact: Callable[[], Awaitable[bool]], otherwise: str, *, limit: float) -> None:
    """Wait for a fact, at most `limit` seconds."""
    until = time.monotonic() + limit
    while not await fact():
        assert time.monotonic() < until, f"{otherwise} within {limit:g} s"
        await anyio.sleep(0.02)


@asynccontextmanager
async def fault_bus(folder: Path, settings: Settings = FAST) -> AsyncGenerator[FaultBus]:
    """A supervised server with its store in `folder` and its settings stored; nothing else runs."""
    server = EmbeddedServer(folder / "store", free_port())
    await server.start()
    try:
        async with (
            open_core(server.url, OPERATOR, fleet=FLEET, settings=settings) as core,
            anyio.create_task_group() as tasks,
        ):
            bus = FaultBus(folder, server, core, tasks)
            tasks.start_soon(bus.supervise_server)
            try:
                yield bus
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop()
