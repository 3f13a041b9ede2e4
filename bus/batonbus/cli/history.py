"""`batonbus show`: all that happened to a handoff."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer
from rich.table import Table

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean, new_table, one_line, short
from batonbus.cli.running import run, start_logs
from batonbus.rules.chain import child_id
from batonbus.run.core import Core, open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.history import HandoffNotFoundError, History, Step, find_ids, read_line
from batonbus_schemas import Cut, Dispatch, Envelope, HandoffV1, Question, TaskResult, TextSize

_PREFIX = re.compile(r"[0-9a-f-]{4,36}")

HandoffId = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id of the handoff, or its first four characters or more."),
]

app = new_app()


@app.command()
def show(
    handoff: HandoffId,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Show all that happened to a handoff: its events, what its receiver saw, its result; and the
    same for those that it was handed on to.

    \b
    Examples:
      batonbus show 5f0c2c1e-8a53-4a6e-9f3a-0d4c7f1b2a90
      batonbus show 5f0c
    """
    text = check_prefix(handoff)
    start_logs(log_level, Level.ERROR)
    output = Output(as_json)
    raise typer.Exit(run(output, partial(_show, output, url, fleet or find_fleet(), text)))


def check_prefix(text: str) -> str:
    """An id of a handoff, or the beginning of one, in lower case. Raises BadParameter."""
    if not _PREFIX.fullmatch(text.lower()):
        raise typer.BadParameter(f"{text!r} is no id of a handoff: a UUID, or its beginning")
    return text.lower()


async def _show(output: Output, url: str | None, fleet: str, text: str) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        line = await read_line(core.ledger, await resolve(core, text))
    if not line:
        raise HandoffNotFoundError(f"the ledger of the fleet {fleet!r} has no handoff {text}")
    began = line[0].steps[0].stored.event.at
    for history in line:
        output.show(*_draw(history, began))
    output.emit({"fleet": fleet, "handoffs": [as_data(it, began) for it in line]})
    return 0


async def resolve(core: Core, text: str) -> UUID:
    """The handoff whose id is, or begins with, this text. Raises HandoffNotFoundError where there
    are none or several; a whole id is not looked up."""
    try:
        return UUID(text)
    except ValueError:
        found = await find_ids(core, text)
    if not found:
        raise HandoffNotFoundError(
            f"the ledger of the fleet {core.fleet!r} has no handoff that begins with {text!r}"
        )
    if len(found) > 1:
        some = "".join(f"\n  {it}" for it in found[:10])
        raise HandoffNotFoundError(f"{len(found)} handoffs begin with {text!r}: name one{some}")
    return found[0]


def _draw(history: History, began: float) -> list[str | Table]:
    """One handoff for people; moments are seconds since `began`."""
    parts: list[str | Table] = [*describe_head(history), _draw_events(history, began)]
    if history.delivery is not None:
        parts += ["", *_draw_window(history.delivery.cuts)]
        parts += describe_size(history.delivery.size)
    if history.settlement is not None:
        parts += ["", *describe_result(history.settlement.result)]
    return [*parts, ""]


def describe_head(history: History) -> list[str]:
    """Which handoff it is, how it stands, and what was asked."""
    chain, envelope = history.chain, history.completed
    lines = [f"handoff {chain.id}: {chain.stage if history.steps else 'handed on'}"]
    if envelope is not None:
        task = f", task {envelope.task}" if envelope.task else ""
        lines.append(f"{envelope.sender} → {envelope.to}, work {envelope.work}{task}")
        lines.append(f"asked: {describe_body(envelope)}")
    return lines


def describe_body(envelope: Envelope) -> str:
    """What a handoff asks, in one line."""
    match envelope.body:
        case Dispatch(title=title, brief=brief):
            return one_line(title or brief)
        case Question(text=text):
            return one_line(text)
        case HandoffV1() as body:
            return one_line(body.contract.objective.goal)
        case body:
            return type(body).__name__


def _draw_events(history: History, began: float) -> Table:
    table = new_table("seq", "event", "by", "for", "after", "details", wraps=("details",))
    for step in history.steps:
        event = step.stored.event
        table.add_row(
            str(event.sequence),
            event.kind,
            event.actor,
            "" if event.to == "_" else event.to,
            f"{event.at - began:.3f} s",
            describe_step(step, history),
            style="dim strike" if step.objection else None,
        )
    return table


def describe_step(step: Step, history: History) -> str:
    """What is worth knowing of an event, in one line."""
    event = step.stored.event
    if step.objection is not None:
        return f"VOID: {step.objection}"
    facts: list[str] = []
    if event.kind in {"accepted", "failed", "settled"}:
        facts.append(f"attempt {event.attempt}")
    if event.lease is not None:
        facts.append(f"lease {event.lease}")
    if step.takes_over_from is not None:
        facts.append(f"takes over from {step.takes_over_from}, whose answer is stale from here on")
    if event.kind == "settled" and history.settlement is not None:
        facts.append(history.settlement.result.status)
    if event.child_to is not None:
        facts.append(f"then {event.child_to} {short(child_id(history.chain.id))}")
    if event.reason:
        facts.append(one_line(event.reason))
    return ", ".join(facts)


def _draw_window(cuts: Sequence[Cut]) -> list[str | Table]:
    if not cuts:
        return ["window: empty, nothing came before it"]
    table = new_table("from", "task", "edge", "distance", "level", "bytes", "shown", "handoff")
    for cut in cuts:
        table.add_row(
            cut.from_ or "",
            cut.task or "",
            cut.edge.value,
            str(cut.distance),
            cut.level.value,
            f"{cut.bytes_before:,}",
            f"{cut.bytes_after:,}",
            short(cut.handoff_id),
        )
    return ["window, and what was cut:", table]


def describe_size(size: TextSize | None) -> list[str]:
    """How long the text was that the receiver was given, and what was taken out of it."""
    if size is None:
        return []
    return [
        f"text: {size.characters:,} of {size.max_characters:,} characters, "
        f"{size.tokens:,} of {size.max_tokens:,} tokens ({size.form}, {size.row})",
        *(f"  {step}" for step in size.steps),
    ]


def describe_result(result: TaskResult) -> list[str]:
    """A result in lines for people."""
    lines = [f"result: {result.status}"]
    context = result.context_handoff
    if context is None:
        return [*lines, *_field("summary", result.summary), *_field("notes", result.notes)]
    for name in ("what", "why", "caution", "incomplete"):
        lines += _field(name, getattr(context, name))
    return lines


def _field(name: str, text: str) -> list[str]:
    if not text.strip():
        return []
    first, *rest = clean(text).splitlines()
    return [f"  {name}: {first}", *(f"    {line}" for line in rest)]


def as_data(history: History, began: float) -> dict[str, Any]:
    """One handoff for programs."""
    return {
        "handoff_id": history.chain.id,
        "state": history.chain.stage,
        "envelope": history.envelope,
        "events": [_event_data(step, began) for step in history.steps],
        "window": history.delivery.window if history.delivery else (),
        "sizes": history.delivery.size if history.delivery else None,
        "cuts": history.delivery.cuts if history.delivery else (),
        "result": history.settlement.result if history.settlement else None,
        "next": history.chain.child,
    }


def _event_data(step: Step, began: float) -> dict[str, Any]:
    event = step.stored.event
    return {
        **{key: value for key, value in msgspec.to_builtins(event).items() if value is not None},
        "after_s": round(event.at - began, 6),
        "void": step.objection,
        "takes_over_from": step.takes_over_from,
    }
