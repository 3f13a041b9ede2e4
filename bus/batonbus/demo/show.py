"""The demo itself: start everything, hand the work over, kill two agents, read what happened."""

import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec import Struct

from batonbus.demo.line import AGENTS, DIAMOND, hand_over, start_example
from batonbus.demo.project import Project, start_project
from batonbus.demo.report import Hop, Report, Run, WorkReport
from batonbus.demo.victims import Victim, Witness
from batonbus.narration import Say, since
from batonbus.rules.chain import OPERATOR
from batonbus.rules.errors import BatonbusError
from batonbus.rules.settings import Settings
from batonbus.run.bus import DEFAULT_FLEET, Bus
from batonbus.run.core import Core, open_core
from batonbus.run.supervisor import local_bus
from batonbus.wire.ledger import Stored
from batonbus.wire.reader import read_to_head
from batonbus.wire.subjects import all_events
from batonbus_agents.example.project import SCRIPT, WORK
from batonbus_schemas import TaskResult
from batonbus_schemas.envelope import ADHOC

SETTINGS = Settings(ack_wait=2.0, heartbeat=0.25, retry_delay=0.5, stop_grace=5.0)
"""Leases shortened: a takeover takes 2 s to look at instead of 30."""

START_TIMEOUT = 30.0
WORK_TIMEOUT = 120.0


class Line(Struct, frozen=True):
    """One of the demo's lines of work: a word for it, and what happens there."""

    name: str
    about: str


LINES: Mapping[str, Line] = {
    ADHOC: Line("contract", "a document goes from coder to reviewer, coder, tester, closer"),
    DIAMOND: Line("diamond", "four tasks: one, two beside each other, one after both"),
    WORK: Line("work", "six tasks mend a small repository: built, verified, committed"),
}
"""By the work that their handoffs carry."""


class DemoError(BatonbusError):
    """The demo did not come to its end."""


async def run_demo(
    folder: Path | None, say: Say, *, script: Path = SCRIPT
) -> tuple[list[Hop], Report]:
    """Run the demo with its store and its repository in `folder` (None: a temporary one); `say` is
    told each step, `script` is what the builders do.

    Raises DemoError where `folder` has a repository already, or the work does not end in time, or
    an ExceptionGroup of Bounced where a handoff ends without a result.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="batonbus-demo-") as name:
            return await run_demo(Path(name), say, script=script)
    repository = folder / "repository"
    if repository.exists():
        raise DemoError(f"{repository} is there already: name a new folder, or delete this one")
    started = time.monotonic()
    _introduce(say)
    say(f"{since(started)}  starting a server, a window manager and a receipt keeper")
    async with (
        local_bus(folder, fleet=DEFAULT_FLEET, settings=SETTINGS, log_level="ERROR") as url,
        open_core(url, OPERATOR, fleet=DEFAULT_FLEET) as core,
        start_example(url) as example,
        start_project(repository, script, url, DEFAULT_FLEET) as project,
        Bus(url, actor="demo") as bus,
    ):
        await _wait_for_agents(core, len(AGENTS) + project.agents, say, started)
        before = await core.ledger.last_sequence()
        async with _witnessed(core, say, started, [example.victim(), project.victim()]):
            work = await _run_both(bus, project)
        events: list[Stored] = []
        await read_to_head(core.ledger, events.append, before + 1, headers_only=False)
        run = Run(events)
        hops = run.hops()
        closed = await _close(project, work)
    return hops, run.report(hops, closed, time.monotonic() - started)


def _introduce(say: Say) -> None:
    say("Three lines of work on one bus; two agents are killed in the middle of theirs.")
    for line in LINES.values():
        say(f"  {line.name:<8}  {line.about}")
    say("")


async def _run_both(bus: Bus, project: Project) -> TaskResult:
    results: list[TaskResult] = []

    async def run_project() -> None:
        results.append(await project.run(bus))

    with anyio.move_on_after(WORK_TIMEOUT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_project)
            await hand_over(bus)
        return results[0]
    raise DemoError(f"the work did not end within {WORK_TIMEOUT:g} s")


async def _close(project: Project, result: TaskResult) -> WorkReport:
    return WorkReport(
        tasks=len(result.verification),
        failed=tuple(it.name for it in result.verification if it.status != "PASS"),
        commits=await project.commits(),
        repository=str(project.folder),
        tests_pass=await project.tests_pass(),
    )


@asynccontextmanager
async def _witnessed(
    core: Core, say: Say, started: float, victims: list[Victim]
) -> AsyncGenerator[None]:
    """Tell each event while the block runs, and kill the victims."""
    names = {work: line.name for work, line in LINES.items()}
    async with anyio.create_task_group() as tasks:
        witness = Witness(say, started, names, tasks, victims)
        await core.ledger.listen(all_events(core.fleet), witness.hear)
        yield
        tasks.cancel_scope.cancel()


async def _wait_for_agents(core: Core, count: int, say: Say, started: float) -> None:
    """Until all agents are there; tells of each one that comes."""
    present: set[str] = set()
    with anyio.move_on_after(START_TIMEOUT):
        while len(present) < count:
            found = {it.card.id for it in await core.registry.list()}
            if new := sorted(found - present):
                present |= found
                ready = f"{len(present)} of {count} agents are ready"
                say(f"{since(started)}  {ready}: {', '.join(new)}")
            await anyio.sleep(0.05)
        return
    raise DemoError(
        f"{count - len(present)} of {count} agents did not start within {START_TIMEOUT:g} s; "
        f"present: {', '.join(sorted(present)) or 'nobody'}"
    )
