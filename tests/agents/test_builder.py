"""The builder: what it works on, from where, and what it answers for."""

from pathlib import Path

import pytest
from git_project import TASK, WORK, Project
from msgspec.structs import replace
from work_bench import (
    Job,
    Player,
    builder,
    bus_with,
    deliveries,
    fleet,
    open_workshop,
    raises,
    run,
    says,
    write,
    write_work,
    writes,
)

from batonbus import Bounced
from batonbus_agents.builder import make_builder
from batonbus_agents.dispatches import stage_dispatch
from batonbus_agents.routes import Mode
from batonbus_agents.runtimes import Assignment
from batonbus_agents.works.folder import WorkFolder
from batonbus_schemas import TaskResult

ONE = {TASK: Job(("a.txt",))}
CHECKED = {TASK: Job(("new.txt",), verify=("grep right new.txt",))}

pytestmark = pytest.mark.anyio


async def build(
    project: Project, player: Player, *, times: int = 1, mode: Mode = "full"
) -> TaskResult:
    """What the builder answers to the task, asked alone."""
    workshop = await open_workshop(project, {"builder": player})
    body = stage_dispatch(workshop.task(WORK, TASK), "builder")
    async with bus_with(make_builder(workshop)) as bus:
        for _ in range(times - 1):
            await (await bus.send("builder", body, work=WORK, task=TASK)).result()
        return await (await bus.send("builder", body, work=WORK, task=TASK)).result()


def folder(project: Project) -> WorkFolder:
    return WorkFolder(project.path / "works" / WORK)


async def test_what_changed_is_told_and_the_progress_file_agrees(project: Project) -> None:
    write_work(project, {TASK: Job(("a.txt", "new/b.txt", "run.sh"))})
    player = Player(writes({"a.txt": "changed\n", "new/b.txt": "new\n"}))
    result = await build(project, player)
    assert result.status == "PASS"
    assert (result.work, result.task, result.agent) == (WORK, TASK, "builder")
    assert [(it.path, it.action) for it in result.files_changed] == [
        ("a.txt", "modified"),
        ("new/b.txt", "created"),
    ]
    progress = folder(project).progress(TASK).value
    assert progress is not None
    assert (progress.status, progress.attempts) == ("COMPLETED", {"builder_attempts": 1})
    assert [(it.path, it.action) for it in progress.files] == [
        ("a.txt", "MODIFY"),
        ("new/b.txt", "CREATE"),
    ]
    assert (progress.started, progress.updated) == (result.started, result.finished)
    # Nothing of it is in the user's own files yet.
    assert project.show("a.txt") == "a"
    assert (project.path / "a.txt").read_text() == "a\n"


async def test_an_edit_that_was_not_declared_is_a_fail_that_names_it(project: Project) -> None:
    write_work(project, ONE)
    result = await build(project, Player(writes({"a.txt": "x\n", "lib/b.txt": "x\n"})))
    assert result.status == "FAIL"
    assert "TASK-01 does not declare: lib/b.txt." in result.summary
    progress = folder(project).progress(TASK).value
    assert progress is not None
    assert progress.status == "IN_PROGRESS"


async def test_a_thousand_edits_that_were_not_declared_are_a_fail_that_fits_a_message(
    project: Project,
) -> None:
    write_work(project, ONE)
    files = {f"node_modules/package-{it:04d}/a-file-with-a-long-name.js": "" for it in range(1_200)}
    result = await build(project, Player(writes(files)))
    assert result.status == "FAIL"
    assert "package-0000" in result.summary
    assert "and 1,180 more" in result.summary
    assert "more files not listed here" in result.notes


async def test_a_file_that_no_works_file_could_name_is_a_fail(project: Project) -> None:
    write_work(project, ONE)
    result = await build(project, Player(writes({"a.txt": "x\n", "odd`name\n.txt": ""})))
    assert result.status == "FAIL"
    assert "odd`name" in result.summary
    progress = folder(project).progress(TASK)
    assert progress.problems == ()


async def test_the_documents_of_the_task_lie_where_its_dispatch_says(project: Project) -> None:
    work = write_work(project, ONE)
    found: dict[str, str] = {}

    def look(assignment: Assignment) -> TaskResult:
        for name in ("PLAN.md", "TASK-01.md", "TASK-01_progress.md", "Requirement.md"):
            path = f"works/{WORK}/{name}"
            found[name] = (assignment.cwd / path).read_text()
            assert path in assignment.text or name in {"PLAN.md", "Requirement.md"}
        write(assignment.cwd, {"a.txt": "x\n"})
        return TaskResult.passed("Wrote a.txt.")

    result = await build(project, Player(look))
    assert result.status == "PASS"
    # They are no change of the task, though they are new in its tree.
    assert [it.path for it in result.files_changed] == ["a.txt"]
    assert found["TASK-01.md"] == (work.path / "TASK-01.md").read_text()
    assert "IN_PROGRESS" in found["TASK-01_progress.md"]


