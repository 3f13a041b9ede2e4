"""Runs of a work: which one to go on with, what a new one begins with."""

import anyio
import pytest
from git_project import TASK, WORK, Project
from run_bench import operator, runner, start_run
from work_bench import (
    CHAIN,
    Job,
    Player,
    builder,
    bus_with,
    deliveries,
    fleet,
    open_workshop,
    raises,
    run,
    window,
    write_work,
)

from batonbus import Bounced
from batonbus.work.runner import (
    Crew,
    Run,
    Started,
    agent_command,
    begin,
    find_run,
    request_work,
)
from batonbus.work.site import Site, WorkError
from batonbus_agents.fleet import make_agent
from batonbus_agents.routes import Mode
from batonbus_agents.runtimes import Assignment
from batonbus_schemas import Dispatch, TaskResult

ONE = {TASK: Job(("one.txt",))}
TWO = {TASK: Job(("one.txt",)), "TASK-02": Job(("two.txt",), (TASK,))}

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("mode", "to", "roles"),
    [
        ("direct", "builder", {"builder", "committer"}),
        ("pipeline", "builder", {"builder", "verifier", "committer"}),
        ("full", "scheduler", {"scheduler", "builder", "verifier", "committer"}),
    ],
)
async def test_a_run_begins_with_whoever_starts_its_mode_and_needs_no_more_roles(
    project: Project, mode: Mode, to: str, roles: set[str]
) -> None:
    write_work(project, ONE, mode)
    started = await begin(await open_workshop(project), WORK)
    assert (started.to, started.task) == (to, None if mode == "full" else TASK)
    assert set(started.roles) == roles
    assert isinstance(started.body, Dispatch)
    assert started.body.execution_mode == mode


async def test_a_request_needs_all_roles() -> None:
    started = Started(to="specifier", body=Dispatch(brief="x"))
    assert len(started.roles) == 6


@pytest.mark.parametrize("mode", ["direct", "pipeline"])
async def test_a_plan_of_several_tasks_runs_in_full_mode_only(project: Project, mode: Mode) -> None:
    write_work(project, CHAIN, mode)
    with pytest.raises(WorkError, match="Execution-Mode: full"):
        await begin(await open_workshop(project), WORK)


@pytest.mark.parametrize("mode", ["direct", "pipeline", "full"])
async def test_what_is_committed_is_not_built_again_by_a_new_run(
    project: Project, mode: Mode
) -> None:
    write_work(project, ONE, mode)
    player = builder(ONE)
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop) as bus:
        await run(bus, workshop)
        result = await run(bus, workshop)
    assert result.status == "PASS"
    assert player.attempts == [(TASK, 1)]
    assert project.log() == ["first", "TASK-01: Do TASK-01"]


async def test_a_run_that_is_open_is_gone_on_with_as_it_was_begun(project: Project) -> None:
    folder = write_work(project, TWO)
    workshop = await open_workshop(project)
    async with bus_with() as bus, operator(bus) as core, runner(bus) as sender:
        assert await find_run(core, WORK, complete=False) == Run(number=1)
        started = await begin(workshop, WORK)
        await start_run(sender, workshop)
        # The plan is another one meanwhile: a run keeps what it was asked.
        plan = folder.path / "PLAN.md"
        plan.write_text(plan.read_text().replace("Work under test", "Renamed"))
        found = await find_run(core, WORK, complete=False)
        assert (found.number, found.started, found.result) == (1, started, None)
        sent = await start_run(sender, workshop, found.number, found.started)
        assert await find_run(core, "WORK-02", complete=False) == Run(number=1)
        assert (await sent.receipt()).state == "overdue"


async def test_a_run_that_has_passed_is_over_until_the_plan_grows(project: Project) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    async with fleet(workshop) as bus, operator(bus) as core, runner(bus) as sender:
        result = await (await start_run(sender, workshop)).result()
        found = await find_run(core, WORK, complete=True)
        assert (found.number, found.result) == (1, result)
        assert await find_run(core, WORK, complete=False) == Run(number=2)


async def test_after_a_failure_a_new_run_does_the_rest_with_the_context_of_what_is_done(
    project: Project,
) -> None:
    write_work(project, CHAIN)
    broken = {("TASK-03", attempt): raises(ValueError("no")) for attempt in (1, 2, 3)}
    player = builder(CHAIN, broken)
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop) as bus, operator(bus) as core, runner(bus) as sender:
        assert (await (await start_run(sender, workshop)).result()).status == "FAIL"
        assert await find_run(core, WORK, complete=False) == Run(number=2)
        before = len(await deliveries(bus))
        broken.clear()
        assert (await (await start_run(sender, workshop, 2)).result()).status == "PASS"
        asked = (await deliveries(bus))[before:]
    roles = [(it.envelope.to, it.envelope.task) for it in asked]
    assert roles == [
        ("scheduler", None),
        ("committer", "TASK-01"),
        ("committer", "TASK-02"),
        ("builder", "TASK-03"),
        ("verifier", "TASK-03"),
        ("committer", "TASK-03"),
    ]
    assert window(asked[3]) == [
        ("committer", "TASK-02", "FULL"),
        ("committer", "TASK-01", "SUMMARY"),
    ]
    assert asked[3].window[0].why == "TASK-02 asks for it."
    assert project.log() == ["first", *(f"{task}: Do {task}" for task in CHAIN)]


async def test_a_plan_that_changes_under_a_scheduler_that_dies_ends_the_run_with_the_reason(
    project: Project,
) -> None:
    folder = write_work(project, TWO)
    working = anyio.Event()

    async def work(_: Assignment) -> TaskResult:
        working.set()
        await anyio.sleep_forever()
        raise AssertionError

    workshop = await open_workshop(project, {"builder": Player(work)})
    async with (
        fleet(workshop, ("builder",)) as bus,
        runner(bus) as sender,
        anyio.create_task_group() as tasks,
    ):
        sent = await start_run(sender, workshop)
        with anyio.CancelScope() as scope:
            tasks.start_soon(_cancel_when, working, scope)
            await bus.run(make_agent("scheduler", workshop))
        task = folder.path / "TASK-01.md"
        task.write_text(task.read_text().replace("one.txt", "other.txt"))
        tasks.start_soon(bus.run, make_agent("scheduler", workshop))
        with pytest.raises(Bounced, match="has changed since this run asked for TASK-01/builder/1"):
            await sent.result()
        tasks.cancel_scope.cancel()


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def test_a_blank_request_is_refused_before_anything_is_made(project: Project) -> None:
    site = Site(workshop=await open_workshop(project), fleet="default")
    with pytest.raises(WorkError, match="the request is blank"):
        await request_work(site, " \n", Crew(), lambda _: None)
    assert not (project.path / "works").exists()


def test_an_agent_of_the_crew_is_told_its_runtime_and_whom_to_tell(project: Project) -> None:
    crew = Crew(runtimes={"builder": "command:x y"}, variables=("KEY",), on_done="tell me")
    command = agent_command(project.path, "builder", "builder-1", crew)
    assert command[command.index("work") :] == [
        *("work", "agent", "builder", "--repo", str(project.path), "--id", "builder-1"),
        *("--runtime", "builder=command:x y", "--env", "KEY", "--on-done", "tell me"),
    ]
    assert "--runtime" not in agent_command(project.path, "verifier", "verifier-1", crew)
