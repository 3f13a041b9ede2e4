"""`batonbus send`: hand work over, and say what became of it."""

import math
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import anyio
import typer
from msgspec.structs import replace

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.outcome import Outcome, advise, describe, outcome_of, refused
from batonbus.cli.output import Output, clean, short
from batonbus.cli.running import run, start_logs
from batonbus.cli.tracing import configure_tracing
from batonbus.rules.errors import Bounced, BusUnavailableError, NoAnswerError
from batonbus.rules.receipts import by_name
from batonbus.run.bus import Bus
from batonbus.run.copies import copied_passages
from batonbus.run.core import beside
from batonbus.run.discovery import find_fleet, find_url, url_user
from batonbus.run.sent import Sent
from batonbus.wire.connection import CREDENTIALS_VARIABLE
from batonbus_schemas import (
    Dispatch,
    Envelope,
    InvalidMessageError,
    Presence,
    encode,
    read_handoff,
)
from batonbus_schemas.counts import counted
from batonbus_schemas.envelope import ADHOC

What = Annotated[
    str,
    typer.Argument(
        metavar="FILE|TEXT",
        help="A contract v1 document or an envelope; with --to the text of the assignment. "
        "`-` reads stdin.",
        show_default=False,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="ROLE", help="Role or agent to hand the text to.", show_default=False
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the result, too.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.1,
        metavar="SECONDS",
        help="How long --wait waits, from sending on: for the receipt and the result.",
        show_default=False,
    ),
]
Work = Annotated[
    str | None,
    typer.Option(
        "--work", metavar="WORK", help="The work that the text belongs to.", show_default=False
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="The task of that work, such as TASK-01.",
        show_default=False,
    ),
]

FEW = 3
"""Agents of a role that are named; more are counted."""

MOMENT = 1.0
"""Seconds for which nobody asks what is happening."""

app = new_app()