async def test_committed_works_files_are_those_of_now_and_no_change_of_the_task(
    project: Project,
) -> None:
    work = write_work(project, ONE)
    project.commit("the work, as it was")
    task = work.path / "TASK-01.md"
    task.write_text(task.read_text() + "\nOne more word.\n")

    def look(assignment: Assignment) -> TaskResult:
        assert "One more word." in (assignment.cwd / f"works/{WORK}/TASK-01.md").read_text()
        write(assignment.cwd, {"a.txt": "x\n"})
        return TaskResult.passed("Wrote a.txt.")

    result = await build(project, Player(look))
    assert [it.path for it in result.files_changed] == ["a.txt"]


async def test_a_rebuild_goes_on_from_what_the_attempt_before_left(project: Project) -> None:
    write_work(project, CHECKED)
    seen: list[str] = []

    def mend(assignment: Assignment) -> TaskResult:
        seen.append((assignment.cwd / "new.txt").read_text())
        seen.append((assignment.cwd / f"works/{WORK}/TASK-01_progress.md").read_text())
        write(assignment.cwd, {"new.txt": "right\n"})
        return TaskResult.passed("Mended new.txt.")

    player = Player(writes({"new.txt": "wrong\n"}), {(TASK, 2): mend})
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
        rebuild = next(it for it in await deliveries(bus) if it.envelope.attempt == 2)
    assert result.status == "PASS"
    assert player.attempts == [(TASK, 1), (TASK, 2)]
    before, progress = seen
    assert before == "wrong\n"
    # The existing progress file: what was changed so far, and which attempt this is.
    assert "`new.txt` — CREATE" in progress
    assert "builder_attempts: 2" in progress
    assert "verify failed" in rebuild.window[0].what
    assert project.show("new.txt") == "right"


async def test_an_attempt_that_raised_leaves_nothing(project: Project) -> None:
    write_work(project, {TASK: Job(("a.txt", "new.txt"))})

    def half(assignment: Assignment) -> TaskResult:
        write(assignment.cwd, {"new.txt": "half\n", "stray.txt": "half\n"})
        raise ValueError("no")

    result = await build(project, Player(writes({"a.txt": "x\n"}), {(TASK, 1): half}))
    assert result.status == "PASS"
    assert [it.path for it in result.files_changed] == ["a.txt"]


async def test_the_first_attempt_of_a_run_starts_from_the_branch_as_it_is_now(
    project: Project,
) -> None:
    write_work(project, ONE)
    seen: list[str] = []

    def look(assignment: Assignment) -> TaskResult:
        seen.append((assignment.cwd / "a.txt").read_text())
        assert not (assignment.cwd / "left.txt").exists()
        write(assignment.cwd, {"a.txt": "x\n", "left.txt": "by an earlier run\n"})
        if len(seen) == 1:
            project.write({"a.txt": "by the user\n"})
            project.commit("mine")
        return TaskResult.passed("Wrote a.txt.")

    await build(project, Player(look), times=2)
    assert seen == ["a\n", "by the user\n"]


async def test_a_rebuild_starts_anew_where_a_declared_file_has_changed_on_the_branch(
    project: Project,
) -> None:
    write_work(project, {TASK: Job(("a.txt",), verify=("grep right a.txt",))})
    seen: list[str] = []

    def meddled(assignment: Assignment) -> TaskResult:
        project.write({"a.txt": "by the user\n"})
        project.commit("mine")
        return writes({"a.txt": "wrong\n"})(assignment)  # type: ignore[return-value]

    def again(assignment: Assignment) -> TaskResult:
        seen.append((assignment.cwd / "a.txt").read_text())
        return writes({"a.txt": "right\n"})(assignment)  # type: ignore[return-value]

    player = Player(again, {(TASK, 1): meddled})
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
    assert result.status == "PASS"
    assert seen == ["by the user\n"]
    assert project.log() == ["first", "mine", "TASK-01: Do TASK-01"]


async def test_in_direct_mode_the_builder_runs_the_checks_itself(project: Project) -> None:
    write_work(project, CHECKED, "direct")
    player = Player(writes({"new.txt": "wrong\n"}), {(TASK, 3): writes({"new.txt": "right\n"})})
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop, ("builder", "committer")) as bus:
        result = await run(bus, workshop)
        rebuild = next(it for it in await deliveries(bus) if it.envelope.attempt == 2)
    assert result.status == "PASS"
    assert player.attempts == [(TASK, 1), (TASK, 2), (TASK, 3)]
    # The rebuild is told which check failed, not what the builder thought of it.
    assert "verify failed" in rebuild.window[0].what


