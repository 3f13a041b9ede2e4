"""One run of a work: a bus, the fleet's processes, one handoff to whoever starts, a result."""

import fcntl
import os
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from batonbus.narration import Narrator, Say
from batonbus.rules.chain import OPERATOR
from batonbus.rules.errors import BatonbusError
from batonbus.rules.settings import Settings
from batonbus.run.bus import Bus, sender_key
from batonbus.run.core import Core, open_core
from batonbus.run.discovery import STATE_FOLDER, address_file
from batonbus.run.history import History, read_line
from batonbus.run.supervisor import local_bus, supervise
from batonbus.wire.subjects import all_events
from batonbus_agents.dispatches import schedule_dispatch, stage_dispatch
from batonbus_agents.modes import mode_problem
from batonbus_agents.repository import Repository
from batonbus_agents.routes import ROLES, STAGES, STARTS, Role
from batonbus_agents.workshop import Workshop, now
from batonbus_schemas import Body, Dispatch, TaskResult

RUNNER = "work-runner"

TITLE_LIMIT = 80
"""Characters of a request's first line that become its work's title."""


class WorkError(BatonbusError):
    """A work cannot be run."""


class Site(Struct, frozen=True, kw_only=True):
    """Where a work runs: the repository, and the bus. `url` None is the bus that is up in its
    folder, or one that is started for the run, with these `settings`."""

    folder: Path
    fleet: str
    url: str | None = None
    settings: Settings | None = None


class Crew(Struct, frozen=True, kw_only=True):
    """How the fleet of a run is made up: the runtime of each role, the environment variables that
    their commands see, builders, whom to tell."""

    runtimes: Mapping[Role, str] = {}
    variables: tuple[str, ...] = ()
    builders: int = 2
    on_done: str = ""


class Started(Struct, frozen=True, kw_only=True):
    """What a run begins with."""

    to: Role
    body: Body
    task: str | None = None


async def begin(workshop: Workshop, work: str) -> Started:
    """Who starts a planned work, with what. Raises Refuse, WorkError."""
    _, plan = workshop.read(work)
    if problem := mode_problem(plan):
        raise WorkError(f"{work} cannot run: {problem}")
    if plan.mode == "full":
        committed = await workshop.repository.commits_of(work)
        return Started(
            to=STARTS["full"], body=schedule_dispatch(work, plan.goal or plan.title, committed)
        )
    if not plan.tasks:
        raise WorkError(f"{work} cannot run: its plan has no tasks")
    task = workshop.task(work, plan.tasks[0].id)
    return Started(to=STARTS[plan.mode], body=stage_dispatch(task, "builder"), task=task.id)


async def run_work(site: Site, work: str, crew: Crew, say: Say) -> TaskResult:
    """Run a planned work to its end, or go on with a run that was interrupted.

    Raises Bounced where the run ended without a result, Refuse, WorkError, RepositoryError.
    """
    workshop = Workshop(repository=await Repository.open(site.folder))
    started = await begin(workshop, work)
    _, plan = workshop.read(work)
    stages = STAGES[plan.mode]
    roles = stages if started.to in stages else (started.to, *stages)
    async with _scene(site, roles, crew) as (core, address):
        number, body = await find_run(core, work, complete=await _complete(workshop, work))
        say(f"{work}: run {number} {'goes on' if body else 'begins'}, {plan.mode} mode")
        key = run_key(work, number)
        started = replace(started, body=body or started.body)
        return await _hand_over(core, address, work, key, started, say)


async def request_work(site: Site, text: str, crew: Crew, say: Say) -> TaskResult:
    """Let the specifier make a work of a request, and run it in the mode that it turns out to need.

    Raises as `run_work`.
    """
    workshop = Workshop(repository=await Repository.open(site.folder))
    title = text.strip().splitlines()[0][:TITLE_LIMIT]
    work = workshop.works.new_work(title, now().date()).work
    started = Started(to="specifier", body=Dispatch(brief=text, action="route", title=title))
    async with _scene(site, ROLES, crew) as (core, address):
        say(f"{work}: requested")
        return await _hand_over(core, address, work, run_key(work, 1), started, say)


