"""`batonbus trace`: what each handoff of a work was given to read, and how long that was."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import typer
from msgspec import Struct
from rich.table import Table

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, draw_rows, short
from batonbus.cli.running import run, start_logs
from batonbus.run.core import open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.history import HandoffNotFoundError, History, read_work
from batonbus_schemas import Cut, DetailLevel, TextSize, WindowEntry
from batonbus_schemas.counts import counted

app = new_app()


class Traced(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One handoff of a work: `sizes` and `window` are of what was delivered, if it was."""

    id: UUID
    task: str | None
    from_: str
    to: str
    state: str
    sizes: TextSize | None
    window: list[dict[str, Any]]
    cuts: tuple[Cut, ...]


@app.command()
def trace(
    work: Annotated[str, typer.Argument(metavar="WORK", help="The work, such as WORK-01.")],
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Show all handoffs of a work in their order: who saw whose context, at which level, and how
    long its text was against what it may be.

    \b
    Examples:
      batonbus trace WORK-01
      batonbus trace WORK-01 --json | jq '.handoffs[] | [.to, .sizes.characters]'
    """
    start_logs(log_level, Level.ERROR)
    output = Output(as_json)
    raise typer.Exit(run(output, partial(_trace, output, url, fleet or find_fleet(), work)))


async def _trace(output: Output, url: str | None, fleet: str, work: str) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        histories = await read_work(core.ledger, work)
    if not histories:
        raise HandoffNotFoundError(f"the ledger of the fleet {fleet!r} has no handoff of {work}")
    handoffs = [trace_of(it) for it in histories]
    output.show(_draw(handoffs))
    output.emit({"work": work, "handoffs": handoffs})
    return 0


def trace_of(history: History) -> Traced:
    """What is told of one handoff."""
    chain, envelope, delivery = history.chain, history.completed, history.delivery
    return Traced(
        id=chain.id,
        task=envelope.task if envelope else None,
        from_=envelope.sender if envelope else chain.sender or "",
        to=envelope.to if envelope else "",
        state=chain.stage,
        sizes=delivery.size if delivery else None,
        window=[_seen(entry) for entry in delivery.window] if delivery else [],
        cuts=delivery.cuts if delivery else (),
    )


def _seen(entry: WindowEntry) -> dict[str, Any]:
    return {
        "distance": entry.distance,
        "level": entry.level,
        "from": entry.from_,
        "task": entry.task,
        "handoff_id": entry.handoff_id,
    }


def _draw(handoffs: Sequence[Traced]) -> Table:
    columns = ("id", "task", "from → to", "state", "characters", "cut", "FULL", "SUMMARY")
    return draw_rows(columns, [_row(it) for it in handoffs], wraps=("from → to", "FULL", "SUMMARY"))


def _row(handoff: Traced) -> list[str]:
    size = handoff.sizes
    return [
        short(handoff.id),
        handoff.task or "",
        f"{handoff.from_} → {handoff.to}",
        handoff.state,
        f"{size.characters:,} of {size.max_characters:,}" if size else "",
        counted(len(size.steps), "time") if size and size.steps else "",
        _shown(handoff, DetailLevel.FULL),
        _shown(handoff, DetailLevel.SUMMARY),
    ]


def _shown(handoff: Traced, level: DetailLevel) -> str:
    """Whose context it saw at a level: a stage by its role, another task by its name."""
    return ", ".join(
        it["task"] if it["task"] and it["task"] != handoff.task else it["from"]
        for it in handoff.window
        if it["level"] is level
    )
