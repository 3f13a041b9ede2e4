"""What a task needs, as people write it: in a field, in a table's cell, in a drawn graph.

A dependency that cannot be read is refused. It is never taken for none: a task that seems to need
nothing starts too early.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from batonbus_agents.works.markdown import Document, Section
from batonbus_agents.works.names import task_id, task_names
from batonbus_agents.works.problems import Problems
from batonbus_agents.works.words import FILLERS, is_nothing

NONE = "(none)"

_ARROW = re.compile(r"(?<![-─—–=])[-─—–=]*+(?:(?<=[-─—–=])>|[→▶►⟶➜])")
_BACKWARD = re.compile(r"[<←◀◄⟵]")
_REMARK = re.compile(r"[(\uff08][^()\uff08\uff09]*[)\uff09]")
_AFTER_NAMES = re.compile(r"\s(?:—|–|-)\s|[:\uff1a]\s")
_JOINERS = re.compile(r"[\s,、;/&+·]+")
_DRAWN = re.compile(r"[─━│┃┌┐└┘├┤┬┴┼╭╮╰╯|▼▽↓▲↑←◀◄⟵<]|--|\+-|(?<!\S)[v^](?!\S)")


def parse_needs(text: str, work: str | None) -> tuple[str, ...]:
    """The tasks that a field or a cell names, each once; a remark behind them may say why.

    Raises ValueError for anything that is neither a task of this work nor `(none)`.
    """
    named, *remark = _AFTER_NAMES.split(text.strip().strip("*`_"), maxsplit=1)
    if is_nothing(text) or is_nothing(named):
        named = ""
    if remark and task_names(remark[0]):
        raise ValueError(f"cannot tell what {text!r} needs: name the tasks first, then a remark")
    bare = _without_remarks(named)
    found = task_names(bare)
    rest = [it for it in _JOINERS.split(_without(found, bare).replace("`", " ")) if it]
    unknown = [word for word in rest if word.casefold() not in FILLERS]
    if unknown or (rest and not found):
        raise ValueError(f"cannot read what {text!r} needs: name each task, or write {NONE}")
    return tuple(dict.fromkeys(task_id(it[0], work) for it in found))


def _without_remarks(text: str) -> str:
    """Drops what stands in brackets, unless it names a task."""
    return _REMARK.sub(lambda it: it[0] if task_names(it[0]) else " ", text)


def _without(found: list[re.Match[str]], text: str) -> str:
    for it in reversed(found):
        text = f"{text[: it.start()]} {text[it.end() :]}"
    return text


@dataclass(frozen=True, slots=True)
class Graph:
    """A drawn graph: its tasks and its arrows with their lines, and the lines it is unclear on."""

    tasks: dict[str, int] = field(default_factory=dict[str, int])
    arrows: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    unclear: dict[int, str] = field(default_factory=dict[int, str])

    def needs(self, task: str) -> tuple[str, ...]:
        return tuple(before for before, after in self.arrows if after == task)

    def leads(self, before: str, after: str) -> bool:
        """Whether a path of arrows goes from one task to another."""
        seen, reached = {before}, [before]
        while reached:
            here = reached.pop()
            reached += [to for start, to in self.arrows if start == here and to not in seen]
            seen.update(reached)
        return after in seen


def read_graph(document: Document, section: Section, work: str | None) -> Graph:
    """Reads a graph line by line: `A → B → C` is two arrows, `A, B → C` as well.

    What is drawn across lines cannot be read with certainty and is noted as unclear.
    """
    graph = Graph()
    for line in range(section.first, section.end + 1):
        text = document.lines[line - 1]
        try:
            _read_line(text, line, work, graph)
        except ValueError as error:
            graph.unclear[line] = str(error)
    return graph


def _read_line(text: str, line: int, work: str | None, graph: Graph) -> None:
    pieces = _ARROW.split(_without_remarks(text))
    groups = [[task_id(it[0], work) for it in task_names(piece)] for piece in pieces]
    for task in (task for group in groups for task in group):
        graph.tasks.setdefault(task, line)
    arrows = len(pieces) > 1
    clear = [_is_clear(piece, arrows) for piece in pieces]
    for i in range(len(pieces) - 1):
        if clear[i] and clear[i + 1]:
            pairs = [(before, after) for before in groups[i] for after in groups[i + 1]]
            graph.arrows.update({pair: line for pair in pairs if pair not in graph.arrows})
    if arrows and not (all(clear) and all(groups)):
        raise ValueError("an arrow does not stand between tasks on this line")
    if not arrows and not all(clear):
        raise ValueError("what is drawn here cannot be read: write the arrows as A → B")


def _is_clear(piece: str, beside_arrow: bool) -> bool:
    """Whether the tasks between two arrows are one group: one task, or several joined by `,`."""
    found = task_names(piece)
    between = [piece[a.end() : b.start()] for a, b in pairwise(found)]
    if beside_arrow:
        joined = all(re.fullmatch(r"\s*[,&+/、]\s*", it) for it in between)
        return joined and not _BACKWARD.search(piece)
    drawn = _DRAWN.search(_without(found, piece))
    return not drawn and not any(re.search(r"\w", it) for it in between)


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source says that a task needs."""

    source: str
    line: int
    needs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.needs) or 'nothing'} ({self.source}, line {self.line})"


def agreed(task: str, statements: list[Statement], problems: Problems) -> tuple[str, ...]:
    """What a task needs, by sources that must not disagree."""
    first = statements[0]
    for other in statements[1:]:
        if set(other.needs) != set(first.needs):
            problems.refuse(other.line, f"{task} needs {first}, and {other}: make them agree")
    return first.needs


def check_graph(needs: dict[str, Statement], graph: Graph, problems: Problems) -> None:
    """Compares a graph with what was said: each arrow is said and, where the whole graph can be
    read, all that was said is drawn."""
    for (before, after), line in graph.arrows.items():
        said = needs.get(after)
        if said and before not in said.needs:
            problems.refuse(
                line,
                f"the graph draws {before} → {after}, and {after} needs {said}: make them agree",
            )
    if graph.unclear or not graph.tasks:
        return
    for task, said in needs.items():
        for need in said.needs:
            if not graph.leads(need, task):
                problems.refuse(
                    said.line,
                    f"{task} needs {said}, and the graph (line {min(graph.tasks.values())}) "
                    f"draws no way from {need}: make them agree",
                )
