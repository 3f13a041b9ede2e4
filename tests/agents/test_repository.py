"""A repository: opened or refused, one commit a task, found again by its trailer."""

from pathlib import Path

import anyio
import pytest
from git_project import GIT, TASK, WORK, Project, step_in

from batonbus_agents import checkout
from batonbus_agents.commit import BranchConflictError
from batonbus_agents.git import RepositoryError
from batonbus_agents.repository import Repository

pytestmark = pytest.mark.anyio

BRANCH_MOVES = '*"update-ref -m"*'


async def test_a_repository_is_opened_at_its_top_and_on_its_branch(project: Project) -> None:
    project.git("switch", "-q", "-c", "feature/ü")
    repository = await Repository.open(project.path / "lib")
    assert (repository.path, repository.branch) == (project.path, "feature/ü")
    assert await repository.tip() == project.git("rev-parse", "HEAD")


async def test_a_folder_that_cannot_be_worked_in_is_refused_with_what_to_do(
    project: Project, tmp_path: Path
) -> None:
    with pytest.raises(RepositoryError, match="missing is no folder: name the repository's"):
        await Repository.open(tmp_path / "missing")
    with pytest.raises(RepositoryError, match=r"is in no git work tree .*run `git init`"):
        await Repository.open(tmp_path)
    project.git("init", "-q", "--bare", str(tmp_path / "bare"))
    with pytest.raises(RepositoryError, match="is in no git work tree"):
        await Repository.open(tmp_path / "bare")
    project.git("init", "-q", str(tmp_path / "unborn"))
    with pytest.raises(RepositoryError, match="has no commit yet: make a first one"):
        await Repository.open(tmp_path / "unborn")
    project.git("checkout", "-q", "--detach")
    with pytest.raises(RepositoryError, match=r"is on no branch .*: check out the branch"):
        await Repository.open(project.path)


async def test_a_sparse_checkout_is_refused(project: Project) -> None:
    project.git("sparse-checkout", "set", "lib")
    with pytest.raises(RepositoryError, match="run `git sparse-checkout disable` first"):
        await Repository.open(project.path)
    project.git("sparse-checkout", "disable")
    await Repository.open(project.path)


@pytest.mark.parametrize(
    ("settings", "author"),
    [
        ("[user]\nname = A\nemail = a@b\n[author]\nname = C\n", "A <a@b>"),
        ("", "Batonbus <batonbus@localhost>"),
        ("[user]\nuseConfigOnly = true\n", "Batonbus <batonbus@localhost>"),
        ("[user]\nname = A\n", "A <batonbus@localhost>"),
        ("[user]\nname =\n", "Batonbus <batonbus@localhost>"),
    ],
)
async def test_the_author_is_the_user_or_else_batonbus(
    project: Project, tmp_path: Path, settings: str, author: str
) -> None:
    (tmp_path / "home/.gitconfig").write_text(settings)
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    commit = await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    assert project.git("log", "-1", "--format=%an <%ae>", commit) == author
    assert project.git("log", "-1", "--format=%cn <%ce>", commit) == author


async def test_a_task_is_one_commit_on_the_tip_however_often_it_is_asked_for(
    project: Project,
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    project.write({"run.sh": "theirs\n"})
    project.commit("theirs")
    commit = await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "Do it\n\nWhy not.")
    project.write({"run.sh": "theirs again\n"})
    project.commit("theirs again")
    assert await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "Again") == commit
    assert project.log() == ["first", "theirs", "Do it", "theirs again"]
    assert project.git("show", "-s", "--format=%B", commit) == (
        f"Do it\n\nWhy not.\n\nBatonbus-Task: {WORK}/{TASK}\n"
    )
    assert project.status() == ""


async def test_a_committed_task_is_found_though_all_else_of_it_is_gone(project: Project) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    commit = await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    await repository.clean(WORK)
    project.git("reflog", "expire", "--expire=now", "--all")
    project.git("gc", "-q", "--prune=now")
    assert await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do") == commit


async def test_tasks_of_one_base_that_end_together_become_one_line_of_commits(
    project: Project,
) -> None:
    repository = await Repository.open(project.path)
    tasks = {f"TASK-{number:02}": f"dir/{number}.txt" for number in range(6)}
    snapshots = {}

    async def build(task: str, name: str) -> None:
        snapshots[task] = await project.build({name: f"{task}\n"}, task=task)

    commits: dict[str, str] = {}

    async def commit(task: str, name: str) -> None:
        own = await Repository.open(project.path)
        commits[task] = await own.commit_task(WORK, task, snapshots[task], [name], task)

    for step in (build, commit):
        with anyio.fail_after(60):
            async with anyio.create_task_group() as running:
                for task, name in tasks.items():
                    running.start_soon(step, task, name)
    assert len({project.git("rev-parse", f"{it.commit}^") for it in snapshots.values()}) == 1
    assert project.log()[0] == "first"
    assert sorted(project.log()[1:]) == sorted(tasks)
    assert project.git("rev-list", "--merges", "main") == ""
    assert await repository.commits_of(WORK) == commits
    for task, name in tasks.items():
        assert project.changed(commits[task]) == [name]
        assert (project.path / name).read_text() == project.show(name) + "\n" == f"{task}\n"
    assert project.status() == ""