@asynccontextmanager
async def _scene(site: Site, roles: Sequence[Role], crew: Crew) -> AsyncGenerator[tuple[Core, str]]:
    """A bus with its address, and the roles' processes, for one run."""
    with only_run(site.folder):
        async with (
            _bus(site) as address,
            open_core(address, OPERATOR, fleet=site.fleet) as core,
            start_crew(site.folder, roles, crew, address, site.fleet),
        ):
            yield core, address


async def _hand_over(
    core: Core, address: str, work: str, key: str, started: Started, say: Say
) -> TaskResult:
    narrator = Narrator(say, work=work)
    await core.ledger.listen(all_events(core.fleet), narrator.hear)
    async with Bus(address, actor=RUNNER, fleet=core.fleet) as bus:
        sent = await bus.send(started.to, started.body, key=key, work=work, task=started.task)
        return await sent.result()


def run_key(work: str, number: int) -> str:
    """The key of a run's first handoff."""
    return f"{work}/run/{number}"


async def find_run(core: Core, work: str, *, complete: bool) -> tuple[int, Body | None]:
    """The run to go on with, and what it was begun with; None where it is a new one, because the
    newest has ended without success, or the plan has grown since (the work is not `complete`)."""
    number = 1
    while True:
        line = await read_line(core.ledger, sender_key(RUNNER, run_key(work, number)))
        if not line:
            return number, None
        if not line[-1].chain.final or (complete and _passed(line[-1])):
            return number, line[0].envelope.body if line[0].envelope else None
        number += 1


def _passed(last: History) -> bool:
    return last.settlement is not None and last.settlement.result.status == "PASS"


async def _complete(workshop: Workshop, work: str) -> bool:
    """Whether every task of the plan is committed."""
    _, plan = workshop.read(work)
    committed = await workshop.repository.commits_of(work)
    return all(task.id in committed for task in plan.tasks)


@contextmanager
def only_run(repository: Path) -> Generator[None]:
    """One run at a time in a repository: its agents have fixed ids. Raises WorkError."""
    folder = repository / STATE_FOLDER
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    with (folder / "work.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkError(
                f"a work runs in {repository} already: wait for it, or stop it"
            ) from None
        yield


@asynccontextmanager
async def _bus(site: Site) -> AsyncGenerator[str]:
    """The address of the site's bus."""
    if site.url is not None:
        yield site.url
    elif address_file(site.folder).exists():
        yield address_file(site.folder).read_text().strip()
    else:
        async with local_bus(
            site.folder, fleet=site.fleet, settings=site.settings, log_level="WARNING"
        ) as address:
            yield address


@asynccontextmanager
async def start_crew(
    repository: Path, roles: Sequence[Role], crew: Crew, url: str, fleet: str
) -> AsyncGenerator[dict[str, int]]:
    """The roles as processes, each started again when it dies, until the block ends; gives their
    process ids by name, as they are at any moment."""
    pids: dict[str, int] = {}
    environment = {**os.environ, "BATONBUS_URL": url, "BATONBUS_FLEET": fleet}
    environment.setdefault("BATONBUS_LOG_LEVEL", "WARNING")
    async with anyio.create_task_group() as tasks:
        for role in roles:
            for number in range(1, (crew.builders if role == "builder" else 1) + 1):
                name = f"{role}-{number}"
                command = agent_command(repository, role, name, crew)
                tasks.start_soon(supervise, name, command, environment, pids)
        try:
            yield pids
        finally:
            tasks.cancel_scope.cancel()


def agent_command(repository: Path, role: Role, name: str, crew: Crew) -> list[str]:
    """The command line of one role's process."""
    command = [sys.executable, "-P", "-m", "batonbus", "work", "agent", role]
    command += ["--repo", str(repository), "--id", name]
    if spec := crew.runtimes.get(role):
        command += ["--runtime", f"{role}={spec}"]
        command += [word for it in crew.variables for word in ("--env", it)]
    if crew.on_done:
        command += ["--on-done", crew.on_done]
    return command
