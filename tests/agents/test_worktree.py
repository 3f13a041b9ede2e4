"""A task's own work tree: the same base for ever, and each attempt's tree exactly."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from git_project import TASK, WORK, Project

from batonbus_agents.git import GitError, RepositoryError
from batonbus_agents.repository import Repository
from batonbus_agents.worktree import Snapshot, Worktree

pytestmark = pytest.mark.anyio


def tree(path: Path) -> dict[str, bytes]:
    """Every file below, but git's own."""
    found = (it for it in path.rglob("*") if it.is_symlink() or it.is_file())
    return {
        it.relative_to(path).as_posix(): it.readlink().as_posix().encode()
        if it.is_symlink()
        else it.read_bytes()
        for it in found
        if it.relative_to(path).parts[0] != ".git"
    }


def listed(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(it.action, it.path) for it in snapshot.changes]


async def open_task(project: Project, task: str = TASK, work: str = WORK) -> Worktree:
    return await (await Repository.open(project.path)).worktree(work, task)


async def test_a_task_starts_from_the_branchs_tip_and_keeps_that_base(project: Project) -> None:
    first = await open_task(project)
    assert first.path == project.path / ".batonbus" / "worktrees" / WORK / TASK
    assert tree(first.path) == {"a.txt": b"a\n", "lib/b.txt": b"b\n", "run.sh": b"#!/bin/sh\n"}
    project.write({"a.txt": "moved on\n"})
    project.commit("moved on")
    shutil.rmtree(first.path)
    again = await open_task(project)
    assert again.base == first.base == project.git("rev-parse", "main~1")
    assert (again.path / "a.txt").read_text() == "a\n"
    assert (await open_task(project, "TASK-02")).base == project.git("rev-parse", "main")


async def test_the_user_sees_nothing_of_the_work_trees(project: Project) -> None:
    worktree = await open_task(project)
    project.write({"new.txt": "n\n"}, at=worktree.path)
    await worktree.snapshot(1)
    assert project.status() == ""
    assert project.git("branch", "--all") == "* main"


async def test_a_folder_of_ours_that_is_there_already_keeps_its_files(project: Project) -> None:
    project.write({".batonbus/.gitignore": "# mine\n*\n", ".batonbus/store/x": "x"})
    await open_task(project)
    assert (project.path / ".batonbus/.gitignore").read_text() == "# mine\n*\n"
    assert project.status() == ""


async def test_an_open_work_tree_is_left_as_it_is(project: Project) -> None:
    worktree = await open_task(project)
    project.write({"a.txt": "edited\n", "new.txt": "n\n"}, at=worktree.path)
    before = tree(worktree.path)
    assert await open_task(project) == worktree
    assert tree(worktree.path) == before


def delete_folder(worktree: Worktree) -> None:
    shutil.rmtree(worktree.path)


def delete_git_file(worktree: Worktree) -> None:
    (worktree.path / ".git").unlink()


def delete_git_dir(worktree: Worktree) -> None:
    shutil.rmtree(worktree.git_dir)


def delete_both(worktree: Worktree) -> None:
    shutil.rmtree(worktree.path)
    shutil.rmtree(worktree.git_dir)


def break_head(worktree: Worktree) -> None:
    (worktree.git_dir / "HEAD").write_text("rubbish")


def be_half_made(worktree: Worktree) -> None:
    # As `git worktree add` leaves it when it is killed.
    (worktree.git_dir / "locked").write_text("initializing")
    (worktree.path / "a.txt").unlink()


def lose_the_folder_of_a_half_made_one(worktree: Worktree) -> None:
    be_half_made(worktree)
    shutil.rmtree(worktree.path)


def be_a_file(worktree: Worktree) -> None:
    shutil.rmtree(worktree.path)
    worktree.path.write_text("in the way")


def be_a_link(worktree: Worktree) -> None:
    shutil.rmtree(worktree.path)
    worktree.path.symlink_to(worktree.path.parents[3])


