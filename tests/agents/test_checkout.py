"""The user's checkout: brought along with a commit, and nothing of the user's is ever lost."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from git_project import GIT, TASK, WORK, Project, step_in

from batonbus_agents import checkout
from batonbus_agents.commit import LocalEditsError
from batonbus_agents.git import RepositoryError
from batonbus_agents.repository import Repository
from batonbus_agents.worktree import Snapshot

pytestmark = pytest.mark.anyio

BRANCH_MOVES = '*"update-ref -m"*'
FILES = {"a.txt": "the task's\n", "new/file.txt": "new\n", "lib/b.txt": None}


async def commit(project: Project, snapshot: Snapshot, task: str = TASK) -> str:
    repository = await Repository.open(project.path)
    return await repository.commit_task(WORK, task, snapshot, list(FILES), "do")


def everything(path: Path) -> dict[str, object]:
    """What stands in a work tree: kinds, contents and modes, but for our own folder and git's."""
    found: dict[str, object] = {}
    for it in sorted(path.rglob("*")):
        name = it.relative_to(path).as_posix()
        if name.split("/")[0] not in {".git", ".batonbus"}:
            mode = it.lstat().st_mode
            found[name] = (mode, os.readlink(it) if it.is_symlink() else None)
            if it.is_file():
                found[name] = (mode, it.read_bytes())
    return found


async def test_edits_in_other_files_stay_as_they_are(project: Project) -> None:
    snapshot = await project.build(FILES)
    project.write({"run.sh": "staged\n", "added.txt": "added\n"})
    project.git("add", "run.sh", "added.txt")
    project.git("update-index", "--assume-unchanged", "run.sh")
    project.write({"run.sh": "edited\n", "untracked.txt": "mine\n"})
    project.git("update-index", "--no-assume-unchanged", "run.sh")
    before = project.status().splitlines()
    made = await commit(project, snapshot)
    assert project.changed(made) == sorted(FILES)
    assert (
        project.status().splitlines() == before == ["A  added.txt", "MM run.sh", "?? untracked.txt"]
    )
    assert project.git("show", ":run.sh") == "staged"
    assert (project.path / "run.sh").read_text() == "edited\n"
    assert not (project.path / "lib").exists()


def edit(project: Project) -> None:
    project.write({"a.txt": "mine\n"})


def stage(project: Project) -> None:
    project.write({"a.txt": "mine\n"})
    project.git("add", "a.txt")


def stage_and_undo_in_the_file(project: Project) -> None:
    stage(project)
    project.write({"a.txt": "a\n"})


def delete(project: Project) -> None:
    project.write({"a.txt": None})


def take_out_of_the_index(project: Project) -> None:
    project.git("rm", "-q", "--cached", "a.txt")


def make_executable(project: Project) -> None:
    (project.path / "a.txt").chmod(0o755)


def hide_an_edit_from_git(project: Project) -> None:
    project.git("update-index", "--assume-unchanged", "a.txt")
    project.write({"a.txt": "mine\n"})


def replace_by_a_folder(project: Project) -> None:
    project.write({"a.txt": None})
    project.write({"a.txt/mine": "mine\n"})


def edit_what_the_task_deletes(project: Project) -> None:
    project.write({"lib/b.txt": "mine\n"})


def write_what_the_task_creates(project: Project) -> None:
    project.write({"new/file.txt": "mine\n"})


def write_it_ignored(project: Project) -> None:
    (project.path / ".git/info").mkdir()
    (project.path / ".git/info/exclude").write_text("new/\n")
    write_what_the_task_creates(project)


def intend_to_add_it(project: Project) -> None:
    project.write({"new/file.txt": ""})
    project.git("add", "--intent-to-add", "new/file.txt")


def have_a_file_where_a_folder_comes(project: Project) -> None:
    project.write({"new": "mine\n"})


def have_a_link_where_a_folder_comes(project: Project) -> None:
    elsewhere = project.path.parent / "elsewhere"
    elsewhere.mkdir()
    (project.path / "new").symlink_to(elsewhere)


def have_a_folder_where_a_file_comes(project: Project) -> None:
    project.write({"new/file.txt/mine": "mine\n"})


