"""`batonbus run`: one process of the bus."""

import os
from collections.abc import Callable, Mapping
from functools import partial

import anyio
import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output
from batonbus.cli.running import (
    run,
    run_and_cancel,
    run_patiently,
    run_until_signal,
    start_logs,
)
from batonbus.cli.tracing import configure_tracing
from batonbus.rules.chain import RECEIPT_KEEPER, WINDOW_MANAGER
from batonbus.run.core import Core, open_core
from batonbus.run.discovery import MONITORING_VARIABLE, find_fleet, find_url
from batonbus.run.doctor import warn_at_start
from batonbus.run.receipt_keeper import ReceiptKeeper
from batonbus.run.window_manager import WindowManager

PARTS: Mapping[str, Callable[[Core], WindowManager | ReceiptKeeper]] = {
    WINDOW_MANAGER: WindowManager,
    RECEIPT_KEEPER: ReceiptKeeper,
}

app = new_app(no_args_is_help=True)


@app.callback()
def run_part() -> None:
    """Run one process of the bus until SIGTERM or Ctrl-C. `batonbus up` does all of it.

    Any number of each may run side by side. One that starts before its server
    waits for it.

    \b
    Examples:
      BATONBUS_URL=nats://nats:4222 batonbus run window-manager
      BATONBUS_URL=nats://nats:4222 batonbus run receipt-keeper
    """


@app.command(WINDOW_MANAGER)
def window_manager(
    url: Url = None, fleet: Fleet = None, as_json: Json = False, log_level: LogLevel = None
) -> None:
    """Check each handoff, build its window, deliver it."""
    _run(WINDOW_MANAGER, url, fleet, as_json, log_level)


@app.command(RECEIPT_KEEPER)
def receipt_keeper(
    url: Url = None, fleet: Fleet = None, as_json: Json = False, log_level: LogLevel = None
) -> None:
    """See that every sender is answered in time, and answer what agents ask."""
    _run(RECEIPT_KEEPER, url, fleet, as_json, log_level)


def _run(
    part: str, url: str | None, fleet: str | None, as_json: bool, log_level: Level | None
) -> None:
    start_logs(log_level, Level.INFO)
    configure_tracing(part)
    output = Output(as_json)

    async def work(stop: anyio.Event) -> None:
        try:
            keep = partial(_keep, part, url, fleet or find_fleet())
            await run_and_cancel(partial(run_patiently, keep, stop), stop)
        finally:
            output.emit({"part": part, "stopped": True})

    raise typer.Exit(run(output, partial(run_until_signal, work)))


async def _keep(part: str, url: str | None, fleet: str) -> None:
    async with open_core(url or find_url(), part, fleet=fleet) as core:
        monitoring = os.environ.get(MONITORING_VARIABLE)
        await warn_at_start(core.connection, fleet, monitoring=monitoring)
        await PARTS[part](core).run()
