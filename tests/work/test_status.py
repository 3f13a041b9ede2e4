"""How a work is: by its files, its commits, the ledger; and what is written again."""

from pathlib import Path

import anyio
import pytest
from git_project import TASK, WORK, Project
from run_bench import operator, runner, start_run, statuses
from work_bench import (
    CHAIN,
    Job,
    Player,
    builder,
    bus_with,
    fleet,
    open_workshop,
    run,
    says,
    stub,
    write,
    write_work,
)

from batonbus import Bounced
from batonbus.work.cancelling import cancel_work
from batonbus.work.status import survey
from batonbus_agents.fleet import make_agent
from batonbus_agents.routes import Mode
from batonbus_agents.runtimes import Assignment
from batonbus_agents.works.folder import WorkFolder
from batonbus_agents.works.progress import Progress
from batonbus_schemas import TaskResult

ONE = {TASK: Job(("one.txt",))}
TWO = {TASK: Job(("one.txt",)), "TASK-02": Job(("two.txt",), (TASK,))}
FAIL = TaskResult.failed("It does not work.")

pytestmark = pytest.mark.anyio


def status_files(project: Project) -> dict[str, bytes]:
    folder = project.path / "works" / WORK
    found = [*folder.glob("*_progress.md"), *folder.glob("*_result.md")]
    return {it.name: it.read_bytes() for it in found}


async def test_without_a_repository_the_files_speak(tmp_path: Path, project: Project) -> None:
    folder = write_work(project, TWO)
    folder.write_progress(Progress(task=TASK, status="STARTED"))
    elsewhere = tmp_path / "elsewhere" / "works"
    elsewhere.parent.mkdir()
    (project.path / "works").rename(elsewhere)
    (report,) = await survey(elsewhere)
    assert report.work == WORK
    assert [(it.task, it.status) for it in report.tasks] == [
        (TASK, "STARTED"),
        ("TASK-02", "PENDING"),
    ]
    assert not report.refused


async def test_what_cannot_be_read_is_told_with_what_can(project: Project) -> None:
    folder = write_work(project, ONE)
    (folder.path / "TASK-01_progress.md").write_text("- Status: DREAMING\n")
    (report,) = await survey(project.path / "works", await open_workshop(project))
    assert report.refused
    assert "DREAMING" in str(report.problems[0])
    assert [it.task for it in report.tasks] == [TASK]


@pytest.mark.parametrize("mode", ["direct", "pipeline", "full"])
async def test_a_status_file_that_somebody_deletes_comes_back_equal(
    project: Project, mode: Mode
) -> None:
    write_work(project, ONE, mode, language="ko")
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    async with fleet(workshop) as bus, operator(bus) as core:
        assert (await run(bus, workshop)).status == "PASS"
        before = status_files(project)
        assert set(before) == {"TASK-01_progress.md", "TASK-01_result.md"}
        for name in before:
            (project.path / "works" / WORK / name).unlink()
        (report,) = await survey(project.path / "works", workshop, core)
        assert status_files(project) == before
        assert set(report.restored) == set(before)
        (report,) = await survey(project.path / "works", workshop, core)
        assert report.restored == ()
    assert "컨텍스트" in before["TASK-01_result.md"].decode()


async def test_the_progress_of_a_rebuild_that_failed_comes_back_equal(project: Project) -> None:
    jobs = {TASK: Job(("one.txt",), verify=("false",))}
    write_work(project, jobs, "direct")
    workshop = await open_workshop(project, {"builder": builder(jobs)})
    async with fleet(workshop) as bus, operator(bus) as core:
        assert (await run(bus, workshop)).status == "FAIL"
        before = status_files(project)
        (project.path / "works" / WORK / "TASK-01_progress.md").unlink()
        await survey(project.path / "works", workshop, core)
        assert status_files(project) == before


