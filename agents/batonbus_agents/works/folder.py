"""The works files on disk: the only module of this package that reads and writes files.

What a person wrote (Requirement, PLAN, TASK) is created once and never rewritten. Status files are
a projection that is written anew: each is put in place whole, or not at all.
"""

import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import date
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import anyio

from batonbus_agents.works.execution_log import LogEntry, read_log, render_entry, render_log
from batonbus_agents.works.names import FileKind, task_file, task_file_name, work_id
from batonbus_agents.works.plan import Plan, read_plan, render_plan
from batonbus_agents.works.problems import Problem, Reading
from batonbus_agents.works.progress import Progress, read_progress, render_progress
from batonbus_agents.works.requirement import Requirement, read_requirement, render_requirement
from batonbus_agents.works.result import Result, read_result, render_result
from batonbus_agents.works.task import TaskSpec, read_task, render_task
from batonbus_agents.works.work import TaskFiles, Work, contradictions
from batonbus_agents.works.work_list import (
    WorkEntry,
    WorkList,
    WorkStatus,
    next_work_id,
    read_work_list,
    render_work_list,
    with_status,
    with_work,
)

T = TypeVar("T")

REQUIREMENT, PLAN, LOG = "Requirement.md", "PLAN.md", "execution-log.md"
WORK_LIST, PUT_AWAY = "WORK-LIST.md", "_COMPLETED"

LOCK_WAIT = 120.0
"""Seconds to wait for another process that writes into the same list or log."""

LOCK_INTERVAL = 0.02
"""Seconds between two looks whether it has ended."""

_READERS: dict[FileKind, Callable[[str, str], Reading[Any]]] = {
    "spec": read_task,
    "progress": read_progress,
    "result": read_result,
}


class WorkFolder:
    """The folder `works/WORK-NN` of one work."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.work = self.path.name

    def read(self) -> Reading[Work]:
        """Reads everything in the folder, in the old layout or the new, as far as it goes.

        `read().whole()` is the work, or `WorksFileError` with all that is wrong with its files.
        """
        found: list[Problem] = []
        if not (self.path / PLAN).is_file():
            found.append(Problem(self._label(PLAN), 1, "is not there: a work needs its plan"))
        try:
            work_id(self.work)
        except ValueError as error:
            found.append(Problem(self.work, 1, f"the folder's name: {error}"))
        work = Work(
            id=self.work,
            requirement=self._read(REQUIREMENT, read_requirement, found),
            plan=self._read(PLAN, read_plan, found),
            tasks=self._tasks(found),
            log=self._read(LOG, read_log, found) or (),
        )
        return Reading(work, tuple(sorted({*found, *contradictions(work)})))

    def progress(self, task: str) -> Reading[Progress | None]:
        """A task's progress as far as it can be read, for the gate; None where there is none."""
        return self._one(task, "progress", read_progress)

    def result(self, task: str) -> Reading[Result | None]:
        """A task's result as far as it can be read; None where there is none."""
        return self._one(task, "result", read_result)

    def create_requirement(self, requirement: Requirement, language: str = "en") -> None:
        """Raises FileExistsError where it is there already, as the next two do."""
        self._create(REQUIREMENT, render_requirement(requirement, language))

    def create_plan(self, plan: Plan) -> None:
        self._create(PLAN, render_plan(plan))

    def create_task(self, spec: TaskSpec, language: str = "en") -> None:
        self._create(task_file_name(spec.id, "spec"), render_task(spec, language))

    def write_progress(self, progress: Progress) -> None:
        self._project(progress.task, "progress", render_progress(progress))

    def write_result(self, result: Result, language: str = "en") -> None:
        self._project(result.task, "result", render_result(result, language))

    def log(self) -> tuple[LogEntry, ...]:
        """The entries of the log as far as they can be read."""
        return self._read(LOG, read_log, []) or ()

    async def keep_in_log(
        self, entry: LogEntry, is_same: Callable[[LogEntry], bool]
    ) -> LogEntry | None:
        """Adds an entry where none `is_same`; what stands in the log stays as it is. Returns the
        newest that is, as it can be read back; None where it cannot. Raises TimeoutError."""
        async with _in_turn(self.path):
            if not any(map(is_same, self.log())):
                self._append_log(entry)
            return next(filter(is_same, reversed(self.log())), None)

    def _append_log(self, entry: LogEntry) -> None:
        path = self.path / LOG
        if path.is_file():
            write_whole(path, f"{_text(path).rstrip()}\n\n{render_entry(entry)}")
        else:
            write_whole(path, render_log(self.work, (entry,)))

    def _label(self, name: str) -> str:
        return f"{self.work}/{name}"

    def _read(
        self, name: str, read: Callable[[str, str], Reading[T]], found: list[Problem]
    ) -> T | None:
        path = self.path / name
        if not path.is_file():
            return None
        try:
            reading = read(_text(path), self._label(name))
        except UnicodeDecodeError as error:
            found.append(Problem(self._label(name), 1, _not_utf8(error)))
            return None
        found += reading.problems
        return reading.value

    def _one(
        self, task: str, kind: FileKind, read: Callable[[str, str], Reading[T]]
    ) -> Reading[T | None]:
        found: list[Problem] = []
        names = self._names(found).get((task, kind), [])
        return Reading(self._read(names[0], read, found) if names else None, tuple(found))

    def _tasks(self, found: list[Problem]) -> tuple[TaskFiles, ...]:
        tasks: dict[str, dict[str, Any]] = {}
        for (task, kind), (name, *others) in self._names(found).items():
            if others:
                told = f"{name} and {', '.join(others)} are both the {kind} of {task}: keep one"
                found.append(Problem(self._label(name), 1, told))
            parts = tasks.setdefault(task, {"names": {}})
            parts[kind] = self._read(name, _READERS[kind], found)
            parts["names"][kind] = name
        return tuple(TaskFiles(id=task, **tasks[task]) for task in sorted(tasks, key=_number))

    def _names(self, found: list[Problem]) -> dict[tuple[str, FileKind], list[str]]:
        """The files of each task and kind, those of the new layout first."""
        names: dict[tuple[str, FileKind], list[tuple[bool, str]]] = {}
        for path in sorted(self.path.iterdir()):
            try:
                it = task_file(path.name, self.work) if path.is_file() else None
            except ValueError as error:
                found.append(Problem(self._label(path.name), 1, str(error)))
                continue
            if it:
                names.setdefault((it.task, it.kind), []).append((it.old, path.name))
        return {key: [name for _, name in sorted(it)] for key, it in names.items()}

    def _create(self, name: str, text: str) -> None:
        temporary = _written(self.path / name, text)
        try:
            # A link, for it is refused where the name is taken; a rename would take its place.
            os.link(temporary, self.path / name)
        finally:
            temporary.unlink()

    def _project(self, task: str, kind: FileKind, text: str) -> None:
        """Writes a status file; one of the old layout gets the new name first, so that there are
        never two."""
        target = self.path / task_file_name(task, kind)
        names = self._names([]).get((task, kind), [target.name])
        if names[0] != target.name:
            (self.path / names[0]).replace(target)
        write_whole(target, text)