@app.command()
def send(
    what: What,
    to: To = None,
    wait: Wait = False,
    timeout: Timeout = None,
    work: Work = None,
    task: Task = None,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Hand work over, and say within 30 s whether it was accepted, held, refused, or is overdue.

    \b
    Examples:
      batonbus send handoff.json
      batonbus send --to reviewer 'Read src/window.py and list what is unclear.'
      git diff | batonbus send --to reviewer - --wait --timeout 600
      batonbus send --to builder 'Write the parser.' --work shop --task TASK-01

    \b
    Exit codes: 0 accepted (with --wait: passed), 1 no result in time,
    3 held, 4 refused, 5 overdue, 6 failed, dead or cancelled.
    """
    if to is None and (work or task):
        raise typer.BadParameter(
            "a file says its work and task itself: --work and --task need --to"
        )
    check_timeout(wait, timeout)
    start_logs(log_level, Level.WARNING)
    configure_tracing("batonbus-send")
    output = Output(as_json)
    data = _read(what, is_text=to is not None)
    # Where the server knows its users, an actor is one of them.
    actor = url_user(url or os.environ.get("BATONBUS_URL", "")) or f"cli-{uuid4().hex[:8]}"
    try:
        if to is None:
            envelope = read_handoff(data, sender=actor)
        else:
            envelope = _wrap(data, to, sender=actor, work=work or ADHOC, task=task)
        if copied := copied_passages(envelope.body, Path.cwd()):
            raise InvalidMessageError(tuple(copied))
    except InvalidMessageError as error:
        raise typer.Exit(report(output, refused(data, actor, error.violations))) from None
    go = partial(hand_over, output, url, fleet or find_fleet(), envelope, wait, timeout)
    raise typer.Exit(run(output, go))


def check_timeout(wait: bool, timeout: float | None) -> None:
    """Raises BadParameter for a --timeout that nothing waits for."""
    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout needs --wait")


def _read(what: str, *, is_text: bool) -> bytes:
    if what == "-":
        return sys.stdin.buffer.read()
    if is_text:
        return what.encode()
    try:
        return Path(what).read_bytes()
    except OSError as error:
        raise typer.BadParameter(
            f"{what} cannot be read ({error.strerror}): to send text, add --to ROLE"
        ) from None


def _wrap(data: bytes, to: str, *, sender: str, work: str, task: str | None) -> Envelope:
    """Text as an envelope. Raises InvalidMessageError."""
    body = Dispatch(brief=data.decode(errors="replace"))
    envelope = Envelope(id=uuid4(), sender=sender, to=to, body=body, work=work, task=task)
    return read_handoff(encode(envelope), sender=sender)


async def hand_over(
    output: Output,
    url: str | None,
    fleet: str,
    envelope: Envelope,
    wait: bool,
    timeout: float | None,
) -> int:
    """Send a handoff as its sender, say what became of it, and give the exit code."""
    address = url or find_url()
    async with Bus(address, actor=envelope.sender, fleet=fleet) as bus:
        started = time.monotonic()
        patience = math.inf if timeout is None else timeout
        try:
            sent = await _store(bus, envelope, patience)
        except InvalidMessageError as error:
            return report(output, refused(encode(envelope), envelope.sender, error.violations))
        known = str(sent.handoff_id)
        output.show(f"handoff {known}")
        outcome = Outcome(handoff_id=known, state="sent", by=envelope.sender)
        with anyio.move_on_after(patience - (time.monotonic() - started)):
            async with beside(partial(_explain_wait, output, bus, envelope.to, address)):
                receipt = await sent.receipt()
            outcome = outcome_of(receipt, waited_s=round(time.monotonic() - started, 3))
            advice = advise(outcome, envelope, bus.client.settings.give_up_after)
            if not wait or outcome.state in {"refused", "dead", "cancelled"}:
                return report(output, outcome, advice, known=known)
            _show(output, outcome, advice, known=known)
            return await _await_result(output, sent, outcome)
        output.note(
            f"no {'receipt' if outcome.state == 'sent' else 'result'} within {timeout:g} s; the "
            f"work goes on: `batonbus show {short(sent.handoff_id)}` tells how it stands"
        )
        output.emit(outcome)
        return outcome.exit_code or 1


async def _store(bus: Bus, envelope: Envelope, patience: float) -> Sent:
    """Raises NoAnswerError where the ledger does not store it within `patience` seconds, or in the
    time for a receipt: a program may wait for a server to come back, a person is told."""
    patience = min(patience, bus.client.settings.receipt_timeout)
    with anyio.move_on_after(patience):
        return await bus.send_envelope(envelope)
    raise NoAnswerError(
        f"the ledger did not say within {patience:g} s that handoff {envelope.id} is stored: see "
        f"`batonbus doctor`, and look with `batonbus show {envelope.id}` before you send it again"
    )


async def _explain_wait(output: Output, bus: Bus, to: str, address: str) -> None:
    """Who waits for longer than a moment is told for what, and that nobody listens where that is
    so. Never returns."""
    await anyio.sleep(MOMENT)
    patience = bus.client.settings.receipt_timeout
    output.note(f"it is stored; its receipt comes within {patience:g} s")
    # A server that knows its users lets no sender look at the registry.
    if url_user(address) is None and CREDENTIALS_VARIABLE not in os.environ:
        with suppress(BusUnavailableError, NoAnswerError):
            agents = await bus.client.registry.list()
            if to not in by_name(agents):
                output.note(f"nobody listens as {clean(to)} now, so it waits; {_tell_live(agents)}")
    await anyio.sleep_forever()


def _tell_live(agents: Sequence[Presence]) -> str:
    """Whom a handoff could be for: the roles, each with its agents' ids, which are names, too."""
    if not agents:
        return "no agent is live"
    ids: dict[str, list[str]] = {}
    for agent in agents:
        ids.setdefault(agent.card.role, []).append(agent.card.id)
    told = (
        f"{role} ({', '.join(its) if len(its) <= FEW else counted(len(its), 'agent')})"
        for role, its in sorted(ids.items())
    )
    return clean(f"live roles: {', '.join(told)}")


async def _await_result(output: Output, sent: Sent, outcome: Outcome) -> int:
    try:
        result = await sent.result()
    except Bounced as error:
        return report(output, outcome_of(error.receipt), known=outcome.handoff_id)
    return report(output, replace(outcome, state="settled", result=result))


def report(output: Output, outcome: Outcome, advice: str = "", *, known: str = "") -> int:
    """Print the outcome for people or programs, and give its exit code. `known`: see `describe`."""
    _show(output, outcome, advice, known=known)
    output.emit(outcome)
    return outcome.exit_code


def _show(output: Output, outcome: Outcome, advice: str = "", *, known: str) -> None:
    output.show(*describe(outcome, known=known), *([advice] if advice else []))
