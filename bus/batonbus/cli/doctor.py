"""`batonbus doctor`: can the bus do its work?"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean, new_table
from batonbus.cli.running import run, start_logs
from batonbus.run.discovery import (
    MONITORING_VARIABLE,
    find_fleet,
    find_url,
    local_url,
    store_folder,
)
from batonbus.run.doctor import examine

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}

app = new_app()


@app.command()
def doctor(
    monitoring: Annotated[
        str | None,
        typer.Option(
            envvar=MONITORING_VARIABLE,
            metavar="URL",
            help="Address of the server's own monitoring, such as http://127.0.0.1:8222.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Check whether the bus can do its work, and say what to do where it cannot.

    Exits with 0 only while nothing fails; warnings are allowed. Changes
    nothing, but stores one empty message that is no event: only a write shows
    that the disk is not full.

    \b
    Examples:
      batonbus doctor
      batonbus doctor --monitoring http://127.0.0.1:8222 --json
    """
    start_logs(log_level, Level.ERROR)
    output = Output(as_json)
    raise typer.Exit(run(output, partial(_examine, output, url, fleet or find_fleet(), monitoring)))


async def _examine(output: Output, url: str | None, fleet: str, monitoring: str | None) -> int:
    where = url or find_url()
    store = store_folder(Path.cwd()) if where == local_url(Path.cwd()) else None
    findings = await examine(where, fleet, monitoring=monitoring, store=store)
    table = new_table("check", "", "how it is", "what to do", wraps=("how it is", "what to do"))
    for it in findings:
        row = (it.name, it.status, clean(it.detail), it.advice)
        table.add_row(*row, style=STYLES[it.status] if it.status != "ok" else None)
    healthy = all(it.status != "fail" for it in findings)
    output.show(table, "", "The bus can do its work." if healthy else "The bus cannot do its work.")
    output.emit({"ok": healthy, "fleet": fleet, "checks": findings})
    return 0 if healthy else 1
