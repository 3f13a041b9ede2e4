"""`batonbus bench`: how fast whole handoffs go on this machine, and how long their texts become."""

from typing import Annotated

import typer

from batonbus.bench.dispatch import WORKS, run_dispatch_bench
from batonbus.bench.throughput import run_bench
from batonbus.cli.options import Json, Level, LogLevel, new_app
from batonbus.cli.output import Output, new_table
from batonbus.cli.running import run, start_logs

app = new_app(invoke_without_command=True)


@app.callback()
def bench(
    ctx: typer.Context,
    handoffs: Annotated[int, typer.Option(min=2, help="Handoffs to send.")] = 5000,
    size: Annotated[int, typer.Option(min=1, max=60_000, help="Characters in each.")] = 1024,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Measure whole handoffs a second: sent, delivered, accepted, settled, each step stored.

    It starts a bus of its own in a temporary folder, with one agent, each a process.

    \b
    Examples:
      batonbus bench
      batonbus bench --size 16384 --handoffs 2000 --json
      batonbus bench dispatch
    """
    if ctx.invoked_subcommand is not None:
        _check_unused(ctx, ctx.invoked_subcommand)
        return
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)

    async def work() -> int:
        report = await run_bench(handoffs, size)
        output.show(
            f"{report.handoffs_per_s:,.0f} handoffs a second "
            f"({report.handoffs:,} of {report.size:,} characters in {report.seconds:.1f} s, "
            f"{report.in_flight} under way at a time)",
            f"receipts under this load: p50 {report.receipt_ms_p50:.0f} ms, "
            f"p99 {report.receipt_ms_p99:.0f} ms",
        )
        output.emit(report)
        return 0

    raise typer.Exit(run(output, work))


def _check_unused(ctx: typer.Context, command: str) -> None:
    """What stands before a subcommand's name would count for nothing. Raises UsageError."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            problem = f"put it behind `{command}`, if it has it"
            raise typer.BadParameter(problem, ctx, param_hint=parameter.opts[0])


@app.command()
def dispatch(as_json: Json = False, log_level: LogLevel = None) -> None:
    """Measure the texts that agents are given, against pasting all that earlier steps said.

    Works of 3, 10 and 100 tasks, each with builder, verifier and committer, go through a real bus
    in a temporary folder. Every step says about 3 KB.

    \b
    Examples:
      batonbus bench dispatch
      batonbus bench dispatch --json
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)

    async def work() -> int:
        reports = await run_dispatch_bench(WORKS)
        table = new_table(
            "tasks", "largest text received", "largest history", "percent", "last step kept"
        )
        for it in reports:
            table.add_row(
                f"{it.tasks:,}",
                f"{it.received_chars:,}",
                f"{it.history_chars:,}",
                f"{it.percent:.1f}",
                "yes" if it.last_step_kept else "NO",
            )
        output.show(table)
        output.emit({"works": reports})
        return 0

    raise typer.Exit(run(output, work))
