"""A works file as headings, lists, tables and labelled fields, each with the line it stands on.

Structure comes from markdown-it's tokens, text from the source lines, so nothing of a text is lost
or changed. Raw HTML, underlined headings and link definitions are read as plain text: an unclosed
`<!--` or a ruler under a paragraph then hides nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode as Node

_PARSER = (
    MarkdownIt("commonmark")
    .enable("table")
    .disable(["html_block", "lheading", "reference", "inline"])
)
_LISTS = ("bullet_list", "ordered_list")
_TEXT_FENCE = "text"

_LABEL = re.compile(
    r"""(?P<bullet>[-*+]\s+)?
    (?: \*\*(?P<inner>[^*:\uff1a`]{1,64}?)\s*[:\uff1a]\s*\*\*
      | (?P<mark>\*\*|\*|__|_)?(?P<outer>[^*:\uff1a`|]{1,64}?)(?(mark)(?P=mark))\s*[:\uff1a](?!//) )
    \s*(?P<value>.*)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One paragraph line, or one list item without its own list; `depth` counts the lists."""

    line: int
    depth: int
    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """A labelled text: `- **Scope**: …` and all that belongs to it.

    `line` is the label's, `first` the one on which the text begins.
    """

    name: str
    line: int
    first: int
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its header's cells, and each row's line and cells."""

    line: int
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the blocks up to the next one; level 0 is what stands before the first.

    `first` to `last` are its lines up to the next heading; `end` is the last line of what stands
    below it, deeper headings included. Lines count from 1.
    """

    level: int
    title: str
    line: int
    blocks: tuple[Node, ...]
    last: int
    end: int

    @property
    def first(self) -> int:
        return self.line + 1

    def entries(self) -> list[Entry]:
        return list(_entries(self.blocks, 0))

    def quoted(self) -> list[Entry]:
        """The lines of its block quotes."""
        return list(_entries((it for it in self.blocks if it.type == "blockquote"), 0))

    def tables(self) -> list[Table]:
        return [_table(block) for block in self.blocks if block.type == "table"]

    def fences(self) -> list[str]:
        """The contents of its fenced code, verbatim, wherever it stands."""
        return [
            node.content.removesuffix("\n")
            for block in self.blocks
            for node in block.walk()
            if node.type == "fence"
        ]


class Document:
    """A text by its headings. A BOM and CRLF are no part of the text."""

    def __init__(self, text: str) -> None:
        self.lines = re.sub(r"\r\n?", "\n", text.removeprefix("\ufeff")).split("\n")
        root = Node(_PARSER.parse("\n".join(self.lines)))
        self.sections = tuple(_sections(root.children, len(self.lines)))

    def find(self, wanted: Callable[[str], bool]) -> Section | None:
        """The first section with such a title."""
        return next((it for it in self.sections if it.level and wanted(it.title)), None)

    def below(self, section: Section) -> list[Section]:
        """The sections under a section."""
        return [it for it in self.sections if section.line < it.line <= section.end]

    def text(self, section: Section) -> str:
        """All that stands in a section, verbatim but for blank space around it."""
        if [block.type for block in section.blocks] == ["fence"] and section.last == section.end:
            fence = section.blocks[0]
            if fence.info.strip() == _TEXT_FENCE:
                return fence.content.removesuffix("\n")
        return "\n".join(self.lines[section.first - 1 : section.end]).strip()

    def fields(
        self, section: Section, name_of: Callable[[str, bool], str | None]
    ) -> tuple[str, list[Field]]:
        """What stands before the first label, and the labelled fields, whole.

        A label starts a line, with a bullet or without. `name_of` says what a label (with a bullet
        or not) is called; one that it does not know is a part of the text around it.
        """
        starts = list(self._labels(section, name_of))
        ends = [line for line, *_ in starts[1:]] + [section.last + 1]
        head = starts[0][0] if starts else section.last + 1
        lead = "\n".join(self.lines[section.first - 1 : head - 1]).strip()
        found = [self._field(*start, end=end) for start, end in zip(starts, ends, strict=False)]
        return lead, found

    def _labels(
        self, section: Section, name_of: Callable[[str, bool], str | None]
    ) -> Iterator[tuple[int, str, str, int]]:
        code = _code_lines(section.blocks)
        for line in range(section.first, section.last + 1):
            label = None if line in code else split_label(self.lines[line - 1])
            name = name_of(label[1], bool(label[0])) if label else None
            if label and name is not None:
                yield line, name, label[2], len(label[0])

    def _field(self, line: int, name: str, value: str, indent: int, *, end: int) -> Field:
        lines = [value, *(_dedented(it, indent) for it in self.lines[line : end - 1])]
        blank = next((i for i, it in enumerate(lines) if it.strip()), 0)
        return Field(name, line, line + blank, "\n".join(lines).strip())


def split_label(line: str) -> tuple[str, str, str] | None:
    """The bullet, the label and the value of a line such as `- **Status**: DONE`."""
    found = _LABEL.fullmatch(line)
    if found is None or line[:1].isspace():
        return None
    return found["bullet"] or "", found["inner"] or found["outer"], found["value"]


def entries_of(text: str, line: int) -> list[Entry]:
    """The entries of a field's text that starts on `line`."""
    root = Node(_PARSER.parse(text))
    return [
        Entry(line + entry.line - 1, entry.depth, entry.text)
        for entry in _entries(root.children, 0)
    ]


def one_line(text: str) -> str:
    """A text on one line: what stands in a heading, a list item or a cell."""
    return " ".join(text.split())


def heading_line(level: int, title: str) -> str:
    """A heading; a title that ends in `#` keeps it."""
    title = one_line(title)
    return f"{'#' * level} {title}{' #' if title.endswith('#') else ''}".rstrip()


def prose(text: str) -> str:
    """Free text for a section of its own. What would be read as structure stands in a fence."""
    text = text.strip()
    # The heading after the text is only found where the text leaves nothing open.
    read = Document(f"{text}\n\n# end")
    fenced = [(block.type, block.info.strip()) for block in read.sections[0].blocks] == [
        ("fence", _TEXT_FENCE)
    ]
    if [section.title for section in read.sections] == ["", "end"] and not fenced:
        return text
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{_TEXT_FENCE}\n{text}\n{fence}"


def field_line(label: str, text: str) -> str:
    """`- **label**: text`; further lines are indented, so that nothing in them is a label."""
    first, *more = text.strip().split("\n")
    head = f"- **{label}**: {first}" if first else f"- **{label}**:"
    return "\n".join([head, *(f"  {line}" if line else "" for line in more)])


def cells(*texts: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(one_line(text).replace("|", r"\|") for text in texts) + " |"


def _sections(blocks: list[Node], length: int) -> Iterator[Section]:
    heads = [(i, it) for i, it in enumerate(blocks) if it.type == "heading"]
    levels = [0, *(int(it.tag[1:]) for _, it in heads)]
    lines = [0, *(_line(it) for _, it in heads), length + 1]
    cuts = [-1, *(i for i, _ in heads), len(blocks)]
    for here, level in enumerate(levels):
        after = range(here + 1, len(levels))
        end = next((lines[it] for it in after if levels[it] <= level), length + 1)
        yield Section(
            level=level,
            title=heads[here - 1][1].children[0].content if level else "",
            line=lines[here],
            blocks=tuple(blocks[cuts[here] + 1 : cuts[here + 1]]),
            last=lines[here + 1] - 1,
            end=end - 1,
        )


def _entries(blocks: Iterable[Node], depth: int) -> Iterator[Entry]:
    for block in blocks:
        if block.type == "paragraph":
            lines = [it.strip() for it in block.children[0].content.split("\n")]
            if depth:
                yield Entry(_line(block), depth, " ".join(lines))
            else:
                yield from (Entry(_line(block) + i, 0, it) for i, it in enumerate(lines))
        elif block.type == "blockquote":
            yield from _entries(block.children, depth)
        elif block.type in _LISTS:
            for item in block.children:
                yield from _entries(item.children, depth + 1)


def _table(block: Node) -> Table:
    rows = [(_line(it), _cells(it)) for it in block.walk() if it.type == "tr"]
    return Table(rows[0][0], rows[0][1], tuple(rows[1:]))


def _cells(row: Node) -> tuple[str, ...]:
    return tuple(cell.children[0].content.strip() for cell in row.children)


def _code_lines(blocks: Iterable[Node]) -> set[int]:
    spans = (
        it.map for block in blocks for it in block.walk() if it.type in ("fence", "code_block")
    )
    return {line for span in spans if span for line in range(span[0] + 1, span[1] + 1)}


def _dedented(line: str, indent: int) -> str:
    blank = len(line) - len(line.lstrip(" "))
    return line[min(blank, indent) :]


def _line(node: Node) -> int:
    return node.map[0] + 1 if node.map else 0
