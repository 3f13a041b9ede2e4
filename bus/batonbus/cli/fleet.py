"""`batonbus fleet`: who is there."""

from functools import partial
from uuid import UUID

import typer
from msgspec import Struct

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean, new_table, short
from batonbus.cli.running import run, start_logs
from batonbus.rules.diagnosis import SHARED_ADVICE, tell_shared
from batonbus.rules.gate import way_out
from batonbus.run.core import Core, open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus_schemas import AgentCard, ContextUsage, Presence

app = new_app()


class LiveAgent(Struct, frozen=True):
    """A live agent, with the handoffs that it works on; where it is closed, why, and what to do.
    `shared`: more than one process runs under its id."""

    card: AgentCard
    state: str
    working: tuple[UUID, ...]
    closed: str = ""
    advice: str = ""
    shared: bool = False


@app.command()
def fleet(
    url: Url = None, fleet: Fleet = None, as_json: Json = False, log_level: LogLevel = None
) -> None:
    """List the live agents: who they are, and what they work on.

    \b
    Examples:
      batonbus fleet
      batonbus fleet --json | jq -r '.agents[].card.id'
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    raise typer.Exit(run(output, partial(_list, output, url, fleet or find_fleet())))


async def _list(output: Output, url: str | None, fleet: str) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        agents = [await _look_at(core, it) for it in await core.registry.list()]
    table = new_table(
        "agent", "role", "state", "slots", "context", "can", "works on", wraps=("can", "works on")
    )
    for agent in agents:
        card = agent.card
        table.add_row(
            card.id,
            card.role,
            agent.state,
            f"{len(agent.working)} of {card.slots}",
            describe_usage(card.context_usage),
            clean(", ".join(card.capabilities)),
            " ".join(map(short, agent.working)),
        )
    if agents:
        output.show(table, *(_tell_closed(it) for it in agents if it.closed))
        output.show(*(_tell_shared(it) for it in agents if it.shared))
    else:
        output.show(
            f"no agent of the fleet {fleet!r} is alive: start one, for example\n"
            "  batonbus agent --role reviewer --command 'wc -w'"
        )
    output.emit({"fleet": fleet, "agents": agents})
    return 0


async def _look_at(core: Core, presence: Presence) -> LiveAgent:
    """An agent names accepted events; people know handoffs."""
    events = [await core.ledger.read(sequence) for sequence in presence.working]
    working = tuple(it.subject.handoff_id for it in events if it is not None)
    return LiveAgent(
        card=presence.card,
        state=describe_state(presence),
        working=working,
        closed=presence.closed,
        advice=way_out(presence.closed),
        shared=presence.shared,
    )


def _tell_closed(agent: LiveAgent) -> str:
    why = clean(f"{agent.card.id} is closed: {agent.closed}")
    return f"\n{why}\n  what to do: {agent.advice}"


def _tell_shared(agent: LiveAgent) -> str:
    return f"\n{tell_shared(agent.card.id)}\n  what to do: {SHARED_ADVICE}"


def describe_usage(usage: ContextUsage) -> str:
    """How full an agent's context is; an estimate is one, and nobody's word is unknown."""
    if usage.source == "unknown" or usage.percent is None:
        return "unknown"
    about = "about " if usage.source == "estimated" else ""
    return f"{about}{usage.percent:g} %"


def describe_state(presence: Presence) -> str:
    """What an agent does, in a word."""
    if presence.stopping:
        return "stopping"
    if presence.closed:
        return "closed"
    if len(presence.working) >= presence.card.slots:
        return "busy"
    return "working" if presence.working else "idle"