def be_another_repository(worktree: Worktree) -> None:
    shutil.rmtree(worktree.path)
    Project(worktree.path)


@pytest.mark.parametrize(
    "damage",
    [
        delete_folder,
        delete_git_file,
        delete_git_dir,
        delete_both,
        break_head,
        be_half_made,
        lose_the_folder_of_a_half_made_one,
        be_a_file,
        be_a_link,
        be_another_repository,
    ],
)
async def test_a_damaged_work_tree_is_made_again(
    project: Project, damage: Callable[[Worktree], None]
) -> None:
    worktree = await open_task(project)
    whole = tree(worktree.path)
    damage(worktree)
    again = await open_task(project)
    assert tree(again.path) == whole
    assert again.base == worktree.base
    assert (await again.snapshot(1)).changes == ()
    assert project.git("status", "--porcelain", cwd=again.path) == ""
    assert project.status() == ""
    assert (project.path / "a.txt").read_text() == "a\n"


async def test_a_snapshot_tells_what_differs_from_the_base(project: Project) -> None:
    project.write({".gitignore": "*.log\n", "lib/long.txt": "the same lines\n" * 50})
    project.commit("more")
    worktree = await open_task(project)
    moved = (worktree.path / "lib/long.txt").read_bytes()
    files = {
        "a.txt": "edited\n",
        "lib/b.txt": None,
        "lib/long.txt": None,
        "moved.txt": moved,
        "build.log": "ignored\n",
        "works/WORK-01/TASK-01_progress.md": "the works' own\n",
        'sp ace/ü"q\t.txt': "x\n",
        "-dash": "x\n",
    }
    project.write(files, at=worktree.path)
    (worktree.path / "run.sh").chmod(0o644)
    assert listed(await worktree.snapshot(1)) == [
        ("created", "-dash"),
        ("modified", "a.txt"),
        ("deleted", "lib/b.txt"),
        ("deleted", "lib/long.txt"),
        ("created", "moved.txt"),
        ("modified", "run.sh"),
        ("created", 'sp ace/ü"q\t.txt'),
    ]


async def test_a_snapshot_is_the_same_for_who_finds_it(project: Project) -> None:
    worktree = await open_task(project)
    assert await worktree.find_snapshot(1) is None
    assert await worktree.find_latest() is None
    project.write({"a.txt": "edited\n"}, at=worktree.path)
    snapshot = await worktree.snapshot(1)
    assert await worktree.find_snapshot(1) == await worktree.find_latest() == snapshot
    assert await worktree.find_snapshot(2) is None


async def test_a_snapshot_leaves_the_index_to_the_builder(project: Project) -> None:
    worktree = await open_task(project)
    project.write({"a.txt": "staged\n"}, at=worktree.path)
    project.git("add", "a.txt", cwd=worktree.path)
    project.write({"a.txt": "edited\n", "new.txt": "n\n"}, at=worktree.path)
    before = project.git("status", "--porcelain", cwd=worktree.path)
    index = (worktree.git_dir / "index").read_bytes()
    await worktree.snapshot(1)
    assert (worktree.git_dir / "index").read_bytes() == index
    assert project.git("status", "--porcelain", cwd=worktree.path) == before


async def test_whatever_a_builder_does_to_git_its_snapshot_is_what_is_in_the_files(
    project: Project,
) -> None:
    worktree = await open_task(project)
    project.git("update-index", "--assume-unchanged", "a.txt", cwd=worktree.path)
    project.git("rm", "-q", "--cached", "run.sh", cwd=worktree.path)
    project.git("checkout", "-q", "-b", "mine", cwd=worktree.path)
    project.write({"a.txt": "edited\n", "new.txt": "n\n"}, at=worktree.path)
    project.git("add", "new.txt", cwd=worktree.path)
    project.git("commit", "-q", "-m", "my own commit", cwd=worktree.path)
    (worktree.git_dir / "index.lock").touch()
    snapshot = await worktree.snapshot(1)
    assert listed(snapshot) == [("modified", "a.txt"), ("created", "new.txt")]
    assert project.git("rev-parse", f"{snapshot.commit}^") == worktree.base