def have_a_link_to_a_folder_there(project: Project) -> None:
    (project.path / "new").mkdir()
    (project.path / "new/file.txt").symlink_to("..")


def stand_in_a_conflict(project: Project) -> None:
    project.git("switch", "-q", "-c", "side")
    project.write({"a.txt": "side\n"})
    project.commit("side")
    project.git("switch", "-q", "-c", "other", "main")
    project.write({"a.txt": "other\n"})
    project.commit("other")
    project.git("merge", "-q", "side", check=False)
    project.git("symbolic-ref", "HEAD", "refs/heads/main")
    project.write({"a.txt": "a\n"})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (edit, "a.txt"),
        (stage, "a.txt"),
        (stage_and_undo_in_the_file, "a.txt"),
        (delete, "a.txt"),
        (take_out_of_the_index, "a.txt"),
        (make_executable, "a.txt"),
        (hide_an_edit_from_git, "a.txt"),
        (replace_by_a_folder, "a.txt"),
        (edit_what_the_task_deletes, "lib/b.txt"),
        (write_what_the_task_creates, "new/file.txt"),
        (write_it_ignored, "new/file.txt"),
        (intend_to_add_it, "new/file.txt"),
        (have_a_file_where_a_folder_comes, "new/file.txt"),
        (have_a_link_where_a_folder_comes, "new/file.txt"),
        (have_a_folder_where_a_file_comes, "new/file.txt"),
        (have_a_link_to_a_folder_there, "new/file.txt"),
        (stand_in_a_conflict, "a.txt"),
    ],
)
async def test_an_edit_of_the_user_in_a_file_of_the_task_refuses_the_commit(
    project: Project, change: Callable[[Project], None], named: str
) -> None:
    snapshot = await project.build(FILES)
    change(project)
    files, status = everything(project.path), project.status()
    index = (project.path / ".git/index").read_bytes()
    tip = project.git("rev-parse", "main")
    with pytest.raises(LocalEditsError, match=f"{named}: .*and so did you, in") as refused:
        await commit(project, snapshot)
    assert refused.value.files == (named,)
    assert everything(project.path) == files
    assert (project.path / ".git/index").read_bytes() == index
    assert project.status() == status
    assert project.git("rev-parse", "main") == tip
    assert not (project.path / ".git/index.lock").exists()


async def test_what_was_refused_is_committed_once_the_edits_are_undone(project: Project) -> None:
    snapshot = await project.build(FILES)
    edit(project)
    with pytest.raises(LocalEditsError):
        await commit(project, snapshot)
    project.git("restore", "a.txt")
    await commit(project, snapshot)
    assert project.log() == ["first", "do"]
    assert project.status() == ""


async def test_a_file_that_is_only_touched_or_already_so_is_no_edit(project: Project) -> None:
    snapshot = await project.build(FILES)
    project.write({"a.txt": "a\n", "new/file.txt": "new\n", "lib/b.txt": None})
    await commit(project, snapshot)
    assert project.status() == ""


async def test_files_and_folders_take_each_others_place(project: Project) -> None:
    files = {"a.txt": None, "a.txt/x": "x\n", "lib/b.txt": None, "lib": "lib\n"}
    repository = await Repository.open(project.path)
    worktree = await repository.worktree(WORK, TASK)
    (worktree.path / "a.txt").unlink()
    (worktree.path / "lib/b.txt").unlink()
    (worktree.path / "lib").rmdir()
    project.write({"a.txt/x": "x\n", "lib": "lib\n"}, at=worktree.path)
    snapshot = await worktree.snapshot(1)
    (project.path / "lib/empty").mkdir()
    await repository.commit_task(WORK, TASK, snapshot, list(files), "do")
    assert (project.path / "a.txt/x").read_text() == "x\n"
    assert (project.path / "lib").read_text() == "lib\n"
    assert project.status() == ""


