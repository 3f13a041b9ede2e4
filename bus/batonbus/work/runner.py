"""One run of a work: a bus, the fleet's processes, one handoff to whoever starts, a result."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec import Struct

from batonbus.narration import Narrator, Say
from batonbus.rules.chain import OPERATOR
from batonbus.rules.errors import Bounced
from batonbus.run.bus import Bus, sender_key
from batonbus.run.core import Core, open_core
from batonbus.run.history import read_line
from batonbus.run.supervisor import supervise
from batonbus.wire.subjects import all_events
from batonbus.work.cancelling import cancel_work
from batonbus.work.site import Site, WorkError, only_run, open_bus
from batonbus_agents.dispatches import recall_dispatch, schedule_dispatch, skipped, stage_dispatch
from batonbus_agents.modes import mode_problem
from batonbus_agents.routes import ROLES, STAGES, STARTS, Role
from batonbus_agents.workshop import Workshop, now
from batonbus_schemas import Body, Dispatch, TaskResult

RUNNER = "work-runner"

TITLE_LIMIT = 80
"""Characters of a request's first line that become its work's title."""


class Crew(Struct, frozen=True, kw_only=True):
    """How the fleet of a run is made up: the runtime of each role, the environment variables that
    their commands see, builders, whom to tell."""

    runtimes: Mapping[Role, str] = {}
    variables: tuple[str, ...] = ()
    builders: int = 2
    on_done: str = ""


class Started(Struct, frozen=True, kw_only=True):
    """What a run begins with."""

    to: str
    body: Body
    task: str | None = None

    @property
    def roles(self) -> tuple[Role, ...]:
        """Who is needed to bring it to its end."""
        mode = self.body.execution_mode if isinstance(self.body, Dispatch) else "full"
        if self.to == "scheduler":
            return "scheduler", *STAGES["full"]
        return STAGES[mode] if self.to in STAGES[mode] else ROLES


class Run(Struct, frozen=True, kw_only=True):
    """A run of a work: what it was begun with (None: it is a new one), and its result if it is over
    and nothing is left to do."""

    number: int
    started: Started | None = None
    result: TaskResult | None = None


async def begin(workshop: Workshop, work: str) -> Started:
    """Who starts a planned work, with what. Raises Refuse, WorkError."""
    _, plan = workshop.read(work)
    if problem := mode_problem(plan):
        raise WorkError(f"{work} cannot run: {problem}")
    committed = await workshop.repository.commits_of(work)
    if plan.mode == "full":
        body = schedule_dispatch(work, plan.goal or plan.title, committed)
        return Started(to=STARTS["full"], body=body)
    task = workshop.task(work, plan.tasks[0].id)
    if commit := committed.get(task.id):
        body = recall_dispatch(task, skipped(task.id, commit))
        return Started(to="committer", body=body, task=task.id)
    return Started(to=STARTS[plan.mode], body=stage_dispatch(task, "builder"), task=task.id)


async def run_work(site: Site, work: str, crew: Crew, say: Say) -> TaskResult:
    """Run a planned work to its end, or go on with a run that was interrupted.

    Raises Bounced where the run ended without a result, Refuse, WorkError, RepositoryError.
    """
    planned = (site.workshop.folder(work).path / "PLAN.md").is_file()
    # Without a plan it can only be a request that was interrupted.
    new = await begin(site.workshop, work) if planned else None
    async with _scene(site) as (core, address):
        run = await find_run(core, work, complete=await _is_complete(site.workshop, work))
        if run.result is not None:
            return run.result
        started = run.started or new or await begin(site.workshop, work)
        if run.started is None:
            await cancel_work(core, work, f"run {run.number} begins")
        say(f"{work}: run {run.number} {'goes on' if run.started else 'begins'}")
        await _narrate(core, work, say)
        async with start_crew(site.folder, started.roles, crew, address, site.fleet):
            ended = await _hand_over(site, address, work, run.number, started)
    return _result(ended)


async def request_work(site: Site, text: str, crew: Crew, say: Say) -> TaskResult:
    """Let the specifier make a work of a request, and run it in the mode that it turns out to need.

    Raises as `run_work`.
    """
    if not text.strip():
        raise WorkError("the request is blank: say what is wanted")
    async with _scene(site) as (core, address):
        title = text.strip().splitlines()[0][:TITLE_LIMIT]
        work = site.workshop.works.new_work(title, now().date()).work
        started = Started(to="specifier", body=Dispatch(brief=text, action="route", title=title))
        say(f"{work}: requested")
        await _narrate(core, work, say)
        async with start_crew(site.folder, started.roles, crew, address, site.fleet):
            ended = await _hand_over(site, address, work, 1, started)
    return _result(ended)


@asynccontextmanager
async def _scene(site: Site) -> AsyncGenerator[tuple[Core, str]]:
    """The site for one run alone, with its bus and the bus's address."""
    with only_run(site):
        async with (
            open_bus(site) as address,
            open_core(address, OPERATOR, fleet=site.fleet) as core,
        ):
            yield core, address


async def _narrate(core: Core, work: str, say: Say) -> None:
    await core.ledger.listen(all_events(core.fleet), Narrator(say, work=work).hear)


async def _hand_over(
    site: Site, address: str, work: str, number: int, started: Started
) -> TaskResult | Bounced:
    """What comes of a run; a value, for what is raised here comes out in the groups of others."""
    async with Bus(address, actor=RUNNER, fleet=site.fleet) as bus:
        key = run_key(work, number)
        sent = await bus.send(started.to, started.body, key=key, work=work, task=started.task)
        try:
            return await sent.result()
        except Bounced as error:
            return error


def _result(ended: TaskResult | Bounced) -> TaskResult:
    if isinstance(ended, Bounced):
        raise ended
    return ended


def run_key(work: str, number: int) -> str:
    """The key of a run's first handoff."""
    return f"{work}/run/{number}"


async def find_run(core: Core, work: str, *, complete: bool) -> Run:
    """The run to go on with; a new one where the newest has ended without success, or the plan has
    grown since (the work is not `complete`)."""
    number = 1
    while line := await read_line(core.ledger, sender_key(RUNNER, run_key(work, number))):
        first, last = line[0].envelope, line[-1]
        if first and not last.chain.final:
            started = Started(to=first.to, body=first.body, task=first.task)
            return Run(number=number, started=started)
        result = last.settlement.result if last.settlement else None
        if complete and result is not None and result.status == "PASS":
            return Run(number=number, result=result)
        number += 1
    return Run(number=number)


async def _is_complete(workshop: Workshop, work: str) -> bool:
    plan = workshop.folder(work).read().value.plan
    return plan is not None and await workshop.is_committed(work, plan)


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