async def test_a_builder_that_deletes_its_git_file_does_not_reach_the_users_tree(
    project: Project,
) -> None:
    worktree = await open_task(project)
    project.write({"a.txt": "built\n"}, at=worktree.path)
    (worktree.path / ".git").unlink()
    mine = {"a.txt": "my edit\n", "untracked.txt": "mine\n"}
    project.write(mine)
    assert listed(await worktree.snapshot(1)) == [("modified", "a.txt")]
    await worktree.restore(0)
    assert {name: (project.path / name).read_text() for name in mine} == mine
    assert (worktree.path / "a.txt").read_text() == "a\n"


async def test_restoring_is_exact_and_keeps_ignored_files(project: Project) -> None:
    project.write({".gitignore": "cache/\n"})
    project.commit("ignore")
    worktree = await open_task(project)
    base = tree(worktree.path)
    (worktree.path / "link").symlink_to("a.txt")
    files = {"a.txt": "1\n", "lib/b.txt": None, "deep/er/new.txt": "1\n", "cache/x": "kept\n"}
    project.write(files, at=worktree.path)
    await worktree.snapshot(1)
    first = tree(worktree.path)
    shutil.rmtree(worktree.path / "deep")
    project.write(
        {"a.txt": None, "deep": "now a file\n", "link": None, "link/x": "now a folder\n"},
        at=worktree.path,
    )
    project.write({"left/over.txt": "x\n", "run.sh": "2\n"}, at=worktree.path)
    (worktree.path / "empty").mkdir()
    await worktree.restore(1)
    assert tree(worktree.path) == first
    assert not (worktree.path / "empty").exists()
    await worktree.restore(0)
    assert tree(worktree.path) == {**base, "cache/x": b"kept\n"}
    assert project.git("status", "--porcelain", cwd=worktree.path) == ""
    await worktree.restore_latest()
    assert tree(worktree.path) == first


async def test_restoring_undoes_what_a_killed_builder_did_to_git(project: Project) -> None:
    worktree = await open_task(project)
    base = tree(worktree.path)
    project.git("checkout", "-q", "-b", "mine", cwd=worktree.path)
    project.git("rm", "-q", "-r", ".", cwd=worktree.path)
    project.write({"new.txt": "n\n"}, at=worktree.path)
    project.git("add", "new.txt", cwd=worktree.path)
    project.git("commit", "-q", "-m", "my own", cwd=worktree.path)
    (worktree.git_dir / "index").write_bytes(b"half writ")
    (worktree.git_dir / "index.lock").touch()
    await worktree.restore(0)
    assert tree(worktree.path) == base
    assert project.git("rev-parse", "HEAD", cwd=worktree.path) == worktree.base
    assert project.git("rev-parse", "--abbrev-ref", "HEAD", cwd=worktree.path) == "HEAD"
    assert project.git("status", "--porcelain", cwd=worktree.path) == ""


async def test_restoring_does_not_write_what_is_right_already(project: Project) -> None:
    worktree = await open_task(project)
    project.write({"lib/b.txt": "edited\n"}, at=worktree.path)
    before = (worktree.path / "a.txt").stat()
    await worktree.restore(0)
    after = (worktree.path / "a.txt").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert (worktree.path / "lib/b.txt").read_text() == "b\n"


async def test_an_attempt_that_left_nothing_cannot_be_restored(project: Project) -> None:
    worktree = await open_task(project)
    with pytest.raises(RepositoryError, match="attempt 2 of WORK-01/TASK-01 left nothing"):
        await worktree.restore(2)
    with pytest.raises(ValueError, match="attempts count from 1, and this is 0"):
        await worktree.snapshot(0)