async def test_a_folder_with_a_file_of_the_user_is_not_replaced(project: Project) -> None:
    repository = await Repository.open(project.path)
    worktree = await repository.worktree(WORK, TASK)
    (worktree.path / "lib/b.txt").unlink()
    (worktree.path / "lib").rmdir()
    project.write({"lib": "lib\n"}, at=worktree.path)
    snapshot = await worktree.snapshot(1)
    project.write({"lib/mine.txt": "mine\n"})
    project.git("add", "lib/mine.txt")
    with pytest.raises(LocalEditsError) as refused:
        await repository.commit_task(WORK, TASK, snapshot, ["lib", "lib/b.txt"], "do")
    assert refused.value.files == ("lib", "lib/mine.txt")
    assert project.status() == "A  lib/mine.txt"


async def test_a_branch_that_is_not_checked_out_moves_alone(project: Project) -> None:
    snapshot = await project.build(FILES)
    repository = await Repository.open(project.path)
    project.git("switch", "-q", "-c", "elsewhere")
    edit(project)
    made = await repository.commit_task(WORK, TASK, snapshot, list(FILES), "do")
    assert project.git("rev-parse", "main") == made
    assert project.status() == " M a.txt"
    project.git("checkout", "-q", "--detach")
    again = await project_build_on(repository, project)
    assert project.git("rev-parse", "main") == again
    assert project.status() == " M a.txt"


async def project_build_on(repository: Repository, project: Project) -> str:
    worktree = await repository.worktree(WORK, "TASK-02")
    project.write({"more.txt": "more\n"}, at=worktree.path)
    snapshot = await worktree.snapshot(1)
    return await repository.commit_task(WORK, "TASK-02", snapshot, ["more.txt"], "more")


async def test_a_branch_that_is_checked_out_elsewhere_is_brought_along_there(
    project: Project, tmp_path: Path
) -> None:
    snapshot = await project.build(FILES)
    repository = await Repository.open(project.path)
    project.git("switch", "-q", "-c", "mine")
    project.git("worktree", "add", "-q", str(tmp_path / "else where"), "main")
    await repository.commit_task(WORK, TASK, snapshot, list(FILES), "do")
    there = tmp_path / "else where"
    assert (there / "a.txt").read_text() == "the task's\n"
    assert project.git("status", "--porcelain", cwd=there) == ""
    assert (project.path / "a.txt").read_text() == "a\n"
    assert project.status() == ""
    linked = await Repository.open(there)
    assert (linked.path, linked.branch) == (there, "main")
    await project_build_on(linked, project)
    assert (there / "more.txt").read_text() == "more\n"
    assert project.git("status", "--porcelain", cwd=there) == ""


async def test_files_are_written_as_the_users_own_git_would_write_them(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "home/.gitconfig").write_text(
        "[user]\nname = A User\nemail = user@example.org\n[core]\nautocrlf = true\n"
        '[filter "rot"]\nclean = tr A-Za-z N-ZA-Mn-za-m\nsmudge = tr A-Za-z N-ZA-Mn-za-m\n'
    )
    project.write({".gitattributes": "*.rot filter=rot\n", "old.rot": "Hello\n"})
    project.commit("filter")
    assert project.show("old.rot") == "Uryyb"
    (project.path / "a.txt").unlink()
    project.git("checkout", "-q", "a.txt")
    assert (project.path / "a.txt").read_bytes() == b"a\r\n"
    files = {"a.txt": "1\n2\n", "old.rot": "Hello again\n", "new.rot": "World\n"}
    snapshot = await project.build(files)
    repository = await Repository.open(project.path)
    made = await repository.commit_task(WORK, TASK, snapshot, list(files), "do")
    assert project.show("new.rot", made) == "Jbeyq"
    assert (project.path / "new.rot").read_text() == "World\n"
    assert (project.path / "a.txt").read_bytes() == b"1\r\n2\r\n"
    assert project.status() == ""


async def test_an_index_that_the_users_git_has_locked_is_waited_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = await project.build(FILES)
    lock = project.path / ".git/index.lock"
    lock.touch()
    monkeypatch.setattr(checkout, "INDEX_WAIT", 0.1)
    with pytest.raises(RepositoryError, match=f"{lock} has been there for 0.1 s: end the git"):
        await commit(project, snapshot)
    assert lock.exists()
    assert project.log() == ["first"]
    monkeypatch.setattr(checkout, "INDEX_WAIT", 30.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit, project, snapshot)
        await anyio.wait_all_tasks_blocked()
        lock.unlink()
    assert project.log() == ["first", "do"]
    assert project.status() == ""


