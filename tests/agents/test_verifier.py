"""The verifier: checks decide, and a runtime may only object."""

import pytest
from git_project import TASK, WORK, Project
from work_bench import (
    Job,
    Player,
    builder,
    bus_with,
    fleet,
    open_workshop,
    run,
    says,
    write,
    write_work,
    writes,
)

from batonbus_agents.builder import make_builder
from batonbus_agents.dispatches import stage_dispatch
from batonbus_agents.runtimes import Assignment, Runtime
from batonbus_agents.verifier import make_verifier, summarize
from batonbus_schemas import Check, TaskResult

PASSES = {TASK: Job(("new.txt",), verify=("grep TASK-01 new.txt",))}
FAILS = {TASK: Job(("new.txt",), verify=("echo looked; grep nothing new.txt",))}

pytestmark = pytest.mark.anyio


async def verify(
    project: Project, jobs: dict[str, Job], runtime: Runtime | None = None
) -> TaskResult:
    """What the verifier answers to what a builder left."""
    runtimes: dict[str, Runtime] = {"builder": builder(jobs)}
    if runtime is not None:
        runtimes["verifier"] = runtime
    workshop = await open_workshop(project, runtimes)  # type: ignore[arg-type]
    task = workshop.task(WORK, TASK)
    async with bus_with(make_builder(workshop), make_verifier(workshop)) as bus:
        body = stage_dispatch(task, "builder")
        await (await bus.send("builder", body, work=WORK, task=TASK)).result()
        body = stage_dispatch(task, "verifier")
        return await (await bus.send("verifier", body, work=WORK, task=TASK)).result()


async def test_checks_are_really_run_and_their_output_is_recorded(project: Project) -> None:
    write_work(project, PASSES)
    result = await verify(project, PASSES)
    assert result.status == "PASS"
    checks = {it.name: it for it in result.verification}
    assert list(checks) == ["progress", "build", "lint", "tests", "verify", "files"]
    assert [checks[it].status for it in checks] == ["PASS", "N/A", "N/A", "N/A", "PASS", "PASS"]
    assert "grep TASK-01 new.txt" in checks["verify"].output
    assert checks["verify"].output.endswith("TASK-01")
    assert result.context_handoff is not None
    assert "3 checks of TASK-01 passed" in result.context_handoff.what
    assert "no command for build; no command for lint" in result.context_handoff.caution


async def test_a_runtime_cannot_turn_a_failed_check_around_and_is_not_even_asked(
    project: Project,
) -> None:
    write_work(project, FAILS)
    player = Player(says(TaskResult.passed("All is well.")))
    result = await verify(project, FAILS, player)
    assert result.status == "FAIL"
    assert result.summary == "verify failed: looked"
    assert player.given == []


async def test_a_runtime_may_object_to_what_passes_its_checks(project: Project) -> None:
    write_work(project, PASSES)
    player = Player(says(TaskResult.failed("The name is misleading.")))
    result = await verify(project, PASSES, player)
    assert (result.status, result.summary) == ("FAIL", "The name is misleading.")
    assert [it.name for it in result.verification][-1] == "files"
    assert "- verify: PASS" in player.given[0].text
    assert "## Context from earlier steps" not in player.given[0].text


async def test_what_a_verifier_edits_is_in_no_commit(project: Project) -> None:
    write_work(project, PASSES)

    def edit(assignment: Assignment) -> TaskResult:
        assert (assignment.cwd / f"works/{WORK}/TASK-01.md").is_file()
        write(assignment.cwd, {"new.txt": "by the verifier\n", "stray.txt": "x\n"})
        return TaskResult.passed("Mended it myself.")

    runtimes: dict[str, Runtime] = {"builder": builder(PASSES), "verifier": Player(edit)}
    workshop = await open_workshop(project, runtimes)  # type: ignore[arg-type]
    async with fleet(workshop) as bus:
        assert (await run(bus, workshop)).status == "PASS"
    assert project.show("new.txt") == "TASK-01"
    assert project.changed() == ["new.txt"]


async def test_a_check_that_prints_very_much_kills_nothing(project: Project) -> None:
    jobs = {TASK: Job(("new.txt",), verify=("seq 100000",))}
    write_work(project, jobs)
    result = await verify(project, jobs)
    assert result.status == "PASS"
    assert "characters left out here" in result.verification[4].output


@pytest.mark.parametrize("mode", ["pipeline", "full"])
async def test_the_third_fail_of_the_verifier_ends_the_task_in_every_mode(
    project: Project, mode: str
) -> None:
    write_work(project, FAILS, mode)  # type: ignore[arg-type]
    player = Player(writes({"new.txt": "x\n"}))
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
    assert result.status == "FAIL"
    assert "verify failed: looked" in result.summary
    assert player.attempts == [(TASK, 1), (TASK, 2), (TASK, 3)]
    assert project.log() == ["first"]


@pytest.mark.parametrize("statuses", [[], ["N/A"], ["N/A", "N/A"]])
async def test_nothing_that_could_be_checked_is_a_fail(
    project: Project, statuses: list[str]
) -> None:
    write_work(project, PASSES)
    task = (await open_workshop(project)).task(WORK, TASK)
    checks = tuple(Check(name="build", status=it) for it in statuses)  # type: ignore[arg-type]
    result = summarize(task, checks)
    assert (result.status, result.summary) == ("FAIL", "Nothing could be checked.")