async def test_two_tasks_that_changed_the_same_file_conflict(project: Project) -> None:
    repository = await Repository.open(project.path)
    one = await project.build({"a.txt": "one\n"})
    other = await project.build({"a.txt": "other\n"}, task="TASK-02")
    await repository.commit_task(WORK, TASK, one, ["a.txt"], "one")
    with pytest.raises(BranchConflictError, match=r"a\.txt: changed on the branch since"):
        await repository.commit_task(WORK, "TASK-02", other, ["a.txt"], "other")
    assert project.log() == ["first", "one"]
    assert project.status() == ""


MOVE = f"""
tip=$({GIT} rev-parse main) && tree=$({GIT} rev-parse "main^{{tree}}") &&
new=$(echo moved | {GIT} commit-tree "$tree" -p "$tip") && {GIT} update-ref refs/heads/main "$new"
"""


async def test_a_commit_is_built_again_when_the_tip_has_moved_meanwhile(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    once = f"if mkdir {tmp_path}/moved; then {MOVE}fi"
    monkeypatch.setenv("PATH", step_in(tmp_path / "bin", BRANCH_MOVES, once))
    commit = await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    assert project.log() == ["first", "moved", "do"]
    assert project.changed(commit) == ["a.txt"]
    assert project.status() == ""


async def test_a_branch_that_never_stands_still_ends_in_an_error(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    monkeypatch.setenv("PATH", step_in(tmp_path / "bin", BRANCH_MOVES, MOVE))
    with pytest.raises(RepositoryError, match="main moved 10 times while WORK-01/TASK-01"):
        await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    assert project.log() == ["first", *["moved"] * 10]
    assert project.status() == ""


async def test_another_process_that_commits_without_end_is_an_error(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    monkeypatch.setattr(checkout, "WRITER_WAIT", 0.1)
    async with checkout.writing(project.path / ".git/batonbus.lock"):
        with pytest.raises(RepositoryError, match=r"has been committing for 0\.1 s"):
            await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")


async def test_only_a_trailer_makes_a_commit_a_tasks(project: Project) -> None:
    repository = await Repository.open(project.path)

    def say(message: str) -> str:
        return project.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-F", "-", text=message)

    def commit(message: str) -> str:
        project.git("reset", "-q", "--soft", say(message))
        return project.git("rev-parse", "HEAD")

    commit("Batonbus-Task: WORK-01/TASK-01 is a subject")
    commit("In the text\n\nBatonbus-Task: WORK-01/TASK-02\n\nand more text")
    commit("In a sentence\n\nIt says Batonbus-Task: WORK-01/TASK-03")
    commit("Quoted\n\n> Batonbus-Task: WORK-01/TASK-04")
    commit("Of a work with a longer name\n\nBatonbus-Task: WORK-010/TASK-05")
    one = commit("Real\n\nBatonbus-Task: WORK-01/TASK-06")
    two = commit("Squashed\n\nBatonbus-Task: WORK-01/TASK-07\nBatonbus-Task: WORK-01/TASK-08\n")
    commit("Picked once more\n\nBatonbus-Task: WORK-01/TASK-06")
    among = commit("Among others\n\nSigned-off-by: A <a@b>\nBatonbus-Task: WORK-01/TASK-09\nX: y")
    assert await repository.commits_of(WORK) == {
        "TASK-06": one,
        "TASK-07": two,
        "TASK-08": two,
        "TASK-09": among,
    }


async def test_a_commit_that_was_merged_or_rebased_is_still_the_tasks(project: Project) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    project.git("commit", "-q", "--amend", "--no-edit", "--date", "2001-01-01T00:00:00Z")
    amended = project.git("rev-parse", "HEAD")
    assert await repository.commits_of(WORK) == {TASK: amended}
    assert await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do") == amended
    other = await project.build({"lib/b.txt": "new\n"}, task="TASK-02")
    project.git("switch", "-q", "-c", "side", "main~1")
    aside = await Repository.open(project.path)
    merged = await aside.commit_task(WORK, "TASK-02", other, ["lib/b.txt"], "aside")
    project.git("switch", "-q", "main")
    assert "TASK-02" not in await repository.commits_of(WORK)
    project.git("merge", "-q", "--no-edit", "side")
    assert await repository.commits_of(WORK) == {TASK: amended, "TASK-02": merged}
    assert project.status() == ""
