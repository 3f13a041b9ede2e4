"""`TASK-NN_result.md`: how a task ended, in the full form or in the shorter one of direct mode."""

from datetime import datetime

from msgspec import Struct

from batonbus_agents.works.files import FileEntry, changed_files, render_file_entry
from batonbus_agents.works.handoff import (
    StageContext,
    read_contexts,
    render_contexts,
    task_context,
)
from batonbus_agents.works.markdown import Document, heading_line, one_line, prose
from batonbus_agents.works.meta import Meta, render_meta
from batonbus_agents.works.problems import Problems, Reading
from batonbus_agents.works.stamps import moment_of, stamp
from batonbus_agents.works.task import criterion
from batonbus_agents.works.title import read_title
from batonbus_agents.works.words import RESULT_META, Action, heading, is_heading
from batonbus_schemas.context import ContextHandoff

_GROUPS: tuple[tuple[str, Action | None], ...] = (
    ("", None),
    ("Created", "CREATE"),
    ("Modified", "MODIFY"),
    ("Deleted", "DELETE"),
)


class Criterion(Struct, frozen=True):
    """One item of the checklist, and whether it is met."""

    text: str
    met: bool = True


class Result(Struct, frozen=True, kw_only=True):
    """A task's result. `work` is `WORK-NN — title`; `mode` is written where it is direct.

    Without a context handoff `contexts` is empty, and `context_handoff` is None.
    """

    task: str
    work: str = ""
    completed: datetime | None = None
    status: str = "DONE"
    mode: str = ""
    commit: str = ""
    summary: str = ""
    checklist: tuple[Criterion, ...] = ()
    verification: str = ""
    files: tuple[FileEntry, ...] = ()
    issues: str = ""
    notes: str = ""
    contexts: tuple[StageContext, ...] = ()

    @property
    def context_handoff(self) -> ContextHandoff | None:
        """What the task tells the next ones."""
        return task_context(self.contexts)


def read_result(text: str, file: str) -> Reading[Result]:
    """Reads a result as far as it goes, with everything that is wrong with it."""
    document, problems = Document(text), Problems(file)
    meta = Meta(document, RESULT_META, problems)
    title = read_title(document, problems)
    result = Result(
        task=title.task,
        work=meta.value("work") or title.work or "",
        completed=moment_of("Completed", meta.value("completed"), meta.line("completed"), problems),
        status=meta.value("status").strip("*` ") or "DONE",
        mode=meta.value("mode"),
        commit=meta.value("commit").strip("` "),
        summary=_text(document, "summary"),
        checklist=_checklist(document),
        verification=_text(document, "verification"),
        files=_files(document, problems),
        issues=_text(document, "issues"),
        notes=_text(document, "notes"),
        contexts=read_contexts(document, problems),
    )
    return problems.reading(result)


def parse_result(text: str, file: str) -> Result:
    """The result. Raises `WorksFileError` with everything that is wrong with its file."""
    return read_result(text, file).whole()


def render_result(result: Result, language: str = "en") -> str:
    """The result's file in a language. Raises ValueError for a path that is not safe."""
    meta = (
        ("WORK", result.work),
        ("Completed", stamp(result.completed) if result.completed else ""),
        ("Execution-Mode", result.mode),
        ("Status", f"**{one_line(result.status)}**"),
        ("Commit", result.commit),
    )
    checklist = "\n".join(
        f"- [{'x' if it.met else ' '}] {one_line(it.text)}" for it in result.checklist
    )
    sections = (
        ("summary", prose(result.summary)),
        ("checklist", checklist),
        ("verification", prose(result.verification)),
        ("files_changed", _grouped(result.files)),
        ("issues", prose(result.issues)),
        ("notes", prose(result.notes)),
    )
    parts = [heading_line(1, f"{result.task} Result"), render_meta(meta)]
    for key, body in sections:
        parts += [heading_line(2, heading(key, language)), body] if body else []
    parts.append(render_contexts(result.contexts, language))
    return "\n\n".join(part for part in parts if part) + "\n"


def _text(document: Document, key: str) -> str:
    section = document.find(lambda title: is_heading(title, key))
    return document.text(section) if section else ""


def _checklist(document: Document) -> tuple[Criterion, ...]:
    section = document.find(lambda title: is_heading(title, "checklist"))
    items = [criterion(it.text) for it in section.entries() if it.depth] if section else []
    return tuple(Criterion(text, met) for met, text in items)


def _files(document: Document, problems: Problems) -> tuple[FileEntry, ...]:
    section = document.find(lambda title: is_heading(title, "files_changed"))
    return changed_files(document, section, problems) if section else ()


def _grouped(files: tuple[FileEntry, ...]) -> str:
    """Files by what happened to them; those of which it is not known stand first."""
    groups: list[str] = []
    for title, action in _GROUPS:
        items = [f"- {_bare(file)}" for file in files if file.action == action]
        head = [heading_line(3, title)] if title else []
        groups += ["\n".join([*head, *items])] if items else []
    return "\n\n".join(groups)


def _bare(file: FileEntry) -> str:
    """An entry without its action, which the heading above tells."""
    return render_file_entry(FileEntry(file.path, None, file.description))
