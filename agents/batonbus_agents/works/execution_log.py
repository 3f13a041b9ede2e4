"""`execution-log.md`: what was done at each boundary, and where the next session goes on.

It outlives every session (seed 004): an entry without its next step is no checkpoint.
"""

import re
from datetime import datetime

from msgspec import Struct

from batonbus_agents.works.markdown import (
    Document,
    Section,
    field_line,
    heading_line,
    one_line,
)
from batonbus_agents.works.problems import Problems, Reading
from batonbus_agents.works.stamps import parse_stamp, stamp
from batonbus_agents.works.words import LOG_FIELDS, is_nothing, key_of

_ENTRY_LEVEL = 3


class LogEntry(Struct, frozen=True, kw_only=True):
    """One checkpoint: what was done, which checks ran with what result, what comes next, and
    whether the context was cleared or compacted, and why."""

    written: datetime
    summary: str = ""
    phase: str = ""
    did: str = ""
    checks: str = ""
    next: str = ""
    context: str = ""


def read_log(text: str, file: str = "execution-log.md") -> Reading[tuple[LogEntry, ...]]:
    """The entries in the order of the file, with everything that is wrong with them.

    An entry whose moment cannot be known is refused and not among them.
    """
    document, problems = Document(text), Problems(file)
    entries = [
        _entry(document, section, problems)
        for section in document.sections
        if section.level == _ENTRY_LEVEL
    ]
    return problems.reading(tuple(entry for entry in entries if entry))


def render_log(work: str, entries: tuple[LogEntry, ...]) -> str:
    """A log's whole file."""
    return "\n".join([f"# Execution log — {work}\n", *map(render_entry, entries)])


def render_entry(entry: LogEntry) -> str:
    """One entry, as it is appended to the log."""
    summary = one_line(entry.summary)
    told = (
        ("Phase", entry.phase),
        ("Did", entry.did),
        ("Checks", entry.checks),
        ("Next", entry.next),
        ("Context", entry.context),
    )
    title = f"{stamp(entry.written)} — {summary}" if summary else stamp(entry.written)
    fields = [field_line(name, text) for name, text in told]
    return "\n".join([heading_line(_ENTRY_LEVEL, title), "", *fields]) + "\n"


def _entry(document: Document, section: Section, problems: Problems) -> LogEntry | None:
    moment, *summary = re.split(r"\s+[—–-]\s+", section.title, maxsplit=1)
    _, fields = document.fields(section, _field_name)
    told = {it.name: it.text for it in fields if it.name in LOG_FIELDS}
    for name, spellings in LOG_FIELDS.items():
        text = told.get(name, "")
        if not text or (name == "next" and is_nothing(text)):
            problems.refuse(section.line, f"{spellings[0]} is empty: this entry is no checkpoint")
    try:
        return LogEntry(written=parse_stamp(moment.strip()), summary="".join(summary), **told)
    except ValueError as error:
        problems.refuse(section.line, error)
        return None


def _field_name(label: str, bulleted: bool) -> str | None:
    """A bullet with any label, such as `Blockers`, ends the field before it."""
    return key_of(label, LOG_FIELDS) or (label if bulleted else None)
