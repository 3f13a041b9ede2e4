"""The ids of works and tasks, and the names of a task's files: one canonical spelling each."""

import re
from typing import Literal

from msgspec import Struct

FileKind = Literal["spec", "progress", "result"]

_PART = r"[0-9A-Za-z]+"
# `task-specific` is a word; `task-1` and `TASK-A` mean a task.
_TASK_LIKE = re.compile(rf"(?:WORK-{_PART}-)?(?:TASK-{_PART}|(?i:task)-[0-9]+)(?:[._-]{_PART})*")
_TASK_FILE_LIKE = re.compile(r"(?:WORK-\w+-)?task[-_ ]*[0-9].*\.md", re.IGNORECASE)
_KINDS: dict[str | None, FileKind] = {
    None: "spec",
    "progress": "progress",
    "result": "result",
}
_STEM = re.compile(r"(?P<name>.*?)(?:(?P<join>[_-])(?P<kind>progress|result))?")


def work_id(name: str) -> str:
    """`WORK-NN` as it is; any other spelling raises ValueError with the right one."""
    return _canonical("WORK", name)


def task_id(name: str, work: str | None = None) -> str:
    """`TASK-NN` as it is (seed 002, section 1); any other spelling raises ValueError.

    With `work`, the older spelling `WORK-NN-TASK-NN` of a task of that work is read as well.
    """
    prefix, task = split_task(name)
    if prefix is not None and work is None:
        raise ValueError(f"{name!r} carries the work's prefix: write {task}")
    if prefix is not None and prefix != work:
        raise ValueError(f"{name!r} is a task of {prefix}, and this is {work}: name its own tasks")
    return task


def split_task(name: str) -> tuple[str | None, str]:
    """The work's prefix, if there is one, and the canonical id of a task. Raises ValueError."""
    prefix, joined, rest = name.partition("-TASK-")
    if joined and prefix.startswith("WORK-"):
        return work_id(prefix), _canonical("TASK", f"TASK-{rest}")
    return None, _canonical("TASK", name)


def _canonical(kind: str, name: str) -> str:
    number = re.fullmatch(rf"{kind}-([0-9]{{1,9}})", name)
    if number is None:
        raise ValueError(f"{name!r} is no {kind.lower()} id: write {kind}-NN, such as {kind}-01")
    canonical = f"{kind}-{int(number[1]):02d}"
    if name != canonical:
        raise ValueError(f"{name!r} is not the one spelling of this id: write {canonical}")
    return canonical


def task_names(text: str) -> list[re.Match[str]]:
    """Everything in a text that means a task, rightly spelled or not."""
    return list(_TASK_LIKE.finditer(text))


class TaskFile(Struct, frozen=True):
    """What a file's name says: of which task it is, which kind, and in which layout."""

    task: str
    kind: FileKind
    old: bool = False


def task_file(name: str, work: str) -> TaskFile | None:
    """What the name of a file in the folder of `work` says; None where it is no task's file.

    The old layout (`WORK-01-TASK-00-result.md`) is read. Raises ValueError for a name that means
    a task and does not spell it: `TASK-1.md`, `task-01.md`, `TASK-01.claimed-2.md`.
    """
    if not _TASK_FILE_LIKE.fullmatch(name):
        return None
    if not name.endswith(".md"):
        raise ValueError(f"{name!r} does not end in .md: write TASK-NN.md")
    stem = _STEM.fullmatch(name[: -len(".md")])
    assert stem is not None
    kind = _KINDS[stem["kind"]]
    task = task_id(stem["name"], work)
    old = stem["name"] != task
    if stem["join"] == "-" and not old:
        raise ValueError(f"{name!r}: write {task_file_name(task, kind)}")
    return TaskFile(task, kind, old)


def task_file_name(task: str, kind: FileKind) -> str:
    """The name under which a task's file is written."""
    return f"{task}.md" if kind == "spec" else f"{task}_{kind}.md"
