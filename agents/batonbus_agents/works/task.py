"""`TASK-NN.md`: what one task is to change, when it is done, and how that is checked."""

from msgspec import Struct

from batonbus_agents.works.dependencies import NONE, parse_needs
from batonbus_agents.works.files import FileEntry, safe_path, section_files
from batonbus_agents.works.markdown import (
    Document,
    Section,
    cells,
    heading_line,
    one_line,
    prose,
)
from batonbus_agents.works.problems import Problems, Reading
from batonbus_agents.works.title import read_title
from batonbus_agents.works.words import NEEDS, heading, is_heading, is_nothing, key_of

_BOX = ("[ ]", "[x]", "[X]")


class TaskSpec(Struct, frozen=True, kw_only=True):
    """One task. `verify` holds the commands of each fenced block, verbatim.

    `depends_on` is None where the file says nothing about it: the plan decides.
    """

    id: str
    title: str = ""
    work: str = ""
    depends_on: tuple[str, ...] | None = None
    scope: str = ""
    files: tuple[FileEntry, ...] = ()
    acceptance_criteria: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()


def read_task(text: str, file: str) -> Reading[TaskSpec]:
    """Reads a task's file as far as it goes, with everything that is wrong with it."""
    document, problems = Document(text), Problems(file)
    title = read_title(document, problems)
    found = {
        key: _section(document, key) for key in ("work", "scope", "files", "criteria", "verify")
    }
    work = document.text(found["work"]) if found["work"] else ""
    spec = TaskSpec(
        id=title.task,
        title=title.rest,
        work=work or title.work or "",
        depends_on=_needs(document, title.work or work.split(":")[0].strip(), problems),
        scope=document.text(found["scope"]) if found["scope"] else "",
        files=section_files(found["files"], problems, declared=True) if found["files"] else (),
        acceptance_criteria=_criteria(found["criteria"]),
        verify=_verify(found["verify"], problems),
    )
    return problems.reading(spec)


def parse_task(text: str, file: str) -> TaskSpec:
    """The task. Raises `WorksFileError` with everything that is wrong with its file."""
    return read_task(text, file).whole()


def render_task(spec: TaskSpec, language: str = "en") -> str:
    """The task's file in a language. Raises ValueError for a path that is not safe."""
    parts = [heading_line(1, f"{spec.id}: {spec.title}")]
    if spec.work:
        parts += [heading_line(2, heading("work", language)), prose(spec.work)]
    if spec.depends_on is not None:
        needs = "\n".join(f"- {need}" for need in spec.depends_on) or f"- {NONE}"
        parts += [heading_line(2, heading("dependencies", language)), needs]
    parts += [
        heading_line(2, heading("scope", language)),
        prose(spec.scope),
        heading_line(2, heading("files", language)),
        _files_table(spec.files),
        heading_line(2, heading("criteria", language)),
        "\n".join(f"- [ ] {one_line(it)}" for it in spec.acceptance_criteria),
        heading_line(2, heading("verify", language)),
        *(_fenced(commands) for commands in spec.verify),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def criterion(text: str) -> tuple[bool, str]:
    """Whether an item of a check list is ticked, and its text."""
    for box in _BOX:
        if text.startswith(box):
            return box != "[ ]", text[len(box) :].strip()
    return False, text


def _section(document: Document, key: str) -> Section | None:
    return document.find(lambda title: is_heading(title, key))


def _needs(document: Document, work: str, problems: Problems) -> tuple[str, ...] | None:
    """From the section of dependencies or, as some plans write it, a row of an overview table."""
    section = _section(document, "dependencies")
    said = [(entry.line, entry.text) for entry in section.entries()] if section else []
    rows = [row for it in document.sections for table in it.tables() for row in table.rows]
    said += [(line, row[1]) for line, row in rows if len(row) > 1 and _names_needs(row[0])]
    found: list[str] = []
    for line, text in said:
        try:
            found += parse_needs(text, work)
        except ValueError as error:
            problems.refuse(line, error)
    return tuple(dict.fromkeys(found)) if said or section else None


def _names_needs(cell: str) -> bool:
    return key_of(cell, {"needs": NEEDS}) is not None


def _criteria(section: Section | None) -> tuple[str, ...]:
    entries = section.entries() if section else []
    return tuple(criterion(entry.text)[1] for entry in entries if entry.depth)


def _verify(section: Section | None, problems: Problems) -> tuple[str, ...]:
    commands = tuple(section.fences()) if section else ()
    said = [entry for entry in section.entries() if not is_nothing(entry.text)] if section else []
    if section and said and not commands:
        problems.warn(section.line, "Verify has no fenced block of commands: nothing will be run")
    return commands


def _files_table(files: tuple[FileEntry, ...]) -> str:
    head = [cells("Path", "Action", "Description"), "|------|--------|-------------|"]
    rows = [cells(f"`{safe_path(it.path)}`", it.action or "", it.description) for it in files]
    return "\n".join(head + rows)


def _fenced(commands: str) -> str:
    ticks = "```"
    while ticks in commands:
        ticks += "`"
    return f"{ticks}bash\n{commands}\n{ticks}"
