"""What a command prints: for people on stdout, or with `--json` one object as the last line of
stdout and everything else on stderr."""

import os
import re
import sys
from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table

PIPE_WIDTH = 160
"""Columns where nobody looks: a table in a pipe should not be wrapped."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Output:
    """Where a command's words go."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._console = make_console(stderr=as_json)

    def show(self, *lines: RenderableType) -> None:
        """Print for people. Texts of others must be `clean`."""
        for line in lines:
            self._console.print(line, soft_wrap=isinstance(line, str))

    def note(self, text: str) -> None:
        """Say something that is no result: always on stderr."""
        make_console(stderr=True).print(text, soft_wrap=True)

    def emit(self, message: object) -> None:
        """Write one JSON object as a line of stdout, if JSON was asked for."""
        if self.as_json:
            sys.stdout.write(msgspec.json.encode(message).decode() + "\n")
            sys.stdout.flush()

    def fail(self, errors: list[str]) -> None:
        """Say what went wrong."""
        for error in errors:
            self.note(f"error: {clean(error)}")
        self.emit({"error": "; ".join(errors)})


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Left to whoever runs the command, as for all that is not printed by rich."""
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup, no guessed colours."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def new_table(*columns: str, wraps: Collection[str] = ()) -> Table:
    """An empty table, as all commands draw them. Where some columns may wrap, between words, no
    other one does."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=bool(wraps) and column not in wraps)
    return table


def draw_rows(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, wraps: Collection[str]
) -> Table:
    """A table without the columns that are empty in every row: 80 columns are soon full."""
    kept = [place for place, _ in enumerate(columns) if any(row[place] for row in rows)]
    table = new_table(*(columns[it] for it in kept), wraps=wraps)
    for row in rows:
        table.add_row(*(row[it] for it in kept))
    return table


def clean(text: str) -> str:
    """A text of others without the control characters by which it could drive the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def short(handoff_id: UUID) -> str:
    """The beginning of an id: enough for `batonbus show`, and for 80 columns."""
    return str(handoff_id)[:8]


def duration(seconds: float) -> str:
    """A time span in its largest whole unit, as people say it."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.1f} s"


def one_line(text: str, limit: int = 200) -> str:
    """A text as one clean line of at most `limit` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
