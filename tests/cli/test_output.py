"""Tables for 80 columns: nothing empty, and no word broken where it need not be."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from batonbus.cli.output import draw_rows

ROWS = [
    ["ea57daad", "", "builder-c05a526c → verifier", "RuntimeError: the compiler is not there", ""],
    ["bbb57909", "", "cli-aa9a61e0 → builder", "", ""],
]
COLUMNS = ("id", "work", "from → to", "reason", "retried")


def lines(table: Table, width: int) -> list[str]:
    """As a terminal of this width shows it."""
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(table)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_column_that_is_empty_in_every_row_is_left_out() -> None:
    head = lines(draw_rows(COLUMNS, ROWS, wraps=("reason",)), 80)[0]
    assert head.split("  ")[0] == "id"
    assert "reason" in head
    assert "work" not in head
    assert "retried" not in head


@pytest.mark.parametrize("width", [56, 80])
def test_only_what_may_wrap_does_and_between_words(width: int) -> None:
    head, *rows = lines(draw_rows(COLUMNS, ROWS, wraps=("reason",)), width)
    assert rows[0].startswith("ea57daad  builder-c05a526c → verifier  RuntimeError:")
    assert rows[-1] == "bbb57909  cli-aa9a61e0 → builder"
    reason = head.index("reason")
    told = " ".join(row[reason:].strip() for row in rows)
    assert told.strip() == "RuntimeError: the compiler is not there"
