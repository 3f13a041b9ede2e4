"""`batonbus tail`: the events of the ledger as they happen."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import anyio
import msgspec
import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, one_line, short
from batonbus.cli.running import run, run_and_cancel, run_until_signal, start_logs
from batonbus.rules.chain import child_id
from batonbus.run.core import open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.history import follow
from batonbus.wire.ledger import Stored
from batonbus_schemas import InvalidMessageError, Settlement, decode

app = new_app()


@app.command()
def tail(
    everything: Annotated[
        bool, typer.Option("--all", help="From the ledger's first event on.")
    ] = False,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Follow the events of the ledger until Ctrl-C; with --json one object a line.

    \b
    Examples:
      batonbus tail
      batonbus tail --all --json | jq -r 'select(.kind == "refused").reason'
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)

    async def work(stop: anyio.Event) -> None:
        follow_ = partial(_follow, output, url, fleet or find_fleet(), everything)
        await run_and_cancel(follow_, stop)

    raise typer.Exit(run(output, partial(run_until_signal, work)))


async def _follow(output: Output, url: str | None, fleet: str, everything: bool) -> None:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        await follow(core, partial(_print, output), everything=everything)


def _print(output: Output, stored: Stored) -> None:
    if output.as_json:
        output.emit(as_data(stored))
    else:
        output.show(describe(stored))


def describe(stored: Stored) -> str:
    """An event in one line for people."""
    event, handoff_id = stored.event, stored.subject.handoff_id
    counted = event.kind in {"accepted", "failed"}
    time = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S.%f")[:-3]
    to = "" if event.to == "_" else f" → {event.to}"
    facts = [
        f"attempt {event.attempt}" if counted else "",
        _status(stored),
        f"then {event.child_to} {short(child_id(handoff_id))}" if event.child_to else "",
        one_line(event.reason),
    ]
    details = ", ".join(fact for fact in facts if fact)
    line = f"{time} {short(handoff_id)} {event.kind:<9} {event.actor}{to}  {details}"
    return line.rstrip()


def _status(stored: Stored) -> str:
    """PASS or FAIL of a settled event; empty for others, and for what a foreign writer stored."""
    if stored.event.kind != "settled":
        return ""
    try:
        return decode(stored.payload, Settlement).result.status
    except InvalidMessageError:
        return ""


def as_data(stored: Stored) -> dict[str, Any]:
    """An event for programs, with its payload."""
    event = stored.event
    return {
        "handoff_id": stored.subject.handoff_id,
        **{key: value for key, value in msgspec.to_builtins(event).items() if value is not None},
        "time": datetime.fromtimestamp(event.at, UTC),
        "payload": _read_payload(stored.payload),
    }


def _read_payload(payload: bytes) -> Any:
    """JSON, or the text of what a foreign writer stored."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return payload.decode(errors="replace")