async def test_without_an_attempt_the_latest_is_the_base(project: Project) -> None:
    worktree = await open_task(project)
    project.write({"a.txt": "edited\n"}, at=worktree.path)
    await worktree.restore_latest()
    assert (worktree.path / "a.txt").read_text() == "a\n"


async def test_an_attempt_made_again_is_the_latest(project: Project) -> None:
    worktree = await open_task(project)
    for attempt in (1, 2, 10):
        project.write({"a.txt": f"{attempt}\n"}, at=worktree.path)
        await worktree.snapshot(attempt)
    latest = await worktree.find_latest()
    assert latest == await worktree.find_snapshot(10)
    project.write({"a.txt": "1 again\n"}, at=worktree.path)
    assert await worktree.snapshot(1) == await worktree.find_latest()
    assert await worktree.find_snapshot(2) is None


async def test_a_file_whose_name_no_message_can_hold_is_named(project: Project) -> None:
    worktree = await open_task(project)
    (worktree.path / b"bad\xff.txt".decode(errors="surrogateescape")).write_text("x")
    with pytest.raises(RepositoryError, match=r"bad.*is not UTF-8: rename the file"):
        await worktree.snapshot(1)


async def test_an_unborn_repository_inside_is_named(project: Project) -> None:
    worktree = await open_task(project)
    project.git("init", "-q", "inner", cwd=worktree.path)
    with pytest.raises(GitError, match=r"inner/.* does not have a commit"):
        await worktree.snapshot(1)


async def test_a_finished_work_is_cleaned_and_others_stay(project: Project) -> None:
    for work, task in ((WORK, TASK), (WORK, "TASK-02"), ("WORK-02", TASK)):
        await project.build({"a.txt": "x\n"}, task=task, work=work)
    mine = project.path.parent / "mine"
    project.git("worktree", "add", "-q", "-b", "mine", str(mine))
    shutil.rmtree(mine)  # on a disk that is not there just now
    shutil.rmtree(project.path / ".batonbus/worktrees" / WORK / "TASK-02")
    await (await Repository.open(project.path)).clean(WORK)
    assert sorted(project.git("for-each-ref", "--format=%(refname)").splitlines()) == [
        "refs/batonbus/WORK-02/TASK-01/attempt-1",
        "refs/batonbus/WORK-02/TASK-01/base",
        "refs/heads/main",
        "refs/heads/mine",
    ]
    assert not (project.path / ".batonbus/worktrees" / WORK / TASK).exists()
    known = project.git("worktree", "list", "--porcelain")
    assert {line for line in known.splitlines() if line.startswith("worktree ")} == {
        f"worktree {project.path}",
        f"worktree {project.path}/.batonbus/worktrees/WORK-02/TASK-01",
        f"worktree {mine}",
    }


async def test_a_task_whose_work_tree_was_removed_starts_anew(project: Project) -> None:
    await project.build({"a.txt": "x\n"})
    project.write({"a.txt": "moved on\n"})
    tip = project.commit("moved on")
    repository = await Repository.open(project.path)
    await repository.remove_worktree(WORK, TASK)
    worktree = await repository.worktree(WORK, TASK)
    assert worktree.base == tip
    assert await worktree.find_latest() is None


@pytest.mark.parametrize("name", ["", "..", "a/b", "WORK 1", "x.lock", "a\n", "x" * 65, "ü"])
async def test_a_name_that_could_lead_elsewhere_is_refused(project: Project, name: str) -> None:
    repository = await Repository.open(project.path)
    for work, task in ((name, TASK), (WORK, name)):
        with pytest.raises(RepositoryError, match="cannot name a work or a task"):
            await repository.worktree(work, task)
        with pytest.raises(RepositoryError, match="cannot name a work or a task"):
            await repository.remove_worktree(work, task)
