"""The tasks of a plan, from its task sections, its task table, and its graph."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from batonbus_agents.works.dependencies import (
    Graph,
    Statement,
    agreed,
    check_graph,
    parse_needs,
    read_graph,
)
from batonbus_agents.works.files import FileEntry, listed_files
from batonbus_agents.works.markdown import Document, Field, Section, Table, entries_of
from batonbus_agents.works.names import task_id, task_names
from batonbus_agents.works.problems import Problems
from batonbus_agents.works.title import misspelt_title, split_title
from batonbus_agents.works.words import TASK_COLUMNS, TASK_FIELDS, is_heading, key_of


class PlanTask(Struct, frozen=True, kw_only=True):
    """One task as the plan names it; `depends_on` are the tasks that must be done before."""

    id: str
    title: str = ""
    depends_on: tuple[str, ...] = ()
    scope: str = ""
    files: tuple[FileEntry, ...] = ()


@dataclass
class _Draft:
    """What the sources say of one task, before they are compared."""

    id: str
    line: int
    title: str = ""
    scope: str = ""
    files: tuple[FileEntry, ...] = ()
    said: list[Statement] = field(default_factory=list[Statement])


class _Drafts:
    """Gathers the tasks of a plan from one source after the other."""

    def __init__(self, work: str, problems: Problems) -> None:
        self.found: list[_Draft] = []
        self._work = work
        self._problems = problems

    def read_section(self, document: Document, section: Section) -> None:
        """A section `### TASK-NN: title`; any other is passed over."""
        named = split_title(section.title) if section.level > 1 else None
        if section.level > 1 and misspelt_title(section.title):
            self._problems.refuse(section.line, f"{section.title!r}: write 'TASK-NN: title'")
        task = self._id(named[0], section.line) if named else None
        if named is None or task is None:
            return
        draft = _Draft(task, section.line, named[1])
        self.found.append(draft)
        _, fields = document.fields(section, _field_name)
        for it in fields:
            self._read_field(draft, it)
        for it in fields:
            self._check_unknown(draft, it)

    def read_table(self, table: Table) -> None:
        """A table with a column of tasks: its columns are known by their names, not their place."""
        columns = [key_of(cell, TASK_COLUMNS) for cell in table.header]
        if "task" not in columns:
            return
        known = {draft.id: draft for draft in self.found}
        for line, row in table.rows:
            cell = dict(zip(columns, row, strict=True))
            self._check_columns(table, columns, row, line)
            task = self._id(cell["task"].strip("*`[] "), line) if any(row) else None
            if task is None:
                continue
            draft = known.pop(task, None)
            if draft is None:
                draft = _Draft(task, line)
                self.found.append(draft)
            draft.title = draft.title or cell.get("title", "")
            if "needs" in columns:
                needs = [it for column, it in zip(columns, row, strict=True) if column == "needs"]
                self._say(draft, "the task table", line, needs)

    def needs(self, graph: Graph) -> list[tuple[str, ...]]:
        """What each task needs. The graph is the source only where no other says anything."""
        known = {draft.id for draft in self.found}
        for task, line in graph.tasks.items() if known else ():
            if task not in known:
                self._problems.refuse(
                    line, f"the graph draws {task}, which is no task of this plan"
                )
        if not any(draft.said for draft in self.found):
            return self._drawn(graph)
        needs = [agreed(it.id, it.said, self._problems) if it.said else () for it in self.found]
        said = {
            it.id: it.said[0] if it.said else Statement("nothing is said", it.line, ())
            for it in self.found
        }
        check_graph(said, graph, self._problems)
        return needs

    def _drawn(self, graph: Graph) -> list[tuple[str, ...]]:
        for line, reason in graph.unclear.items():
            self._problems.refuse(line, reason)
        if not self.found:
            self.found = [_Draft(task, line) for task, line in graph.tasks.items()]
        return [graph.needs(draft.id) for draft in self.found]

    def _id(self, name: str, line: int) -> str | None:
        try:
            return task_id(name, self._work)
        except ValueError as error:
            self._problems.refuse(line, error)
            return None

    def _read_field(self, draft: _Draft, it: Field) -> None:
        if it.name == "needs":
            texts = [entry.text for entry in entries_of(it.text, it.first)]
            self._say(draft, "its section", it.line, texts)
        elif it.name == "scope":
            draft.scope = it.text
        elif it.name == "files":
            entries = entries_of(it.text, it.first)
            draft.files = listed_files(entries, self._problems, declared=True)

    def _check_unknown(self, draft: _Draft, it: Field) -> None:
        """A label that is not known, and whose value is nothing but tasks, is a lost dependency."""
        if draft.said or it.name in TASK_FIELDS or not task_names(it.text):
            return
        try:
            parse_needs(it.text, self._work)
        except ValueError:
            return
        self._problems.refuse(it.line, f"{it.name!r} is not known here: write 'Depends on'")

    def _check_columns(
        self, table: Table, columns: list[str | None], row: tuple[str, ...], line: int
    ) -> None:
        """A column that is not known, and names tasks, is a lost dependency."""
        for title, column, cell in zip(table.header, columns, row, strict=True):
            if column is None and task_names(cell):
                self._problems.refuse(
                    line, f"column {title!r} names tasks and is not known: call it Dependencies"
                )

    def _say(self, draft: _Draft, source: str, line: int, texts: Iterable[str]) -> None:
        """Keeps what a source says. A blank says nothing: another source may."""
        texts = [text for text in texts if text.strip()]
        if not texts:
            return
        try:
            named = [need for text in texts for need in parse_needs(text, self._work)]
        except ValueError as error:
            self._problems.refuse(line, f"{draft.id}: {error}")
            return
        draft.said.append(Statement(source, line, tuple(dict.fromkeys(named))))


def _field_name(label: str, bulleted: bool) -> str | None:
    """A bullet with any label ends the field before it."""
    return key_of(label, TASK_FIELDS) or (label if bulleted else None)


def read_tasks(document: Document, work: str, problems: Problems) -> list[tuple[PlanTask, int]]:
    """The tasks in their order, each with its line. Sources that disagree are refused."""
    drafts = _Drafts(work, problems)
    for section in document.sections:
        drafts.read_section(document, section)
    listed = document.find(lambda it: is_heading(it, "tasks"))
    for table in listed.tables() if listed else ():
        drafts.read_table(table)
    drawn = document.find(lambda it: is_heading(it, "graph"))
    needs = drafts.needs(read_graph(document, drawn, work) if drawn else Graph())
    if not drafts.found:
        problems.refuse(1, "the plan names no task: add '### TASK-00: title' under '## Tasks'")
    return [
        (
            PlanTask(id=it.id, title=it.title, depends_on=who, scope=it.scope, files=it.files),
            it.line,
        )
        for it, who in zip(drafts.found, needs, strict=True)
    ]
