"""What a runtime is given, and the one shape that every runtime has."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from batonbus_schemas import TaskResult


class Assignment(Struct, frozen=True, kw_only=True):
    """One attempt of one role at one task.

    `task` is blank where the role works on a whole work. `text` is the dispatch with its window, as
    a person or a model reads it. `cwd` is the folder that the role works in, such as the task's
    worktree. `extra` are environment variables for the programs that it starts.
    """

    role: str
    work: str
    task: str
    attempt: int
    text: str
    cwd: Path
    extra: dict[str, str] = {}


class Runtime(Protocol):
    """How a role thinks: any async function from an assignment to a result will do.

    What it raises is a failed attempt; a result of status FAIL is a finding, not an error.
    """

    async def __call__(self, assignment: Assignment, /) -> TaskResult: ...
