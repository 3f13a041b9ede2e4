"""What the fleet reads of a work, and what it does not mind."""

from datetime import UTC

import pytest
from git_project import TASK, WORK, Project
from work_bench import Job, builder, open_workshop, run_fleet, write_work

from batonbus import Refuse
from batonbus_agents.works.handoff import StageContext
from batonbus_agents.works.result import Result
from batonbus_agents.workshop import now
from batonbus_schemas import ContextHandoff

ONE = {TASK: Job(("new.txt",))}

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TASK-01_progress.md", "- Status: DREAMING\n"),
        ("TASK-01_result.md", "# TASK-02 Result\n\n## Context Handoff\n"),
        ("TASK-01_result.md", b"\xff\xfe"),
        ("TASK-07_progress.md", "- Status: PENDING\n"),
        ("execution-log.md", "### no moment at all\n"),
    ],
)
async def test_a_status_file_that_cannot_be_read_stops_no_run(
    project: Project, name: str, text: str | bytes
) -> None:
    folder = write_work(project, ONE)
    (folder.path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    assert folder.read().problems
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    assert list(workshop.tasks(WORK)) == [TASK]


async def test_a_run_writes_a_broken_progress_file_anew(project: Project) -> None:
    folder = write_work(project, ONE)
    (folder.path / "TASK-01_progress.md").write_text("- Status: DREAMING\n")
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    assert (await run_fleet(workshop)).status == "PASS"
    assert folder.read().whole().task(TASK).status == "DONE"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("PLAN.md", "# Nothing\n", "PLAN.md:1"),
        ("TASK-01.md", "# TASK-01: x\n\n## Files\n\n- `../x` — CREATE\n", "leaves the project"),
        ("TASK-1.md", "# TASK-01: x\n", "write TASK-01"),
        ("Requirement.md", "# Something else\n", "Requirement.md:1"),
    ],
)
async def test_what_a_person_wrote_and_cannot_be_read_is_refused_with_its_line(
    project: Project, name: str, text: str, reason: str
) -> None:
    folder = write_work(project, ONE)
    (folder.path / name).write_text(text)
    workshop = await open_workshop(project)
    with pytest.raises(Refuse, match="WORK-01 cannot be read") as refused:
        workshop.tasks(WORK)
    assert reason in str(refused.value)


async def test_a_task_without_a_file_of_its_own_is_what_the_plan_says(project: Project) -> None:
    folder = write_work(project, ONE)
    (folder.path / "TASK-01.md").unlink()
    task = (await open_workshop(project)).task(WORK, TASK)
    assert (task.title, task.declared) == ("Do TASK-01", ("new.txt",))


async def test_the_files_of_a_task_are_those_of_its_own_file(project: Project) -> None:
    folder = write_work(project, ONE)
    spec = folder.path / "TASK-01.md"
    spec.write_text(spec.read_text().replace("new.txt", "other.txt"))
    assert (await open_workshop(project)).task(WORK, TASK).declared == ("other.txt",)


async def test_a_context_is_kept_whole_until_the_next_one(project: Project) -> None:
    workshop = await open_workshop(project)
    assert workshop.read_context(WORK, TASK) is None
    for what in ("First.", "Second.\nWith two lines."):
        context = ContextHandoff(what=what, why="w", caution="c", incomplete="i")
        workshop.note_context(WORK, TASK, context)
        assert workshop.read_context(WORK, TASK) == context
    assert project.status() == ""


async def test_contexts_go_with_the_plan_that_they_belong_to(project: Project) -> None:
    folder = write_work(project, ONE)
    workshop = await open_workshop(project)
    plan = workshop.read(WORK)[1]
    done = ContextHandoff(what="Done.")
    for task in (TASK, "TASK-99"):
        workshop.note_context(WORK, task, done)
    workshop.forget_contexts(plan)
    # Its committer ended before the result file was written: run again, it needs it.
    assert workshop.read_context(WORK, TASK) == done
    folder.write_result(Result(task=TASK, contexts=(StageContext(role="builder", handoff=done),)))
    workshop.forget_contexts(plan)
    assert workshop.read_context(WORK, TASK) is None
    assert workshop.read_context(WORK, "TASK-99") is not None
    (project.path / ".batonbus/contexts" / WORK / "TASK-99.json").unlink()
    workshop.forget_contexts(plan)
    assert not (project.path / ".batonbus/contexts" / WORK).exists()


def test_now_is_in_utc_and_in_whole_seconds() -> None:
    moment = now()
    assert moment.tzinfo is UTC
    assert moment.microsecond == 0
