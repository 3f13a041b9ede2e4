"""A program that dies on the way: a child for each request, which kills itself before the step of
that number, and whose exit code is the answer.

A step is whatever may change a file or start a program, as Python's audit events tell it.
"""

import json
import os
import signal
import sys
from pathlib import Path

import anyio
from git_project import TASK, WORK

from batonbus_agents.repository import Repository

STEPS = {
    "fcntl.flock",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "shutil.copyfile",
    "subprocess.Popen",
}


def die_before(step: int) -> None:
    """Kill this process before the step of that number (from 1)."""
    done = 0

    def count(event: str, _: object) -> None:
        nonlocal done
        if event in STEPS:
            done += 1
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


async def commit(folder: Path, step: int) -> None:
    """Commit the task's latest snapshot, all its files declared."""
    repository = await Repository.open(folder)
    worktree = await repository.worktree(WORK, TASK)
    snapshot = await worktree.find_latest()
    assert snapshot is not None
    declared = [it.path for it in snapshot.changes]
    die_before(step)
    await repository.commit_task(WORK, TASK, snapshot, declared, "do")


async def restore(folder: Path, step: int) -> None:
    """Open the task's work tree and restore the first attempt."""
    repository = await Repository.open(folder)
    die_before(step)
    await (await repository.worktree(WORK, TASK)).restore(1)


async def snapshot(folder: Path, step: int) -> None:
    """Record what stands in the task's work tree as the first attempt."""
    repository = await Repository.open(folder)
    die_before(step)
    await (await repository.worktree(WORK, TASK)).snapshot(1)


ACTIONS = {"commit": commit, "restore": restore, "snapshot": snapshot}


def main() -> None:
    """Answer each request, one a line, with an exit code."""
    for line in sys.stdin:
        action, folder, step, variables = json.loads(line)
        child = os.fork()
        if not child:
            os.environ.update(variables)
            anyio.run(ACTIONS[action], Path(folder), step)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
