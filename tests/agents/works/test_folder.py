import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from batonbus_agents.works import folder as works_folder
from batonbus_agents.works.execution_log import LogEntry, read_log
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.folder import WorkFolder, WorksRoot
from batonbus_agents.works.handoff import StageContext
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.problems import WorksFileError
from batonbus_agents.works.progress import Progress
from batonbus_agents.works.requirement import Requirement
from batonbus_agents.works.result import Result
from batonbus_agents.works.task import TaskSpec
from batonbus_schemas.context import ContextHandoff

DAY = date(2026, 7, 24)
REQUIREMENT = Requirement(work="WORK-07", request="Read tables.")
PLAN = Plan(
    work="WORK-07",
    title="A parser",
    language="ko",
    tasks=(
        PlanTask(id="TASK-00", title="lex"),
        PlanTask(id="TASK-01", title="read", depends_on=("TASK-00",)),
    ),
)
SPEC = TaskSpec(id="TASK-00", title="lex", work="WORK-07: A parser", depends_on=())
PROGRESS = Progress(task="TASK-00", status="COMPLETED", files=(FileEntry("a.py", "CREATE"),))
RESULT = Result(
    task="TASK-00",
    work="WORK-07 — A parser",
    contexts=(StageContext(role="builder", handoff=ContextHandoff(what="Wrote it.")),),
)
ENTRY = LogEntry(
    written=datetime(2026, 7, 24, tzinfo=UTC),
    phase="plan",
    did="planned",
    checks="none yet",
    next="TASK-00",
    context="cleared",
)


@pytest.fixture
def folder(tmp_path: Path) -> WorkFolder:
    path = tmp_path / "WORK-07"
    path.mkdir()
    return WorkFolder(path)


def told(folder: WorkFolder) -> list[str]:
    return [str(problem) for problem in folder.read().problems if not problem.warning]


@pytest.mark.anyio
async def test_what_is_written_into_a_folder_is_read_as_one_value(folder: WorkFolder) -> None:
    folder.create_requirement(REQUIREMENT, "ko")
    folder.create_plan(PLAN)
    folder.create_task(SPEC, "ko")
    folder.write_progress(PROGRESS)
    folder.write_result(RESULT, "ko")
    await add(folder, ENTRY)
    work = folder.read().whole()
    assert (work.requirement, work.plan, work.log) == (REQUIREMENT, PLAN, (ENTRY,))
    (task,) = work.tasks
    assert (task.spec, task.progress, task.result) == (SPEC, PROGRESS, RESULT)
    assert [work.task(it).status for it in ("TASK-00", "TASK-01")] == ["DONE", "PENDING"]
    assert sorted(it.name for it in folder.path.iterdir()) == [
        *("PLAN.md", "Requirement.md", "TASK-00.md", "TASK-00_progress.md", "TASK-00_result.md"),
        "execution-log.md",
    ]


def test_what_a_person_wrote_is_never_rewritten(folder: WorkFolder) -> None:
    for name in ("Requirement.md", "PLAN.md", "TASK-00.md"):
        (folder.path / name).write_text("mine")
    for create in (
        lambda: folder.create_requirement(REQUIREMENT),
        lambda: folder.create_plan(PLAN),
        lambda: folder.create_task(SPEC),
    ):
        with pytest.raises(FileExistsError):
            create()
    assert {it.name: it.read_text() for it in folder.path.iterdir()} == {
        "Requirement.md": "mine",
        "PLAN.md": "mine",
        "TASK-00.md": "mine",
    }


def test_a_status_file_that_was_deleted_comes_back_equal(folder: WorkFolder) -> None:
    folder.write_progress(PROGRESS)
    path = folder.path / "TASK-00_progress.md"
    before = path.read_bytes()
    path.unlink()
    folder.write_progress(PROGRESS)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_leaves_the_one_before(folder: WorkFolder) -> None:
    folder.write_progress(PROGRESS)
    broken = Progress(task="TASK-00", files=(FileEntry("lone \udc80"),))
    with pytest.raises(ValueError, match="unprintable"):
        folder.write_progress(broken)
    assert folder.progress("TASK-00").whole() == PROGRESS
    assert [it.name for it in folder.path.iterdir()] == ["TASK-00_progress.md"]


async def add(folder: WorkFolder, entry: LogEntry) -> None:
    """Add an entry, also where it is there already."""
    await folder.keep_in_log(entry, lambda _other: False)


