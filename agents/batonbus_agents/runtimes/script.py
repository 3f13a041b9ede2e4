"""A recorded script as a runtime: what an agent changed and said, played back.

Only that is recorded. What follows from it, the checks, the gate and the commit, is real.
"""

import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import anyio
import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from batonbus import BatonbusError, run_program
from batonbus_agents.excerpt import shortened
from batonbus_agents.runtimes.assignment import Assignment
from batonbus_schemas import FileChange, TaskResult

GIT_TIMEOUT = 30.0
"""Seconds that one patch may take to apply."""

ERROR_LIMIT = 1_000
"""Bytes of a failed program's output that an error quotes."""

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Said = Annotated[str, Meta(pattern=r"\S")]

_HEADER = re.compile(r"^diff --git ", re.MULTILINE)
_FILE = re.compile(r"^diff --git a/(?P<path>.+) b/(?P=path)\n(?P<mode>new|deleted)?", re.MULTILINE)
_ACTIONS: dict[str | None, Literal["created", "modified", "deleted"]] = {
    "new": "created",
    "deleted": "deleted",
    None: "modified",
}


class ScriptError(BatonbusError):
    """A recorded script cannot be read, or cannot be played in this folder."""


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One attempt of a role at a task, as it was recorded: `patch`, then `delay` seconds, then
    `commands` (command lines, without a shell), then the answer. `patch` is a diff of git, or the
    name of a file with one."""

    role: Said
    task: str = ""
    attempt: Positive = 1
    patch: str = ""
    delay: Seconds = 0.0
    commands: tuple[Said, ...] = ()
    status: Literal["PASS", "FAIL"] = "PASS"
    what: Said
    why: str = ""
    caution: str = ""
    incomplete: str = ""
    summary: str = ""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    step: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ScriptRuntime:
    """Plays a script's step for the role, the task and the attempt; where that attempt was not
    recorded, the last one before it.

    Patches build on each other: what the tree lacks of the earlier attempts' is applied first, and
    what stands in it already (the process died, or the attempt is tried again) is not applied
    twice. Raises ScriptError for a step that is not there, a patch that does not fit, and a command
    that fails; ProgramError for one that takes more than `time_limit` seconds.
    """

    name: str
    steps: tuple[Step, ...]
    time_limit: float = 3600.0

    async def __call__(self, assignment: Assignment, /) -> TaskResult:
        steps = self._steps_until(assignment)
        patches = [step.patch for step in steps if step.patch]
        await _apply_missing(patches, assignment.cwd)
        await anyio.sleep(steps[-1].delay)
        for command in steps[-1].commands:
            await self._run(command, assignment)
        return replace(
            _answer(steps[-1], patches),
            work=assignment.work,
            task=assignment.task or None,
            agent=assignment.role,
        )

    def _steps_until(self, assignment: Assignment) -> list[Step]:
        """The steps of this role and task until this attempt, in order; at least one."""
        wanted = (assignment.role, assignment.task)
        mine = [step for step in self.steps if (step.role, step.task) == wanted]
        found = [step for step in mine if step.attempt <= assignment.attempt]
        if not found:
            has = ", ".join(_label(step) for step in mine or self.steps) or "none"
            asked = _named(assignment.role, assignment.task, assignment.attempt)
            raise ScriptError(f"{self.name} has no step for {asked}; it has: {has}")
        return sorted(found, key=lambda step: step.attempt)

    async def _run(self, command: str, assignment: Assignment) -> None:
        ended = await run_program(
            shlex.split(command),
            cwd=assignment.cwd,
            time_limit=self.time_limit,
            extra=assignment.extra,
            merged=True,
        )
        if ended.code != 0:
            raise ScriptError(
                f"{self.name}: {command} ended with exit code {ended.code}: "
                f"{shortened(ended.stdout.strip(), ERROR_LIMIT)}"
            )


def read_script(path: Path, *, time_limit: float = 3600.0) -> ScriptRuntime:
    """The runtime that plays a script: TOML with a table `[[step]]` for each attempt.

    Raises ScriptError where it cannot be read, or two steps are of one attempt.
    """
    try:
        script = msgspec.convert(tomllib.loads(path.read_text()), _File)
        steps = tuple(_with_patch(step, path.parent) for step in script.step)
    except (OSError, ValueError) as error:
        raise ScriptError(f"{path}: {error}") from None
    counted = Counter(map(_label, steps))
    if twice := [label for label, count in counted.items() if count > 1]:
        raise ScriptError(f"{path} has more than one step for {', '.join(twice)}")
    return ScriptRuntime(path.name, steps, time_limit)


def _label(step: Step) -> str:
    return _named(step.role, step.task, step.attempt)


def _named(role: str, task: str, attempt: int) -> str:
    return f"{role} {task} #{attempt}" if task else f"{role} #{attempt}"


def _with_patch(step: Step, folder: Path) -> Step:
    """The step with its patch itself. Raises ValueError for one that is not as git writes it."""
    if not step.patch:
        return step
    patch = step.patch if "\n" in step.patch else (folder / step.patch).read_text()
    known = len(_FILE.findall(patch))
    if not known or known != len(_HEADER.findall(patch)):
        raise ValueError(f"the patch of {_label(step)} is not one of `git diff --no-renames`")
    return replace(step, patch=patch)


def _answer(step: Step, patches: Sequence[str]) -> TaskResult:
    make = TaskResult.passed if step.status == "PASS" else TaskResult.failed
    result = make(
        step.what,
        why=step.why,
        caution=step.caution,
        incomplete=step.incomplete,
        files=_changes(patches),
    )
    return replace(result, summary=step.summary or result.summary)


def _changes(patches: Sequence[str]) -> tuple[FileChange, ...]:
    """The files of all patches, each with what the first one did to it."""
    changes: dict[str, FileChange] = {}
    for patch in patches:
        for path, mode in _FILE.findall(patch):
            changes.setdefault(path, FileChange(action=_ACTIONS[mode or None], path=path))
    return tuple(changes.values())


async def _apply_missing(patches: Sequence[str], cwd: Path) -> None:
    """Bring a tree to where the last patch leads, from wherever between them it is."""
    applied = len(patches)
    while applied and await _git_apply(patches[applied - 1], cwd, "--reverse", "--check"):
        applied -= 1
    for patch in patches[applied:]:
        if problem := await _git_apply(patch, cwd):
            raise ScriptError(f"a patch does not fit the files in {cwd}: {problem}")


async def _git_apply(patch: str, cwd: Path, *options: str) -> str:
    """Blank where git could do it, or else what it said."""
    ended = await run_program(
        ("git", "apply", "--whitespace=nowarn", *options),
        text=patch,
        cwd=cwd,
        time_limit=GIT_TIMEOUT,
        # In a folder inside of a repository git would patch nothing, and call it done.
        extra={"GIT_CEILING_DIRECTORIES": str(cwd.parent)},
        merged=True,
    )
    said = ended.stdout.strip() or f"git apply ended with exit code {ended.code}"
    return shortened(said, ERROR_LIMIT) if ended.code else ""
