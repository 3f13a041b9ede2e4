"""`works/WORK-LIST.md`: which works there are, and which id is the next."""

import re
from collections.abc import Iterable
from datetime import date
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from batonbus_agents.works.markdown import Document, Table, cells
from batonbus_agents.works.names import work_id
from batonbus_agents.works.problems import Problems, Reading
from batonbus_agents.works.stamps import day_of
from batonbus_agents.works.words import WORK_COLUMNS, is_nothing, key_of, plain

WorkStatus = Literal["IN_PROGRESS", "DONE", "COMPLETED"]

NEXT_STATUS: dict[WorkStatus, WorkStatus] = {"IN_PROGRESS": "DONE", "DONE": "COMPLETED"}
"""DONE: the last task is committed. COMPLETED: the folder is put away, the row goes."""

_STATUSES: dict[str, WorkStatus] = {
    "IN_PROGRESS": "IN_PROGRESS",
    "DONE": "DONE",
    "COMPLETED": "COMPLETED",
}
_LAST = re.compile(r"LAST_WORK_ID\s*:\s*(?P<id>\S*)")


class WorkEntry(Struct, frozen=True, kw_only=True):
    """One work's row; the days are days in UTC."""

    work: str
    title: str = ""
    status: WorkStatus = "IN_PROGRESS"
    created: date | None = None
    done: date | None = None


class WorkList(Struct, frozen=True, kw_only=True):
    """The works that are open, and the highest id that was ever given."""

    last: str | None = None
    works: tuple[WorkEntry, ...] = ()

    def find(self, work: str) -> WorkEntry | None:
        return next((it for it in self.works if it.work == work), None)


def next_work_id(works: WorkList, folders: Iterable[str]) -> str:
    """One more than the highest id of the list and of the folders, `_COMPLETED/` included.

    Names of folders that are no work's are passed over.
    """
    known = [it.work for it in works.works] + ([works.last] if works.last else [])
    numbers = [int(found[1]) for it in (*known, *folders) if (found := _number(it))]
    return f"WORK-{max(numbers, default=0) + 1:02d}"


def with_work(works: WorkList, entry: WorkEntry) -> WorkList:
    """The list with a new work. Raises ValueError where the id is there already."""
    if works.find(entry.work):
        raise ValueError(f"{entry.work} stands in the list already: take the next id")
    last = max(filter(None, (works.last, entry.work)), key=lambda it: int(it[5:]))
    return WorkList(last=last, works=(*works.works, entry))


def with_status(works: WorkList, work: str, status: WorkStatus, day: date) -> WorkList:
    """The list after a work's next status; a COMPLETED work has no row.

    Raises ValueError for a work that is not there, and for a step that does not follow.
    """
    entry = works.find(work)
    if entry is None:
        raise ValueError(f"{work} does not stand in the list")
    if NEXT_STATUS.get(entry.status) != status:
        raise ValueError(f"{work} is {entry.status}, so it cannot become {status}")
    done = [] if status == "COMPLETED" else [replace(entry, status=status, done=day)]
    kept = [row for it in works.works for row in (done if it.work == work else [it])]
    return WorkList(last=works.last, works=tuple(kept))


def read_work_list(text: str, file: str = "WORK-LIST.md") -> Reading[WorkList]:
    """Reads the list as far as it goes, with everything that is wrong with it."""
    document, problems = Document(text), Problems(file)
    last = _last(document, problems)
    found: dict[str, WorkEntry] = {}
    for table in (table for section in document.sections for table in section.tables()):
        for line, entry in _rows(table, problems):
            if entry.work in found:
                problems.refuse(line, f"{entry.work} is there twice: give each work its id")
            found.setdefault(entry.work, entry)
    return problems.reading(WorkList(last=last, works=tuple(found.values())))


def parse_work_list(text: str, file: str = "WORK-LIST.md") -> WorkList:
    """The list. Raises `WorksFileError` with everything that is wrong with its file."""
    return read_work_list(text, file).whole()


def render_work_list(works: WorkList) -> str:
    """The list's file."""
    head = [f"LAST_WORK_ID: {works.last}", ""] if works.last else []
    table = [cells("WORK", "Title", "Status", "Created", "Done"), "|---|---|---|---|---|"]
    rows = [
        cells(it.work, it.title, it.status, _day(it.created), _day(it.done)) for it in works.works
    ]
    return "\n".join([*head, *table, *rows]) + "\n"


def _day(day: date | None) -> str:
    return day.isoformat() if day else ""


def _number(name: str) -> re.Match[str] | None:
    return re.fullmatch(r"WORK-([0-9]{1,9})", name)


def _last(document: Document, problems: Problems) -> str | None:
    for line, text in enumerate(document.lines, 1):
        found = _LAST.match(text)
        if found:
            try:
                return None if is_nothing(found["id"]) else work_id(found["id"])
            except ValueError as error:
                problems.refuse(line, error)
                return None
    problems.warn(1, "no line 'LAST_WORK_ID: WORK-NN'")
    return None


def _rows(table: Table, problems: Problems) -> list[tuple[int, WorkEntry]]:
    columns = [key_of(cell, WORK_COLUMNS) for cell in table.header]
    if "work" not in columns or "status" not in columns:
        problems.refuse(table.line, "the table of works needs the columns WORK and Status")
        return []
    found: list[tuple[int, WorkEntry]] = []
    for line, row in table.rows:
        if not any(row):
            continue
        cell = {it: text for it, text in zip(columns, row, strict=True) if it}
        try:
            found.append((line, _entry(cell, line, problems)))
        except ValueError as error:
            problems.refuse(line, error)
    return found


def _entry(cell: dict[str, str], line: int, problems: Problems) -> WorkEntry:
    status = _STATUSES.get(plain(cell["status"]).upper())
    if status is None:
        raise ValueError(f"status {cell['status']!r} is none of {', '.join(_STATUSES)}")
    return WorkEntry(
        work=work_id(cell["work"]),
        title=cell.get("title", ""),
        status=status,
        created=day_of("created", cell.get("created", ""), line, problems),
        done=day_of("done", cell.get("done", ""), line, problems),
    )
