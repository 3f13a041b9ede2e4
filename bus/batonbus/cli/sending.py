"""`batonbus send`: hand work over, and say what became of it."""

import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import uuid4

import anyio
import msgspec
import typer
from msgspec import Struct

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean
from batonbus.cli.running import run, start_logs
from batonbus.cli.tracing import configure_tracing
from batonbus.rules.admission import expected_capabilities
from batonbus.rules.errors import Bounced
from batonbus.run.bus import Bus
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.sent import Sent
from batonbus_schemas import (
    Dispatch,
    Envelope,
    InvalidMessageError,
    Receipt,
    TaskResult,
    Violation,
    encode,
    read_handoff,
)
from batonbus_schemas.envelope import ADHOC

EXIT_CODES = {
    "accepted": 0,
    "settled": 0,
    "held": 3,
    "refused": 4,
    "overdue": 5,
    "failed": 6,
    "dead": 6,
    "cancelled": 6,
}
FAILED = EXIT_CODES["failed"]

app = new_app()


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a handoff: its newest receipt, and its result if somebody waited for it.

    `handoff_id` is text, for a refused document's id need not be a UUID.
    """

    handoff_id: str
    state: str
    by: str
    reason: str = ""
    violations: tuple[Violation, ...] = ()
    attempt: int | None = None
    lease: int | None = None
    waited_s: float | None = None
    listening: tuple[str, ...] = ()
    result: TaskResult | None = None


@app.command()
def send(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|TEXT",
            help="A contract v1 document or an envelope; with --to the text of the assignment. "
            "`-` reads stdin.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="Role or agent to hand the text to.", show_default=False),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result, too.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="How long --wait waits.", show_default=False),
    ] = None,
    work: Annotated[
        str | None,
        typer.Option(metavar="WORK", help="The work that the text belongs to.", show_default=False),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK", help="The task of that work, such as TASK-01.", show_default=False
        ),
    ] = None,
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
    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout needs --wait")
    start_logs(log_level, Level.WARNING)
    configure_tracing("batonbus-send")
    output = Output(as_json)
    data = _read(what, is_text=to is not None)
    actor = f"cli-{uuid4().hex[:8]}"
    try:
        if to is None:
            envelope = read_handoff(data, sender=actor)
        else:
            envelope = _wrap(data, to, sender=actor, work=work or ADHOC, task=task)
    except InvalidMessageError as error:
        raise typer.Exit(_report(output, _refused(data, actor, error.violations))) from None
    go = partial(_send, output, url, fleet or find_fleet(), envelope, wait, timeout)
    raise typer.Exit(run(output, go))


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


def _refused(data: bytes, actor: str, violations: tuple[Violation, ...]) -> Outcome:
    """A message that never left: nobody needs the bus to know that it is invalid."""
    try:
        tree: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        tree = None
    names = cast("dict[str, Any]", tree) if isinstance(tree, dict) else {}
    said = names.get("handoff_id", names.get("id", ""))
    return Outcome(
        handoff_id=said if isinstance(said, str) else "",
        state="refused",
        by=actor,
        reason="the message is not valid, so it was not sent",
        violations=violations,
    )


async def _send(
    output: Output,
    url: str | None,
    fleet: str,
    envelope: Envelope,
    wait: bool,
    timeout: float | None,
) -> int:
    async with Bus(url or find_url(), actor=envelope.sender, fleet=fleet) as bus:
        started = time.monotonic()
        sent = await bus.send_envelope(envelope)
        receipt = await sent.receipt()
        outcome = _outcome(receipt, waited_s=round(time.monotonic() - started, 3))
        advice = advise(outcome, envelope, bus.client.settings.give_up_after)
        if not wait or outcome.state in {"refused", "dead", "cancelled"}:
            return _report(output, outcome, advice)
        _show(output, outcome, advice)
        return await _await_result(output, sent, outcome, timeout)


async def _await_result(output: Output, sent: Sent, outcome: Outcome, timeout: float | None) -> int:
    try:
        with anyio.fail_after(timeout):
            result = await sent.result()
    except Bounced as error:
        return _report(output, _outcome(error.receipt))
    except TimeoutError:
        output.note(
            f"no result within {timeout:g} s; the work goes on: "
            f"`batonbus show {outcome.handoff_id}` tells how it stands"
        )
        output.emit(outcome)
        return EXIT_CODES[outcome.state] or 1
    return _report(output, msgspec.structs.replace(outcome, state="settled", result=result))


def _outcome(receipt: Receipt, **more: object) -> Outcome:
    return msgspec.convert({**msgspec.to_builtins(receipt), **more}, Outcome)


def _report(output: Output, outcome: Outcome, advice: str = "") -> int:
    """Print the outcome for people or programs, and give its exit code."""
    _show(output, outcome, advice)
    output.emit(outcome)
    failed = outcome.result is not None and outcome.result.status == "FAIL"
    return FAILED if failed else EXIT_CODES[outcome.state]


def _show(output: Output, outcome: Outcome, advice: str = "") -> None:
    output.show(*describe(outcome), *([advice] if advice else []))


def describe(outcome: Outcome) -> list[str]:
    """An outcome in lines for people."""
    if outcome.result is not None:
        context = outcome.result.context_handoff
        said = context.what if context else outcome.result.summary
        return [outcome.result.status, *clean(said).splitlines()]
    after = f" after {outcome.waited_s:g} s" if outcome.waited_s is not None else ""
    lines = [f"{outcome.state} by {outcome.by}{after}", f"  handoff {clean(outcome.handoff_id)}"]
    if outcome.reason:
        lines.append(f"  {clean(outcome.reason)}")
    lines += [f"  {clean(str(violation))}" for violation in outcome.violations]
    if outcome.listening:
        lines.append(f"  listening: {', '.join(outcome.listening)}")
    return lines


def advise(outcome: Outcome, envelope: Envelope, give_up_after: float) -> str:
    """What a sender can do about this outcome."""
    stays = f"It stays in the ledger, for {give_up_after:g} s"
    match outcome.state:
        case "overdue" if not outcome.listening:
            needed = sorted(expected_capabilities(envelope))
            can = "".join(f" --capability {shlex.quote(clean(it))}" for it in needed)
            return (
                f"{stays}, and is delivered as soon as an agent starts:\n"
                f"  batonbus agent --role {envelope.to}{can} --command '…'"
            )
        case "overdue":
            return f"{stays}; `batonbus show {outcome.handoff_id}` tells how it stands."
        case "held":
            return f"{stays}, until an agent has room for it."
        case _:
            return ""