@pytest.mark.anyio
async def test_entries_are_added_to_a_log_as_it_stands(folder: WorkFolder) -> None:
    path = folder.path / "execution-log.md"
    path.write_text("# My log\n\nA word before.\n\n\n")
    await add(folder, ENTRY)
    await add(folder, ENTRY)
    assert path.read_text().startswith("# My log\n\nA word before.\n\n### 2026-07-24T00:00:00Z")
    assert read_log(path.read_text()).whole() == (ENTRY, ENTRY)


@pytest.mark.anyio
async def test_an_entry_that_is_there_is_not_added_again(folder: WorkFolder) -> None:
    other = replace(ENTRY, summary="another")
    for _ in range(2):
        assert await folder.keep_in_log(ENTRY, ENTRY.__eq__) == ENTRY
        assert await folder.keep_in_log(other, other.__eq__) == other
    assert folder.log() == (ENTRY, other)


@pytest.mark.anyio
async def test_an_entry_that_cannot_be_read_back_is_told(folder: WorkFolder) -> None:
    (folder.path / "execution-log.md").write_text("```\nnever closed\n")
    assert await folder.keep_in_log(ENTRY, ENTRY.__eq__) is None


def test_of_many_writers_at_once_each_finds_its_entry_in_the_log(folder: WorkFolder) -> None:
    entries = [replace(ENTRY, summary=f"number {number}") for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda it: anyio.run(add, folder, it), entries))
    assert sorted(it.summary for it in folder.log()) == sorted(it.summary for it in entries)


@pytest.fixture
def other_writer(folder: WorkFolder) -> Iterator[int]:
    """Another process that writes into a work's log."""
    writer = os.open(folder.path, os.O_RDONLY)
    fcntl.flock(writer, fcntl.LOCK_EX)
    yield writer
    os.close(writer)


