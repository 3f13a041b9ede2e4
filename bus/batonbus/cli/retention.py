"""`batonbus retention`: letting go of what is over."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from batonbus.cli.options import (
    ExportFolder,
    Fleet,
    Json,
    Level,
    LogLevel,
    Url,
    new_app,
    read_age,
)
from batonbus.cli.output import Output
from batonbus.cli.running import run, start_logs
from batonbus.rules.retention import RETENTION_AGE
from batonbus.run.archive import EXPORTS
from batonbus.run.core import open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.retention import retain
from batonbus_schemas.counts import counted

DEFAULT_AGE = f"{RETENTION_AGE / 86_400:g}d"

app = new_app(no_args_is_help=True)


@app.callback()
def retention() -> None:
    """Let go of what is over: finished handoffs leave the ledger for a file.

    \b
    Examples:
      batonbus retention run --dry-run
      batonbus retention run --older-than 30d
    """


@app.command("run")
def run_(
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Since the last event: 90s, 15m, 12h or 30d.")
    ] = DEFAULT_AGE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    to: ExportFolder = None,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Export and purge works, and lines outside of works, that ended long ago.

    A work goes as a whole, once all of its handoffs have ended; so does what
    belongs together outside of works. Everything is in a file, on the disk,
    before it is purged; interrupted, it is simply run again. What dead agents
    left of them below .batonbus in the current folder is removed.

    \b
    Examples:
      batonbus retention run
      batonbus retention run --older-than 90d --to /backup/batonbus
    """
    age = read_age(older_than)
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    retain_ = partial(_retain, output, url, fleet or find_fleet(), age, dry_run, to or EXPORTS)
    raise typer.Exit(run(output, retain_))


async def _retain(
    output: Output, url: str | None, fleet: str, age: float, dry_run: bool, to: Path
) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        done = await retain(core, to, older_than=age, dry_run=dry_run)
    would = "would go" if dry_run else "are gone"
    output.show(f"handoffs that {would}: {done.expired:,}; that stay: {done.kept:,}")
    for work, count in sorted(done.works.items()):
        output.show(f"  {work}: {count:,}")
    if done.removed.file is not None:
        output.show(f"Exported: {counted(done.removed.events, 'event')}, to {done.removed.file}.")
    if done.leftovers:
        output.show(
            f"Files that their agents left here: {counted(done.leftovers, 'folder')} removed."
        )
    output.emit(
        {
            "fleet": fleet,
            "dry_run": dry_run,
            "handoffs": done.expired,
            "kept": done.kept,
            "works": done.works,
            "events": done.removed.events,
            "leftovers": done.leftovers,
            "export": str(done.removed.file) if done.removed.file else None,
        }
    )
    return 0
