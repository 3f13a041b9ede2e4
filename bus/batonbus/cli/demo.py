"""`batonbus demo`: the whole bus at work, in some twenty seconds."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, Group
from rich.table import Table
from rich.text import Text

from batonbus.cli.options import Json, Level, LogLevel, new_app
from batonbus.cli.output import Output, new_table
from batonbus.cli.running import run, start_logs
from batonbus.demo.report import Hop, Report
from batonbus.demo.show import LINES, run_demo

WIDE = 116
"""Columns from which on each part of a window has one of its own."""

NAMES_LIMIT = 22
"""Characters that the names of what was dropped may take; else they are counted."""

LEGEND = (
    "What each agent was given of the steps before it: one step back in FULL, two steps back as a "
    "SUMMARY of three lines, nothing older. Bytes: of all these steps → of what was given. "
    "Receipt: how long the sender waited for an answer. Lease 2: taken over."
)

app = new_app()


@app.command()
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="A new folder that keeps the bus's store and the repository, to look into.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Start a bus and a small fleet of processes, hand real work through it, kill two agents.

    A contract v1 document goes down a line of five agents; four tasks go through a diamond; and a
    work of six tasks mends a small real repository, with real checks and commits. Two agents are
    killed with -9 in the middle of their work, and others take over. At the end: what each agent
    was given, and what was cut.

    \b
    Examples:
      batonbus demo
      batonbus demo --json --keep ./demo

    \b
    Exit codes: 0 every handoff settled, every task committed, the repository's tests pass; else 1.
    """
    start_logs(log_level, Level.ERROR)
    output = Output(as_json)

    async def work() -> int:
        hops, report = await run_demo(keep, partial(_say, output))
        output.show("", Text(LEGEND))
        for line in LINES:
            _show_line(output, line, [hop for hop in hops if hop.work == line])
        output.show("", *summary(report, kept=keep is not None))
        output.emit(report)
        return 0 if report.good else 1

    raise typer.Exit(run(output, work))


def _say(output: Output, line: str) -> None:
    # Alone, a Text would lose these on its way through a console.
    output.show(Group(Text(line, no_wrap=True, overflow="ellipsis")))


def _show_line(output: Output, work: str, hops: list[Hop]) -> None:
    line = LINES[work]
    output.show("", Text(f"{line.name}  {line.about}", style="bold"), HopsTable(hops))


class HopsTable:
    """One row a handoff, under its task's name. Where there is room, each part of the window has a
    column of its own."""

    def __init__(self, hops: Iterable[Hop]) -> None:
        self._hops = sorted(hops, key=lambda hop: hop.task or "")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        wide = options.max_width >= WIDE
        window = ("FULL", "SUMMARY", "dropped") if wide else ("window",)
        table = new_table("from → to", *window, "bytes", "receipt", "att.", "lease")
        table.columns[0].no_wrap = True
        for task, hops in groupby(self._hops, key=lambda hop: hop.task):
            if task is not None:
                table.add_row(task, style="bold")
            for hop in hops:
                table.add_row(*_cells(hop, wide), style="yellow" if hop.lease > 1 else None)
        yield table


def _cells(hop: Hop, wide: bool) -> tuple[str, ...]:
    parts = window(hop)
    shown = parts.values() if wide else ["\n".join(f"{k} {it}" for k, it in parts.items() if it)]
    return (
        f"{hop.from_} → {hop.to}",
        *shown,
        f"{hop.bytes_before:,} → {hop.bytes_after:,}" if hop.bytes_before else "",
        "none" if hop.receipt_ms is None else f"{hop.receipt_ms:,.0f} ms",
        str(hop.attempt),
        str(hop.lease),
    )


def window(hop: Hop) -> dict[str, str]:
    """What a hop's receiver was given, and what not. Another task stands there by its last step
    alone, so that its name says which one."""
    dropped = ", ".join(hop.dropped)
    return {
        "FULL": ", ".join(it.split()[0] for it in hop.full),
        "SUMMARY": ", ".join(it.split()[0] for it in hop.summary),
        "dropped": dropped if len(dropped) <= NAMES_LIMIT else f"{len(hop.dropped)} older",
    }


def summary(report: Report, *, kept: bool) -> list[str]:
    """The sum in a few lines."""
    failed = f", not committed: {', '.join(report.failed)}" if report.failed else ""
    tests = "pass" if report.tests_pass else "FAIL"
    lines = [
        f"{report.handoffs} handoffs: {report.settled} settled, {report.lost} lost, "
        f"{report.takeovers} taken over from killed agents.",
        f"{report.tasks} tasks: {report.commits} commits, {report.rebuilds} rebuilt after a failed "
        f"verification{failed}.",
        f"The repository's own tests {tests}.",
        f"Receipts: p50 {report.receipt_ms.p50:.0f} ms, max {report.receipt_ms.max:,.0f} ms "
        "(promised: 30,000).",
        f"{report.seconds:.1f} s, the start of fourteen processes included.",
    ]
    return [*lines, f"The repository: {report.repository}"] if kept else lines
