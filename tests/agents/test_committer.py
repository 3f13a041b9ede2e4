"""The committer: its gate, its one commit, what it writes down, and whom it tells."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from git_project import TASK, WORK, Project
from work_bench import (
    Job,
    Player,
    Step,
    builder,
    bus_with,
    fleet,
    open_workshop,
    run,
    run_fleet,
    says,
    write_work,
    writes,
)

from batonbus import Bounced
from batonbus_agents.committer import make_committer
from batonbus_agents.dispatches import recall_dispatch, skipped, stage_dispatch
from batonbus_agents.runtimes import Assignment
from batonbus_agents.works.folder import WorkFolder, WorksRoot
from batonbus_agents.works.validation import validate_folder
from batonbus_agents.workshop import Workshop
from batonbus_schemas import TaskResult

ONE = {TASK: Job(("new.txt",))}
TWO = {TASK: Job(("one.txt",)), "TASK-02": Job(("two.txt",), (TASK,))}

pytestmark = pytest.mark.anyio


def folder(project: Project) -> WorkFolder:
    return WorkFolder(project.path / "works" / WORK)


async def commit(workshop: Workshop, task: str = TASK, *, recalled: str = "") -> TaskResult:
    """What the committer answers to a task, asked alone."""
    found = workshop.task(WORK, task)
    body = stage_dispatch(found, "committer")
    if recalled:
        body = recall_dispatch(found, skipped(task, recalled))
    async with bus_with(make_committer(workshop)) as bus:
        return await (await bus.send("committer", body, work=WORK, task=task)).result()


def spoils(change: Callable[[Path], None]) -> Step:
    """A verifier's step that passes, and changes the progress file behind everybody's back."""

    def step(assignment: Assignment) -> TaskResult:
        if assignment.attempt == 1:
            # .batonbus/worktrees/WORK/TASK in the project
            change(assignment.cwd.parents[3] / "works" / WORK / f"{TASK}_progress.md")
        return TaskResult.passed("Looks good.")

    return step


def rewrites(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Path.unlink, "progress.md not found"),
        (rewrites("COMPLETED", "IN_PROGRESS"), "Status is not COMPLETED"),
        (rewrites("  - `new.txt` — CREATE\n", ""), "no files changed"),
    ],
)
async def test_each_reason_of_the_gate_leads_to_a_rebuild_that_is_told_it(
    project: Project, change: Callable[[Path], None], reason: str
) -> None:
    write_work(project, ONE)
    player = builder(ONE)
    workshop = await open_workshop(project, {"builder": player, "verifier": Player(spoils(change))})
    result = await run_fleet(workshop)
    assert result.status == "PASS"
    assert player.attempts == [(TASK, 1), (TASK, 2)]
    assert reason in player.given[1].text
    assert project.log() == ["first", "TASK-01: Do TASK-01"]


async def test_the_commit_and_the_files_of_a_task_agree(project: Project) -> None:
    write_work(project, ONE, title="Count words")
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    await run_fleet(workshop)
    result = folder(project).result(TASK).value
    progress = folder(project).progress(TASK).value
    assert result is not None
    assert progress is not None
    assert result.commit == project.git("rev-parse", "HEAD")
    assert result.work == "WORK-01 — Count words"
    assert result.completed == progress.updated
    assert [it.path for it in result.files] == ["new.txt"]
    assert [(it.role, it.level.value) for it in result.contexts] == [
        ("builder", "FULL"),
        ("verifier", "FULL"),
    ]
    assert result.context_handoff is not None
    assert result.context_handoff.why == "TASK-01 asks for it."
    # The verifier's caution is joined: no command for build and so on.
    assert "TASK-01 is new." in result.context_handoff.caution
    assert "no command for build" in result.context_handoff.caution
    (entry,) = (it for it in folder(project).log() if it.summary == "TASK-01 committed")
    assert entry.next
    message = project.git("log", "-1", "--format=%B")
    assert message.splitlines()[0] == "TASK-01: Do TASK-01"
    assert message.endswith("Batonbus-Task: WORK-01/TASK-01\n") or message.endswith("/TASK-01")
    assert not validate_folder(project.path / "works").refused


async def test_a_work_is_in_progress_until_its_last_task_is_committed_and_leaves_no_work_trees(
    project: Project,
) -> None:
    write_work(project, TWO)
    works = WorksRoot(project.path / "works")
    statuses: list[str] = []

    def look(_: Assignment) -> TaskResult:
        row = works.read_list().value.find(WORK)
        assert row is not None
        statuses.append(row.status)
        return TaskResult.passed("Looks good.")

    workshop = await open_workshop(project, {"builder": builder(TWO), "verifier": Player(look)})
    await run_fleet(workshop)
    assert statuses == ["IN_PROGRESS"] * 2
    row = works.read_list().value.find(WORK)
    assert row is not None
    assert row.status == "DONE"
    assert row.done is not None
    assert project.git("worktree", "list").count("\n") == 0
    refs = project.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/batonbus/")
    assert refs.splitlines() == [f"{task}/commit" for task in TWO]


@pytest.mark.parametrize(
    "text",
    ["no table at all", "| WORK | Title | Status |\n|---|---|---|\n| WORK-1 | x | WHAT |\n", None],
)
async def test_a_list_of_works_that_cannot_be_read_fails_no_task(
    project: Project, text: str | None
) -> None:
    write_work(project, ONE)
    works = project.path / "works" / "WORK-LIST.md"
    works.unlink() if text is None else works.write_text(text)
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    result = await run_fleet(workshop)
    assert result.status == "PASS"
    assert (works.read_text() if works.exists() else None) == text


async def test_edits_of_the_user_are_never_overwritten_and_nothing_is_built_in_vain(
    project: Project,
) -> None:
    write_work(project, {TASK: Job(("a.txt",))})
    project.write({"a.txt": "mine\n"})
    player = Player(writes({"a.txt": "theirs\n"}))
    workshop = await open_workshop(project, {"builder": player})
    result = await run_fleet(workshop)
    assert result.status == "FAIL"
    assert "a.txt" in result.verification[0].output
    assert "commit or undo your edits first" in result.verification[0].output
    assert player.attempts == [(TASK, 1)]
    assert (project.path / "a.txt").read_text() == "mine\n"
    assert project.log() == ["first"]


async def test_a_commit_of_the_user_in_the_same_file_is_built_upon(project: Project) -> None:
    write_work(project, {TASK: Job(("a.txt",))})

    def meddle(assignment: Assignment) -> TaskResult:
        if assignment.attempt == 1:
            project.write({"a.txt": "mine\n"})
            project.commit("mine")
        return TaskResult.passed("Looks good.")

    def add(assignment: Assignment) -> TaskResult:
        before = (assignment.cwd / "a.txt").read_text()
        return writes({"a.txt": f"{before}and theirs\n"})(assignment)  # type: ignore[return-value]

    workshop = await open_workshop(project, {"builder": Player(add), "verifier": Player(meddle)})
    result = await run_fleet(workshop)
    assert result.status == "PASS"
    assert project.log() == ["first", "mine", "TASK-01: Do TASK-01"]
    assert project.show("a.txt") == "mine\nand theirs"


async def test_a_task_that_is_committed_is_found_again_with_its_files_as_they_were(
    project: Project,
) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    await run_fleet(workshop)
    path = folder(project).path
    before = {it.name: it.read_bytes() for it in path.iterdir()}
    tip = project.git("rev-parse", "HEAD")
    result = await commit(workshop, recalled=tip)
    assert (result.status, result.commit) == ("PASS", tip)
    assert [it.path for it in result.files_changed] == ["new.txt"]
    assert result.context_handoff is not None
    assert result.context_handoff.why == "TASK-01 asks for it."
    assert {it.name: it.read_bytes() for it in path.iterdir()} == before
    assert project.git("rev-parse", "HEAD") == tip


async def test_a_clone_knows_what_is_committed_by_the_branch_alone(
    project: Project, tmp_path: Path
) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    await run_fleet(workshop)
    clone = tmp_path / "clone"
    project.git("clone", "-q", str(project.path), str(clone))
    for name in ("PLAN.md", "TASK-01.md"):
        target = clone / "works" / WORK / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((folder(project).path / name).read_bytes())
    there = Workshop(repository=await type(workshop.repository).open(clone))
    result = await commit(there, recalled="of another folder")
    assert (result.status, result.commit) == ("PASS", project.git("rev-parse", "HEAD"))
    assert [it.path for it in result.files_changed] == ["new.txt"]
    written = WorkFolder(clone / "works" / WORK).result(TASK).value
    assert written is not None
    assert written.commit == result.commit


@pytest.mark.parametrize("mode", ["direct", "pipeline", "full"])
async def test_the_callback_hears_of_each_task_once_in_every_mode(
    project: Project, tmp_path: Path, mode: str
) -> None:
    assert mode in {"direct", "pipeline", "full"}
    write_work(project, ONE, mode)  # type: ignore[arg-type]
    heard = tmp_path / "heard"
    program = f"import sys; open({str(heard)!r}, 'a').write(sys.stdin.read() + chr(10))"
    on_done = f'{sys.executable} -c "{program}"'
    workshop = await open_workshop(project, {"builder": builder(ONE)}, on_done)
    async with fleet(workshop) as bus:
        assert (await run(bus, workshop)).status == "PASS"
        # Asked again, the committer finds what it has done, and tells nobody a second time.
        await run(bus, workshop)
    (done,) = [json.loads(line) for line in heard.read_text().splitlines()]
    assert (done["workId"], done["taskId"], done["status"]) == (WORK, TASK, "SUCCESS")
    assert done["commitHash"] == project.git("rev-parse", "HEAD")
    assert done["what"] == "Wrote new.txt in attempt 1."
    assert [it["path"] for it in done["filesChanged"]] == ["new.txt"]
    assert done["timestamp"].endswith("+00:00")


async def test_a_callback_that_fails_fails_nothing(project: Project) -> None:
    write_work(project, ONE, "direct")
    workshop = await open_workshop(project, {"builder": builder(ONE)}, "echo 'unbalanced")
    async with fleet(workshop, ("builder", "committer")) as bus:
        assert (await run(bus, workshop)).status == "PASS"


async def test_nobody_commits_what_was_never_built(project: Project) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project)
    result = await commit(workshop)
    assert (result.status, result.summary) == ("FAIL", "progress.md not found")


async def test_a_fail_of_the_builder_that_says_nothing_usable_still_ends_the_run(
    project: Project,
) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project, {"builder": Player(says(TaskResult(status="FAIL")))})
    result = await run_fleet(workshop)
    assert result.status == "FAIL"
    assert project.log() == ["first"]


@pytest.mark.parametrize("what", ["None", "# Heading\n## Summary\n- **why**: x\n```\nopen"])
async def test_whatever_a_builder_says_its_result_file_can_be_read(
    project: Project, what: str
) -> None:
    write_work(project, TWO)
    said = TaskResult.passed(what, why=what, caution=what, incomplete=what)
    player = Player(
        writes({"one.txt": "1\n"}, said), {("TASK-02", 1): writes({"two.txt": "2\n"}, said)}
    )
    result = await run_fleet(await open_workshop(project, {"builder": player}))
    assert result.status == "PASS", result
    found = folder(project).read()
    assert [it for it in found.problems if not it.warning] == []
    kept = found.value.task(TASK).result
    assert kept is not None
    assert kept.context_handoff is not None


async def test_a_refused_task_names_the_work_that_has_no_plan(project: Project) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project)
    body = stage_dispatch(workshop.task(WORK, TASK), "committer")
    (folder(project).path / "PLAN.md").unlink()
    async with bus_with(make_committer(workshop)) as bus:
        with pytest.raises(Bounced, match="a work needs its plan"):
            await (await bus.send("committer", body, work=WORK, task=TASK)).result()
