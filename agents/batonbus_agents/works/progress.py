"""`TASK-NN_progress.md`: how far a builder is, and the gate that the committer asks."""

import re
from datetime import datetime
from typing import Literal

from msgspec import Struct

from batonbus_agents.works.files import FileEntry, changed_files, listed_files, render_file_entry
from batonbus_agents.works.markdown import Document, Entry, heading_line, split_label
from batonbus_agents.works.problems import Problems, Reading
from batonbus_agents.works.stamps import moment_of, stamp
from batonbus_agents.works.title import read_title
from batonbus_agents.works.words import PROGRESS_KEYS, is_heading, key_of, plain

Status = Literal["PENDING", "STARTED", "IN_PROGRESS", "COMPLETED"]
Reason = Literal["progress.md not found", "Status is not COMPLETED", "no files changed"]

_STATUSES: dict[str, Status] = {
    "PENDING": "PENDING",
    "STARTED": "STARTED",
    "IN_PROGRESS": "IN_PROGRESS",
    "COMPLETED": "COMPLETED",
}
_ATTEMPTS = re.compile(r"(?:\w+_)?attempts")


class Progress(Struct, frozen=True, kw_only=True):
    """How far one task is. `attempts` keeps lines such as `retry_builder_attempts: 2`."""

    task: str
    status: Status = "PENDING"
    started: datetime | None = None
    updated: datetime | None = None
    files: tuple[FileEntry, ...] = ()
    attempts: dict[str, int] = {}


def gate(progress: Progress | None) -> Reason | None:
    """Why a task may not be committed, or None (seed 000: the committer's gate)."""
    if progress is None:
        return "progress.md not found"
    if progress.status != "COMPLETED":
        return "Status is not COMPLETED"
    return None if progress.files else "no files changed"


def read_progress(text: str, file: str) -> Reading[Progress]:
    """Reads a progress file as far as it goes. A status that cannot be read stays PENDING, so the
    gate never opens on it."""
    document, problems = Document(text), Problems(file)
    title = read_title(document, problems)
    lines = _Lines(problems)
    changed: tuple[FileEntry, ...] = ()
    for section in document.sections:
        if is_heading(section.title, "files_changed"):
            changed += changed_files(document, section, problems)
        elif section.level < 2:
            lines.read(section.entries())
    files: dict[str, FileEntry] = {}
    for entry in (*listed_files(lines.listed, problems), *changed):
        files.setdefault(entry.path, entry)
    progress = Progress(
        task=title.task,
        status=lines.status(),
        started=lines.moments.get("started"),
        updated=lines.moments.get("updated"),
        files=tuple(files.values()),
        attempts=lines.attempts,
    )
    return problems.reading(progress)


def parse_progress(text: str, file: str) -> Progress:
    """The progress. Raises `WorksFileError` with everything that is wrong with its file."""
    return read_progress(text, file).whole()


def render_progress(progress: Progress) -> str:
    """The progress file. Raises ValueError for a path that is not safe."""
    moments = (("Started", progress.started), ("Updated", progress.updated))
    lines = [
        heading_line(1, f"{progress.task} Progress"),
        "",
        f"- Status: {progress.status}",
        *(f"- {name}: {stamp(moment) if moment else '—'}" for name, moment in moments),
        *(f"- {name}: {count}" for name, count in progress.attempts.items()),
        "- Files changed:",
        *([f"  - {render_file_entry(file)}" for file in progress.files] or ["  - (none)"]),
    ]
    return "\n".join(lines) + "\n"


class _Lines:
    """Reads `Key: value` lines, with a dash or without; what follows `Files changed:` is listed."""

    def __init__(self, problems: Problems) -> None:
        self.moments: dict[str, datetime | None] = {}
        self.attempts: dict[str, int] = {}
        self.listed: list[Entry] = []
        self._statuses: dict[str, Entry] = {}
        self._problems = problems

    def read(self, entries: list[Entry]) -> None:
        listing = False
        for entry in entries:
            label = split_label(entry.text)
            key = _key(label[1]) if label else None
            if label is None or key is None:
                self.listed += [entry] if listing else []
                continue
            listing = key == "files"
            self._keep(key, label[2].strip(), entry)

    def status(self) -> Status:
        """The one status that the file tells; PENDING where it tells none, or several."""
        known: list[Status] = [_STATUSES[text] for text in self._statuses if text in _STATUSES]
        for text, entry in self._statuses.items():
            if text not in _STATUSES:
                told = f"{entry.text!r} is none of {', '.join(_STATUSES)}"
                self._problems.refuse(entry.line, told)
        if not self._statuses:
            self._problems.refuse(
                1, f"no Status: write '- Status: ' and one of {', '.join(_STATUSES)}"
            )
        if len(known) > 1:
            last = max(entry.line for entry in self._statuses.values())
            self._problems.refuse(last, f"Status is {' and '.join(known)}: keep one")
        return known[0] if len(self._statuses) == len(known) == 1 else "PENDING"

    def _keep(self, key: str, value: str, entry: Entry) -> None:
        if key == "status":
            self._statuses.setdefault(re.sub(r"[\s-]+", "_", plain(value)).upper(), entry)
        elif key == "files":
            self.listed += [Entry(entry.line, entry.depth + 1, value)] if value else []
        elif key in ("started", "updated"):
            self.moments[key] = moment_of(key.capitalize(), value, entry.line, self._problems)
        elif value.isascii() and value.isdecimal():
            self.attempts[key] = int(value)
        else:
            self._problems.refuse(entry.line, f"{key} {value!r} is no number")


def _key(label: str) -> str | None:
    attempts = _ATTEMPTS.fullmatch(plain(label))
    return attempts[0] if attempts else key_of(label, PROGRESS_KEYS)
