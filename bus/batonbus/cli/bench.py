"""`batonbus bench`: how fast whole handoffs go on this machine."""

from typing import Annotated

import typer

from batonbus.bench import run_bench
from batonbus.cli.options import Json, Level, LogLevel, new_app
from batonbus.cli.output import Output
from batonbus.cli.running import run, start_logs

app = new_app()


@app.command()
def bench(
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
    """
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
