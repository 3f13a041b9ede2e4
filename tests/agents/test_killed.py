"""Killed with -9 at every step, and asked again: the same one commit, and nothing left over."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from git_project import GIT, PATH, TASK, WORK, Project, step_in

from batonbus_agents.repository import Repository
from batonbus_schemas import FileChange

pytestmark = [pytest.mark.faults, pytest.mark.anyio, pytest.mark.timeout(300)]

KILLED = -9
FILES = {"a.txt": "the task's\n", "lib/b.txt": None, "lib": "now a file\n", 'new/ü "q".txt': "n\n"}
USERS = " M run.sh\n?? mine.txt"
"""What the user has edited elsewhere, and keeps."""

Run = Callable[..., int]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs an action of the program; a child that was killed answers KILLED."""
    program = Path(__file__).with_name("killed_program.py")
    process = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin
    assert process.stdout
    answers = process.stdout

    def ask(action: str, folder: Path, step: int = 0) -> int:
        variables = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR")}
        print(json.dumps([action, str(folder), step, variables]), file=process.stdin, flush=True)
        return int(answers.readline())

    yield ask
    process.stdin.close()
    process.wait(30)


@pytest.fixture
def built(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose task is built and not committed, with edits of the user in other files."""
    temporary = project.path.parent / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    worktree = project.path / ".batonbus/worktrees" / WORK / TASK

    async def build() -> None:
        repository = await Repository.open(project.path)
        await repository.worktree(WORK, TASK)
        shutil.rmtree(worktree / "lib")
        await project.build({name: it for name, it in FILES.items() if it})

    anyio.run(build)
    project.write({"run.sh": "mine\n", "mine.txt": "mine\n"})
    return project


@pytest.fixture
def again(built: Project) -> Callable[[], None]:
    """Puts the project back to before the commit, as a copy of what it was."""
    kept = built.path.parent / "kept"
    shutil.copytree(built.path, kept, symlinks=True)

    def put_back() -> None:
        shutil.rmtree(built.path)
        shutil.copytree(kept, built.path, symlinks=True)

    return put_back


def files(folder: Path) -> dict[str, bytes]:
    """Every file below, but git's own."""
    found = (it for it in folder.rglob("*") if it.is_file() and it.name != ".git")
    return {it.relative_to(folder).as_posix(): it.read_bytes() for it in found}


async def commit(project: Project) -> str:
    repository = await Repository.open(project.path)
    snapshot = await (await repository.worktree(WORK, TASK)).find_latest()
    assert snapshot is not None
    return await repository.commit_task(WORK, TASK, snapshot, list(FILES), "do")


def check_committed(project: Project, made: str) -> None:
    """One commit, right in every way, and nothing else."""
    assert project.log() == ["first", "do"]
    assert project.git("rev-parse", "main") == made
    assert project.changed(made) == sorted(FILES)
    assert [project.show(it, made) + "\n" for it in FILES if FILES[it]] == [
        it for it in FILES.values() if it
    ]
    assert project.status() == USERS
    assert project.git("diff", "--cached") == ""
    assert list((project.path / ".git").glob("**/*.lock")) == [project.path / ".git/batonbus.lock"]
    assert list((project.path / ".batonbus").glob("checkout-*")) == []


async def test_a_commit_killed_before_any_step_is_finished_by_the_next_call(
    built: Project, again: Callable[[], None], run: Run
) -> None:
    killed = 0
    while run("commit", built.path, killed + 1) == KILLED:
        killed += 1
        check_committed(built, await commit(built))
        again()
    check_committed(built, await commit(built))
    assert killed >= 50


async def test_a_commit_killed_while_its_git_goes_on_is_finished_by_the_next_call(
    built: Project, again: Callable[[], None], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, ended = built.path.parent / "calls", built.path.parent / "ended"
    number, code = 0, KILLED
    while code == KILLED:
        number += 1
        calls.unlink(missing_ok=True)
        ended.unlink(missing_ok=True)
        script = (
            f"echo >> {calls}\nif [ $(wc -l < {calls}) = {number} ]; then\n"
            f'kill -9 $PPID; {GIT} "$@"; touch {ended}; exit\nfi'
        )
        monkeypatch.setenv("PATH", step_in(built.path.parent / "bin", "*", script))
        code = run("commit", built.path)
        monkeypatch.setenv("PATH", PATH)
        made = await commit(built)
        with anyio.fail_after(10):
            while code == KILLED and not ended.exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)  # a file of another process: no event tells of it
        check_committed(built, made)
        again()
    assert number > 30


def lose(worktree: Path) -> None:
    shutil.rmtree(worktree)


def litter(worktree: Path) -> None:
    (worktree / "a.txt").unlink()
    (worktree / "left over").write_text("x")


@pytest.mark.parametrize("damage", [lose, litter])
async def test_a_restore_killed_before_any_step_is_finished_by_the_next_call(
    built: Project, run: Run, damage: Callable[[Path], None]
) -> None:
    repository = await Repository.open(built.path)
    worktree = await repository.worktree(WORK, TASK)
    expected, changes = files(worktree.path), (await worktree.snapshot(1)).changes
    step, code = 0, KILLED
    while code == KILLED:
        step += 1
        damage(worktree.path)
        code = run("restore", built.path, step)
        await (await repository.worktree(WORK, TASK)).restore(1)
        assert files(worktree.path) == expected
        assert (await worktree.snapshot(1)).changes == changes
    assert step > 10


async def test_a_snapshot_killed_before_any_step_is_finished_by_the_next_call(
    built: Project, run: Run
) -> None:
    repository = await Repository.open(built.path)
    worktree = await repository.worktree(WORK, TASK)
    before = await worktree.find_latest()
    assert before is not None
    built.write({"a.txt": "once more\n", "more.txt": "more\n"}, at=worktree.path)
    after = {*before.changes, FileChange(action="created", path="more.txt")}
    step, code = 0, KILLED
    while code == KILLED:
        step += 1
        code = run("snapshot", built.path, step)
        found = await worktree.find_latest()
        assert found is not None
        assert found == before or set(found.changes) == after
    assert set(found.changes) == after
    assert built.show("a.txt", found.commit) == "once more"
    assert step > 8
