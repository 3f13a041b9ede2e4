"""Files that a task declares, or has changed, and the paths that are safe to name."""

import re
from collections.abc import Iterable

from msgspec import Struct

from batonbus_agents.works.markdown import Document, Entry, Section, Table, one_line
from batonbus_agents.works.problems import Problems
from batonbus_agents.works.words import FILE_COLUMNS, Action, action_of, is_nothing, key_of

_ENTRY = re.compile(
    r"""(?: (?P<label>\w+) \s* [:\uff1a] \s+ )?
    (?: `(?P<quoted>[^`]+)` \s* (?P<after>.*)
      | (?P<bare>[^\s`(\uff08]+) \s* (?P<more> | (?: [(\uff08] | [—–:\uff1a-]\s ) .* ) )""",
    re.VERBOSE,
)
_DESCRIPTION = re.compile(
    r"(?P<action>\w+)\s*(?:[—–:\uff1a-]\s+(?P<after>.*)|[(\uff08](?P<remark>.*)[)\uff09])?"
)
_SEVERAL = re.compile(r"`[^`]+`\s*(?:[(\uff08][^()\uff08\uff09`]*[)\uff09])?|[^\s`()\uff08\uff09]+")


class FileEntry(Struct, frozen=True, omit_defaults=True):
    """A file of a task, by its path in the project; `action` is None where it was not told."""

    path: str
    action: Action | None = None
    description: str = ""


def path_problem(path: str) -> str | None:
    """Why a path is not safe to use, or None: relative POSIX, one spelling, inside the project."""
    parts = path.removesuffix("/").split("/")
    if not path or path != path.strip():
        return f"{path!r} is blank, or has blanks around it"
    if "`" in path or not path.isprintable():
        return f"{path!r} has a backtick or an unprintable character, which these files cannot hold"
    if "\\" in path:
        return f"{path!r} has a backslash: write / between folders"
    if path.startswith(("/", "~")) or re.match("[A-Za-z]:", path):
        return f"{path!r} is absolute: write it relative to the project"
    if ".." in parts:
        return f"{path!r} leaves the project: write it without .."
    if "" in parts or "." in parts:
        return f"{path!r} has an empty step: write it without . and //"
    return f"{path!r} means that there is no file" if is_nothing(path) else None


def safe_path(path: str) -> str:
    """The path as it is; raises ValueError where it is not safe."""
    problem = path_problem(path)
    if problem:
        raise ValueError(problem)
    return path


def declared_path_problem(path: str) -> str | None:
    """As `path_problem`, for a file that a task declares: one file, no folder and no pattern."""
    if path.endswith("/"):
        return f"{path!r} is a folder: name each of its files"
    if "*" in path or "?" in path:
        return f"{path!r} is a pattern: name each file"
    return path_problem(path)


def parse_file_entries(text: str) -> list[FileEntry]:
    """The files of one line: `` `path` — ACTION — description``; nothing for `(none)`.

    Read as well: without backticks, without an action, `Created: path`, `path (remark)`, and
    several in a row (`` `a` (CREATE), `b` ``). Raises ValueError where it names no file.
    """
    pieces = [piece.strip() for piece in re.split(r",\s+", text.strip())]
    if len(pieces) > 1 and all(_SEVERAL.fullmatch(piece) for piece in pieces):
        return [_entry(piece) for piece in pieces]
    return [] if is_nothing(text) else [_entry(text.strip())]


def _entry(text: str) -> FileEntry:
    found = _ENTRY.fullmatch(text)
    label = action_of(found["label"]) if found and found["label"] else None
    # `Notes: …` is a sentence, and `a.py: …` is a file.
    worded = found and (found["more"] or "").startswith((":", "\uff1a"))
    sentence = found and worded and not set("./") & set(found["bare"])
    if found is None or sentence or (found["label"] and label is None):
        raise ValueError(f"{text!r} names no file: write `path` — CREATE, MODIFY or DELETE")
    action, description = _described((found["after"] or found["more"] or "").strip())
    return FileEntry(found["quoted"] or found["bare"], label or action, description)