async def test_a_failed_check_of_its_own_leaves_the_progress_file_open(project: Project) -> None:
    write_work(project, CHECKED, "direct")
    workshop = await open_workshop(project, {"builder": Player(writes({"new.txt": "wrong\n"}))})
    async with fleet(workshop, ("builder", "committer")) as bus:
        result = await run(bus, workshop)
    assert result.status == "FAIL"
    assert {it.name: it.status for it in result.verification}["verify"] == "FAIL"
    progress = folder(project).progress(TASK).value
    assert progress is not None
    assert (progress.status, progress.updated) == ("IN_PROGRESS", result.finished)
    assert project.log() == ["first"]


@pytest.mark.parametrize(
    ("task", "reason"),
    [(None, "a stage needs a task"), ("TASK-07", r"WORK-01 has no TASK-07 \(its tasks: TASK-01\)")],
)
async def test_a_task_that_is_not_there_is_refused(
    project: Project, task: str | None, reason: str
) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    body = stage_dispatch(workshop.task(WORK, TASK), "builder")
    async with bus_with(make_builder(workshop)) as bus:
        with pytest.raises(Bounced, match=reason):
            await (await bus.send("builder", body, work=WORK, task=task)).result()


async def test_a_builder_without_a_runtime_refuses_and_says_how_to_give_one(
    project: Project,
) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project)
    body = stage_dispatch(workshop.task(WORK, TASK), "builder")
    async with bus_with(make_builder(workshop)) as bus:
        with pytest.raises(Bounced, match="--runtime builder='command:…'"):
            await (await bus.send("builder", body, work=WORK, task=TASK)).result()


async def test_a_task_that_declares_nothing_may_change_nothing(project: Project) -> None:
    write_work(project, {TASK: Job(())})
    result = await build(project, Player(writes({"a.txt": "x\n"})))
    assert result.status == "FAIL"
    assert "a.txt" in result.summary


async def test_three_errors_give_the_task_up_with_the_last_one(project: Project) -> None:
    write_work(project, ONE)
    with pytest.raises(Bounced, match="failed 3 of 3 attempts, the last with ValueError: no"):
        await build(project, Player(raises(ValueError("no"))))


async def test_what_a_builder_says_is_shortened_to_what_a_window_can_show(
    project: Project,
) -> None:
    write_work(project, ONE)
    long = TaskResult.passed("x" * 60_000, why="y" * 60_000, caution="z", incomplete="w" * 9_000)
    result = await build(project, Player(writes({"a.txt": "x\n"}, long)))
    assert result.status == "PASS"
    assert result.context_handoff is not None
    assert "characters left out here" in result.context_handoff.what
    assert result.context_handoff.caution == "z"


async def test_a_repository_with_blanks_and_foreign_letters_in_its_path_is_one_as_any(
    project: Project, tmp_path: Path
) -> None:
    odd = Project(tmp_path / "ein Projekt – 프로젝트")
    write_work(odd, {TASK: Job(("ein blatt.txt", "한글.txt"), title="Schreibe 한글 `x` | y")})
    player = Player(writes({"ein blatt.txt": "x\n", "한글.txt": "y\n"}))
    workshop = await open_workshop(odd, {"builder": player})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
    assert result.status == "PASS", result
    assert odd.changed() == ["ein blatt.txt", "한글.txt"]
    assert odd.log()[1] == "TASK-01: Schreibe 한글 `x` | y"


async def test_a_pass_without_a_change_is_never_committed(project: Project) -> None:
    write_work(project, ONE)
    pointer = TaskResult.passed("Report delivered above.")
    player = Player(says(pointer))
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
    assert result.status == "FAIL"
    assert "no files changed" in result.summary
    assert player.attempts == [(TASK, 1), (TASK, 2), (TASK, 3)]
    assert project.log() == ["first"]


async def test_what_is_taken_out_of_a_long_dispatch_lies_in_the_tree_and_is_no_change(
    project: Project,
) -> None:
    write_work(project, ONE)
    found: list[str] = []

    def look(assignment: Assignment) -> TaskResult:
        path = assignment.text.partition("All of it: ")[2].split()[0]
        found.append((assignment.cwd / path).read_text())
        write(assignment.cwd, {"a.txt": "x\n"})
        return TaskResult.passed("Wrote a.txt.")

    workshop = await open_workshop(project, {"builder": Player(look)})
    dispatch = stage_dispatch(workshop.task(WORK, TASK), "builder")
    body = replace(dispatch, brief="Mind each of the corners. " * 200)
    async with bus_with(make_builder(workshop)) as bus:
        result = await (await bus.send("builder", body, work=WORK, task=TASK)).result()
    assert found == [body.brief]
    assert (result.status, [it.path for it in result.files_changed]) == ("PASS", ["a.txt"])
