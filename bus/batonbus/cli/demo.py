"""`batonbus demo`: the whole bus at work, in some ten seconds."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from batonbus.cli.options import Json, Level, LogLevel, new_app
from batonbus.cli.output import Output, new_table
from batonbus.cli.running import run, start_logs
from batonbus.demo.report import Hop, Report
from batonbus.demo.show import run_demo

app = new_app()


@app.command()
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A new folder that keeps the bus's store and the repository, to look into.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Start a bus and a small fleet of processes, hand real work through it, kill one agent.

    A contract v1 document goes down a line of five agents; four tasks go through a diamond; and a
    work of six tasks mends a small real repository, with real checks and commits. Two agents are
    killed with -9 in the middle of their work, and others take over. At the end: what each agent
    was given, and what was cut.

    \b
    Examples:
      batonbus demo
      batonbus demo --json --keep ./demo
    """
    start_logs(log_level, Level.ERROR)
    output = Output(as_json)

    async def work() -> int:
        hops, report = await run_demo(keep, partial(_say, output))
        output.show("", hops_table(hops), "", *summary(report))
        output.emit(report)
        return 0 if report.good else 1

    raise typer.Exit(run(output, work))


def _say(output: Output, line: str) -> None:
    output.show(line)


def hops_table(hops: list[Hop]) -> Table:
    """One row a handoff."""
    table = new_table(
        "from → to",
        "task",
        "FULL",
        "SUMMARY",
        "dropped",
        "context bytes",
        "receipt",
        "att.",
        "lease",
    )
    for hop in hops:
        table.add_row(
            f"{hop.from_} → {hop.to}",
            hop.task or "",
            ", ".join(hop.full),
            ", ".join(hop.summary),
            f"{len(hop.dropped)} older" if len(hop.dropped) > 2 else ", ".join(hop.dropped),
            f"{hop.bytes_before:,} → {hop.bytes_after:,}" if hop.bytes_before else "",
            "none" if hop.receipt_ms is None else f"{hop.receipt_ms:.0f} ms",
            str(hop.attempt),
            str(hop.lease),
            style="bold yellow" if hop.lease > 1 else None,
        )
    return table


def summary(report: Report) -> list[str]:
    """The sum in a few lines."""
    takeovers = f"{report.takeovers} taken over from killed agents"
    failed = f", not committed: {', '.join(report.failed)}" if report.failed else ""
    tests = "pass" if report.tests_pass else "FAIL"
    return [
        f"{report.handoffs} handoffs: {report.settled} settled, {report.lost} lost, {takeovers}.",
        f"{report.tasks} tasks: {report.commits} commits, {report.rebuilds} rebuilt after a failed "
        f"verification{failed}; the repository's own tests {tests}.",
        f"Receipts: p50 {report.receipt_ms.p50:.0f} ms, max {report.receipt_ms.max:.0f} ms "
        "(promised: 30,000).",
        f"{report.seconds:.1f} s, the start of fourteen processes included.",
    ]