class WorksRoot:
    """The folder `works/`: its list, and the works in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folder(self, work: str) -> WorkFolder:
        """A work's folder, also where it is put away in `_COMPLETED/`."""
        away = self.path / PUT_AWAY / work
        return WorkFolder(away if away.is_dir() else self.path / work)

    def read_list(self) -> Reading[WorkList]:
        """The list; empty where there is none yet."""
        path = self.path / WORK_LIST
        if not path.is_file():
            return Reading(WorkList())
        try:
            return read_work_list(_text(path), WORK_LIST)
        except UnicodeDecodeError as error:
            return Reading(WorkList(), (Problem(WORK_LIST, 1, _not_utf8(error)),))

    def new_work(self, title: str, day: date) -> WorkFolder:
        """Takes the next id by making its folder, then adds it to the list as IN_PROGRESS.

        Raises `WorksFileError` where the list cannot be read.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with _locked(self.path):
            works = self.read_list().whole()
            work = next_work_id(works, self._names())
            (self.path / work).mkdir()
            row = WorkEntry(work=work, title=title, created=day)
            write_whole(self.path / WORK_LIST, render_work_list(with_work(works, row)))
        return WorkFolder(self.path / work)

    async def set_status(self, work: str, status: WorkStatus, day: date) -> None:
        """Takes a work to its next status; COMPLETED puts its folder away in `_COMPLETED/`.

        Raises ValueError for a step that does not follow, TimeoutError.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        async with _in_turn(self.path):
            works = with_status(self.read_list().whole(), work, status, day)
            if status == "COMPLETED" and (self.path / work).is_dir():
                (self.path / PUT_AWAY).mkdir(exist_ok=True)
                (self.path / work).rename(self.path / PUT_AWAY / work)
            write_whole(self.path / WORK_LIST, render_work_list(works))

    def _names(self) -> list[str]:
        homes = (self.path, self.path / PUT_AWAY)
        return [it.name for home in homes if home.is_dir() for it in home.iterdir()]


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """One process at a time reads, changes and writes a list or a log. The lock is on the folder,
    and ends with whoever holds it."""
    with _opened(path) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield


@asynccontextmanager
async def _in_turn(path: Path) -> AsyncGenerator[None]:
    """The same for who has leases to keep meanwhile. Raises TimeoutError after LOCK_WAIT."""
    with _opened(path) as folder:
        with anyio.move_on_after(LOCK_WAIT) as waiting:
            while not _is_taken(folder):  # noqa: ASYNC110 - no event tells of another process's lock
                await anyio.sleep(LOCK_INTERVAL)
        if waiting.cancelled_caught:
            raise TimeoutError(
                f"another process has written into {path} for {LOCK_WAIT:g} s: end it, and try "
                "again"
            )
        yield


@contextmanager
def _opened(path: Path) -> Generator[int]:
    folder = os.open(path, os.O_RDONLY)
    try:
        yield folder
    finally:
        os.close(folder)


def _is_taken(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def work_folders(path: Path) -> list[Path]:
    """The folders of works at or below a path; hidden folders and links are not entered."""
    if _is_work(path) or (path / PLAN).is_file():
        return [path]
    found: list[Path] = []
    for home, names, _ in os.walk(path):
        works = sorted(name for name in names if _is_work(Path(home, name)))
        found += [Path(home, name) for name in works]
        names[:] = [name for name in names if name not in works and not name.startswith(".")]
    return sorted(found)


def write_whole(path: Path, text: str) -> None:
    """Puts a file in place whole, also where the process dies at any instant."""
    temporary = _written(path, text)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink()
        raise


def _written(path: Path, text: str) -> Path:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _text(path: Path) -> str:
    return path.read_bytes().decode()


def _number(task: str) -> int:
    return int(task.removeprefix("TASK-"))


def _is_work(path: Path) -> bool:
    return path.is_dir() and path.name.casefold().startswith("work-")


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"is not UTF-8 at byte {error.start}"
