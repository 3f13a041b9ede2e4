"""`batonbus inbox`: what waits for a person."""

from datetime import datetime
from functools import partial
from typing import Annotated
from uuid import UUID

import typer
from msgspec import Struct

from batonbus.cli.history import describe_body
from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, duration, new_table, one_line, short
from batonbus.cli.running import run, start_logs
from batonbus.run.core import open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.inbox import Inbox, Waiting
from batonbus.wire.subjects import is_token
from batonbus_schemas import Question

app = new_app()


class Entry(Struct, frozen=True, kw_only=True):
    """A handoff that waits for an answer. `asked` is the question, or what else is to be done;
    `waited_s` how long it waits, in seconds."""

    handoff_id: UUID
    sender: str
    work: str
    task: str | None
    state: str
    waited_s: float
    deadline: datetime | None
    is_question: bool
    asked: str
    options: tuple[str, ...]


@app.command()
def inbox(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="The role, such as lead.")],
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """List what waits for a role and is nobody's: questions to a person, the oldest first, and work
    that no agent has taken.

    \b
    Examples:
      batonbus inbox lead
      batonbus inbox lead --json | jq -r '.waiting[].asked'

    \b
    Then `batonbus answer ID TEXT`; `batonbus show ID` tells more.
    """
    if not is_token(role):
        raise typer.BadParameter(f"{role!r} is no role: letters, digits, dashes and underscores")
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    raise typer.Exit(run(output, partial(_list, output, url, fleet or find_fleet(), role)))


async def _list(output: Output, url: str | None, fleet: str, role: str) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        found = await Inbox(core).read(role)
        now = core.connection.server_time()
    waiting = [_describe(it, now) for it in found]
    table = new_table(
        "id", "from", "work", "task", "asked", "question", "options", wraps=("question", "options")
    )
    for it in waiting:
        table.add_row(
            short(it.handoff_id),
            it.sender,
            it.work,
            it.task or "",
            f"{duration(it.waited_s)} ago",
            one_line(it.asked),
            number(it.options),
        )
    output.show(table if waiting else f"nothing waits for {role}")
    output.emit({"fleet": fleet, "role": role, "waiting": waiting})
    return 0


def _describe(waiting: Waiting, now: float) -> Entry:
    chain, envelope = waiting.chain, waiting.envelope
    question = envelope.body if isinstance(envelope.body, Question) else None
    return Entry(
        handoff_id=chain.id,
        sender=envelope.sender,
        work=envelope.work,
        task=envelope.task,
        state=chain.stage,
        waited_s=round(max(now - chain.began, 0), 3),
        deadline=envelope.deadline,
        is_question=question is not None,
        asked=question.text if question else describe_body(envelope),
        options=question.options if question else (),
    )


def number(options: tuple[str, ...]) -> str:
    """The options of a question, by number."""
    return ", ".join(f"{count} {one_line(it)}" for count, it in enumerate(options, start=1))