def _described(text: str) -> tuple[Action | None, str]:
    """What follows a path: an action and a description, or a description alone."""
    inner = re.fullmatch(r"[(\uff08](.*)[)\uff09]", text)
    text = inner[1] if inner else re.sub(r"^[—–:\uff1a-]\s+", "", text)
    found = _DESCRIPTION.fullmatch(text)
    action = action_of(found["action"]) if found else None
    if found is None or action is None:
        return None, text
    return action, (found["after"] or found["remark"] or "").strip()


def render_file_entry(entry: FileEntry) -> str:
    """`` `path` — ACTION — description``. Raises ValueError for a path that is not safe."""
    parts = (f"`{safe_path(entry.path)}`", entry.action or "", one_line(entry.description))
    return " — ".join(part for part in parts if part)


def listed_files(
    entries: Iterable[Entry], problems: Problems, *, declared: bool = False
) -> tuple[FileEntry, ...]:
    """The files of a list, each path once; what is deeper than the first item describes it.

    A sentence instead of a list is refused where files are declared, and warned of elsewhere.
    """
    files = _Files(problems, declared)
    files.read_list(entries)
    return files.found


def section_files(
    section: Section, problems: Problems, *, declared: bool = False
) -> tuple[FileEntry, ...]:
    """The files of a section: those of its tables, or else of its list."""
    files = _Files(problems, declared)
    tables = section.tables()
    for table in tables:
        files.read_table(table)
    if not tables:
        files.read_list(section.entries())
    return files.found


def changed_files(
    document: Document, section: Section, problems: Problems
) -> tuple[FileEntry, ...]:
    """The files of a section and of those below it, such as `### Created`; each path once."""
    found: dict[str, FileEntry] = {}
    for part in (section, *document.below(section)):
        action = action_of(part.title)
        for file in section_files(part, problems):
            told = FileEntry(file.path, file.action or action, file.description)
            found.setdefault(file.path, told)
    return tuple(found.values())


class _Files:
    """Gathers files, each path once, and tells of every line that names none."""

    def __init__(self, problems: Problems, declared: bool) -> None:
        self._by_path: dict[str, FileEntry] = {}
        self._problems = problems
        self._declared = declared

    @property
    def found(self) -> tuple[FileEntry, ...]:
        return tuple(self._by_path.values())

    def read_list(self, entries: Iterable[Entry]) -> None:
        depth: int | None = None
        for entry in entries:
            depth = entry.depth if depth is None else min(depth, entry.depth)
            if entry.depth == depth:
                strict = bool(entry.depth) or self._declared
                self._read(entry.text, entry.line, strict=strict)

    def read_table(self, table: Table) -> None:
        columns = [key_of(cell, FILE_COLUMNS) for cell in table.header]
        if "path" not in columns:
            self._problems.refuse(table.line, "the table of files has no column Path")
            return
        for line, row in table.rows:
            cell = dict(zip(columns, row, strict=True))
            word = cell.get("action", "")
            action = action_of(word)
            if word and action is None:
                self._problems.refuse(line, f"Action {word!r} is none of CREATE, MODIFY, DELETE")
            self._read(cell["path"], line, action, cell.get("description", ""))

    def _read(
        self,
        text: str,
        line: int,
        action: Action | None = None,
        description: str = "",
        *,
        strict: bool = True,
    ) -> None:
        try:
            files = parse_file_entries(text)
        except ValueError as error:
            tell = self._problems.refuse if strict else self._problems.warn
            tell(line, error)
            return
        for file in files:
            told = FileEntry(file.path, action or file.action, description or file.description)
            self._keep(told, line)

    def _keep(self, file: FileEntry, line: int) -> None:
        problem = declared_path_problem(file.path) if self._declared else path_problem(file.path)
        if problem:
            self._problems.refuse(line, problem)
        else:
            self._by_path.setdefault(file.path, file)
