"""`batonbus up`: a whole bus in the current folder."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, new_app
from batonbus.cli.output import Output
from batonbus.cli.running import run, run_and_cancel, run_until_signal, start_logs
from batonbus.rules.chain import OPERATOR
from batonbus.run.discovery import STATE_FOLDER, find_fleet
from batonbus.run.doctor import warn_at_start
from batonbus.run.supervisor import local_bus
from batonbus.wire.connection import connect

app = new_app()


@app.command()
def up(
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="N",
            help="Port of the server on 127.0.0.1. Default: the last one, else a free one.",
            show_default=False,
        ),
    ] = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Start a bus in this folder: server, window manager and receipt keeper, until Ctrl-C.

    Its address is the first line of stdout. A process that dies is started
    again. All that was handed over stays in .batonbus/store; the next `up`
    goes on with it, on the same port.

    \b
    Examples:
      batonbus up
      batonbus up --port 4222 --log-level warning
    """
    # A person is told how to go on; a program reads what happens.
    is_watched = sys.stdout.isatty() and sys.stderr.isatty() and not as_json
    level = log_level or (Level.WARNING if is_watched else Level.INFO)
    start_logs(level, Level.INFO)
    output = Output(as_json)
    told: dict[str, str] = {}

    async def serve() -> None:
        folder, name = Path.cwd(), fleet or find_fleet()
        async with local_bus(folder, fleet=name, port=port, log_level=level) as url:
            told["url"] = url
            async with connect(url, OPERATOR) as connection:
                await warn_at_start(connection, name, embedded=True)
            output.emit({"url": url, "state": str(folder / STATE_FOLDER)})
            if not as_json:
                typer.echo(url)
            if is_watched:
                output.show(*_how_to_go_on(name))
            await anyio.sleep_forever()

    async def work(stop: anyio.Event) -> None:
        # Also while the server still reads its store, however long that takes.
        await run_and_cancel(serve, stop)
        output.emit({**told, "stopped": True})

    raise typer.Exit(run(output, partial(run_until_signal, work)))


def _how_to_go_on(fleet: str) -> list[str]:
    return [
        f"The bus of the fleet {fleet!r} is up; its store is {STATE_FOLDER}/store.",
        "In another terminal, in this folder:",
        "  batonbus agent MODULE:AGENT      starts an agent",
        "  batonbus send --to ROLE TEXT     hands work over",
        "  batonbus fleet                   shows who is there",
        "Ctrl-C ends it.",
    ]