async def test_a_user_who_leaves_the_branch_while_we_wait_keeps_their_files(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = await project.build(FILES)
    project.git("branch", "mine")
    repository = await Repository.open(project.path)
    lock = project.path / ".git/index.lock"
    lock.touch()
    waiting = anyio.Event()
    link = os.link

    def link_and_tell(source: Path, target: Path) -> None:
        waiting.set()
        link(source, target)

    monkeypatch.setattr(os, "link", link_and_tell)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(repository.commit_task, WORK, TASK, snapshot, list(FILES), "do")
        await waiting.wait()
        project.git("symbolic-ref", "HEAD", "refs/heads/mine")  # as `git switch` does, locked
        lock.unlink()
    assert project.log() == ["first", "do"]
    assert (project.path / "a.txt").read_text() == "a\n"
    assert project.status() == ""


async def test_a_lock_that_a_killed_commit_left_is_taken_over(project: Project) -> None:
    snapshot = await project.build(FILES)
    ours = project.path / ".git/batonbus.lock"
    ours.touch()
    os.link(ours, project.path / ".git/index.lock")
    await commit(project, snapshot)
    assert not (project.path / ".git/index.lock").exists()
    assert project.status() == ""


async def test_the_user_cannot_commit_an_old_index_on_the_new_tip(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = await project.build(FILES)
    said = tmp_path / "said"
    script = f"{GIT} commit -q --allow-empty -m theirs 2>{said}; {GIT} add run.sh"
    monkeypatch.setenv("PATH", step_in(tmp_path / "bin", BRANCH_MOVES, script))
    await commit(project, snapshot)
    assert "index.lock': File exists" in said.read_text()
    assert project.log() == ["first", "do"]
    assert project.status() == ""


async def test_an_edit_in_the_very_moment_of_the_commit_is_kept(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = await project.build(FILES)
    script = "echo just now > a.txt; echo mine > lib/b.txt; mkdir new; echo mine > new/file.txt"
    monkeypatch.setenv("PATH", step_in(tmp_path / "bin", BRANCH_MOVES, script))
    made = await commit(project, snapshot)
    assert project.show("a.txt", made) == "the task's"
    assert (project.path / "a.txt").read_text() == "just now\n"
    assert (project.path / "lib/b.txt").read_text() == "mine\n"
    assert (project.path / "new/file.txt").read_text() == "mine\n"
    assert project.status().splitlines() == [" M a.txt", " M new/file.txt", "?? lib/"]


async def test_an_edit_made_after_the_commit_is_not_undone_by_asking_again(
    project: Project,
) -> None:
    snapshot = await project.build(FILES)
    await commit(project, snapshot)
    project.write({"a.txt": "mine\n", "new/file.txt": None})
    project.git("add", "new/file.txt")
    before = project.status()
    await commit(project, snapshot)
    assert project.status() == before == " M a.txt\nD  new/file.txt"


async def test_a_later_task_is_not_undone_by_asking_for_an_earlier_one_again(
    project: Project,
) -> None:
    first = await project.build(FILES)
    await commit(project, first)
    back = await project.build({"a.txt": "a\n"}, task="TASK-02")  # just as before the first one
    await commit(project, back, "TASK-02")
    assert (project.path / "a.txt").read_text() == "a\n"
    # As if the first one had been killed just after its commit.
    project.git("update-ref", "-d", f"refs/batonbus/{WORK}/{TASK}/commit")
    await commit(project, first)
    assert (project.path / "a.txt").read_text() == "a\n"
    assert project.status() == ""


async def test_a_checkout_that_cannot_be_written_is_an_error_until_it_can(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = await project.build(FILES)
    replace = Path.replace

    def fail(source: Path, target: Path) -> Path:
        if target.name == "a.txt":
            raise PermissionError(13, "Permission denied", str(target))
        return replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(
            RepositoryError, match=r"the commit is made, .* cannot be brought along"
        ):
            await commit(project, snapshot)
    await commit(project, snapshot)
    assert project.log() == ["first", "do"]
    assert project.status() == ""