async def test_a_builder_at_work_writes_its_file_itself(project: Project) -> None:
    write_work(project, ONE)
    working, go_on = anyio.Event(), anyio.Event()

    async def work(assignment: Assignment) -> TaskResult:
        working.set()
        await go_on.wait()
        write(assignment.cwd, {"one.txt": "x\n"})
        return TaskResult.passed("Wrote it.")

    workshop = await open_workshop(project, {"builder": Player(work)})
    async with fleet(workshop) as bus, operator(bus) as core, runner(bus) as sender:
        sent = await start_run(sender, workshop)
        await working.wait()
        file = project.path / "works" / WORK / "TASK-01_progress.md"
        file.unlink()
        found = await statuses(core, workshop)
        assert found[TASK].status == "IN_PROGRESS"
        assert found[TASK].stage == "builder accepted"
        assert not file.exists()
        go_on.set()
        assert (await sent.result()).status == "PASS"
        found = await statuses(core, workshop)
    assert found[TASK].status == "DONE"
    assert found[TASK].commit == project.git("rev-parse", "HEAD")
    assert found[TASK].attempts == 1


async def test_after_a_failure_each_task_says_how_it_ended_and_why(project: Project) -> None:
    write_work(project, CHAIN)
    fails = {("TASK-02", attempt): FAIL for attempt in (1, 2, 3)}
    workshop = await open_workshop(project, {"builder": builder(CHAIN)})
    real = [make_agent(role, workshop) for role in ("scheduler", "builder", "committer")]
    agents = [*real, stub("verifier", fails)]
    async with bus_with(*agents) as bus, operator(bus) as core, runner(bus) as sender:
        assert (await (await start_run(sender, workshop)).result()).status == "FAIL"
        found = await statuses(core, workshop)
        assert {it: found[it].status for it in CHAIN} == {
            "TASK-01": "DONE",
            "TASK-02": "FAILED",
            "TASK-03": "BLOCKED",
        }
        assert found["TASK-02"].attempts == 3
        assert found["TASK-02"].reason == "verifier, attempt 3: It does not work."
        assert found["TASK-03"].reason == "TASK-02 is FAILED"
        # A new run counts anew.
        fails.clear()
        assert (await (await start_run(sender, workshop, 2)).result()).status == "PASS"
        found = await statuses(core, workshop)
    assert {it.status for it in found.values()} == {"DONE"}
    assert found["TASK-02"].attempts == 1


async def test_between_a_fail_and_the_rebuild_nothing_has_failed(project: Project) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project)
    seen: list[str] = []
    stages = [stub("builder"), stub("verifier", {(TASK, 1): FAIL}), stub("committer")]
    async with (
        bus_with(make_agent("scheduler", workshop), *stages) as bus,
        operator(bus) as core,
        runner(bus) as sender,
        anyio.create_task_group() as tasks,
    ):

        async def watch() -> None:
            while True:
                seen.append((await statuses(core, workshop))[TASK].status)

        tasks.start_soon(watch)
        await (await start_run(sender, workshop)).result()
        tasks.cancel_scope.cancel()
    assert len(seen) > 3
    assert "FAILED" not in seen


async def test_a_work_that_was_cancelled_says_so(project: Project) -> None:
    write_work(project, TWO)
    working = anyio.Event()

    async def work(_: Assignment) -> TaskResult:
        working.set()
        await anyio.sleep_forever()
        raise AssertionError

    workshop = await open_workshop(project, {"builder": Player(work)})
    async with fleet(workshop) as bus, operator(bus) as core, runner(bus) as sender:
        sent = await start_run(sender, workshop)
        await working.wait()
        assert await cancel_work(core, WORK, "not wanted any more") == 2
        with pytest.raises(Bounced, match="not wanted any more"):
            await sent.result()
        found = await statuses(core, workshop)
    assert found[TASK].status == "CANCELLED"
    assert found["TASK-02"].status == "PENDING"


async def test_a_file_of_an_unknown_task_does_no_harm(project: Project) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project, {"builder": Player(says(FAIL))})
    WorkFolder(project.path / "works" / WORK).write_progress(Progress(task="TASK-09"))
    async with fleet(workshop) as bus, operator(bus) as core:
        (report,) = await survey(project.path / "works", workshop, core)
    assert report.refused
    assert [it.task for it in report.tasks] == [TASK]