@pytest.mark.anyio
async def test_who_waits_for_the_log_goes_on_with_everything_else(
    folder: WorkFolder, other_writer: int
) -> None:
    """Its heartbeats, for one: an agent that stands still is called gone."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add, folder, ENTRY)
            for _ in range(10):
                await anyio.sleep(0.01)
            assert folder.log() == ()
            fcntl.flock(other_writer, fcntl.LOCK_UN)
    assert folder.log() == (ENTRY,)


@pytest.mark.anyio
@pytest.mark.usefixtures("other_writer")
async def test_who_waits_for_the_log_too_long_says_so_and_writes_nothing(
    folder: WorkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works_folder, "LOCK_WAIT", 0.1)
    with pytest.raises(TimeoutError, match=r"another process .* for 0\.1 s"):
        await add(folder, ENTRY)
    assert folder.log() == ()


def test_one_file_of_a_task_is_read_by_itself(folder: WorkFolder) -> None:
    assert folder.progress("TASK-00").whole() is None
    assert folder.result("TASK-00").whole() is None
    folder.write_result(RESULT)
    (folder.path / "TASK-00_progress.md").write_text("- Status: almost\n")
    assert folder.result("TASK-00").whole() == RESULT
    with pytest.raises(WorksFileError, match=r"WORK-07/TASK-00_progress\.md:1: 'Status: almost'"):
        folder.progress("TASK-00").whole()


def test_the_old_layout_is_read_and_the_new_one_written(folder: WorkFolder) -> None:
    old = folder.path / "WORK-07-TASK-00-result.md"
    old.write_text("# WORK-07-TASK-00 Result\n\n> Status: **DONE**\n")
    (folder.path / "WORK-07-TASK-00.md").write_text("# WORK-07-TASK-00: lex\n")
    assert folder.read().value.task("TASK-00").status == "DONE"
    folder.write_result(RESULT)
    assert sorted(it.name for it in folder.path.iterdir()) == [
        *("TASK-00_result.md", "WORK-07-TASK-00.md")
    ]
    assert folder.result("TASK-00").whole() == RESULT


def test_two_files_for_one_task_are_refused_naming_both(folder: WorkFolder) -> None:
    folder.create_plan(PLAN)
    folder.write_result(RESULT)
    (folder.path / "WORK-07-TASK-00-result.md").write_text("# WORK-07-TASK-00 Result\n")
    assert told(folder) == [
        "WORK-07/TASK-00_result.md:1: TASK-00_result.md and WORK-07-TASK-00-result.md "
        "are both the result of TASK-00: keep one"
    ]


@pytest.mark.parametrize("name", ["TASK-1.md", "task-01.md", "TASK-01.claimed-2.md", "TASK-001.md"])
def test_a_file_with_another_spelling_of_a_task_is_refused(folder: WorkFolder, name: str) -> None:
    folder.create_plan(PLAN)
    (folder.path / name).write_text("# TASK-01: read\n")
    (problem,) = told(folder)
    assert problem.startswith(f"WORK-07/{name}:1: ")


def test_a_file_that_is_not_utf8_is_refused(folder: WorkFolder) -> None:
    (folder.path / "PLAN.md").write_bytes(b"# WORK-07: \xff\n")
    assert told(folder) == ["WORK-07/PLAN.md:1: is not UTF-8 at byte 11"]


def test_files_that_contradict_each_other_are_refused(folder: WorkFolder) -> None:
    folder.create_plan(PLAN)
    (folder.path / "TASK-00.md").write_text("# TASK-00: lex\n\n## Dependencies\n- TASK-01\n")
    (folder.path / "TASK-01.md").write_text("# TASK-00: lex\n\n## WORK\nWORK-08: Another\n")
    (folder.path / "TASK-05_progress.md").write_text("# TASK-05 Progress\n- Status: PENDING\n")
    assert told(folder) == [
        "WORK-07/TASK-00.md:1: needs TASK-01, and by PLAN.md nothing: make them agree",
        "WORK-07/TASK-01.md:1: is of WORK-08 and stands in WORK-07",
        "WORK-07/TASK-01.md:1: says that it is of TASK-00: name and heading must agree",
        "WORK-07/TASK-05_progress.md:1: PLAN.md names no TASK-05",
    ]


def test_a_work_with_two_titles_is_warned_of(folder: WorkFolder) -> None:
    folder.create_plan(PLAN)
    folder.write_result(Result(task="TASK-00", work="WORK-07 — Another thing"))
    assert [str(it) for it in folder.read().problems if it.warning][-1] == (
        "WORK-07/TASK-00_result.md:1: warning: calls the work 'Another thing', "
        "and PLAN.md calls it 'A parser'"
    )


def test_a_new_work_takes_the_next_id_of_list_and_folders(tmp_path: Path) -> None:
    root = WorksRoot(tmp_path / "works")
    first = root.new_work("One", DAY)
    (root.path / "_COMPLETED" / "WORK-31").mkdir(parents=True)
    second = root.new_work("Two", DAY)
    assert (first.work, second.work) == ("WORK-01", "WORK-32")
    works = root.read_list().whole()
    assert (works.last, [it.status for it in works.works]) == ("WORK-32", ["IN_PROGRESS"] * 2)


@pytest.mark.anyio
async def test_a_completed_work_is_put_away_and_its_id_stays_taken(tmp_path: Path) -> None:
    root = WorksRoot(tmp_path)
    work = root.new_work("One", DAY).work
    await root.set_status(work, "DONE", DAY)
    await root.set_status(work, "COMPLETED", DAY)
    assert root.folder(work).path == tmp_path / "_COMPLETED" / work
    assert root.read_list().whole().works == ()
    assert root.new_work("Two", DAY).work == "WORK-02"


def test_a_list_that_cannot_be_read_is_not_written_over(tmp_path: Path) -> None:
    text = "LAST_WORK_ID: WORK-01\n\n| WORK | Status |\n|---|---|\n| WORK-01 | LOST |\n"
    (tmp_path / "WORK-LIST.md").write_text(text)
    with pytest.raises(WorksFileError, match="LOST"):
        WorksRoot(tmp_path).new_work("Two", DAY)
    assert [it.name for it in tmp_path.iterdir()] == ["WORK-LIST.md"]


def test_works_that_are_taken_at_the_same_time_are_all_in_the_list(tmp_path: Path) -> None:
    root = WorksRoot(tmp_path)
    with ThreadPoolExecutor(max_workers=8) as pool:
        folders = list(pool.map(lambda n: root.new_work(f"work {n}", date(2026, 7, 1)), range(8)))
    listed = {entry.work for entry in root.read_list().whole().works}
    assert listed == {folder.work for folder in folders}
    assert len(listed) == 8
