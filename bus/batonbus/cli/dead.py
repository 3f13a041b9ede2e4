"""`batonbus dead`: handoffs that were given up on."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import anyio
import anyio.to_thread
import typer
from rich.table import Table

from batonbus.cli.editing import edit_body, with_body
from batonbus.cli.history import HandoffId, as_data, check_prefix, describe_body, resolve
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
from batonbus.cli.outcome import refused
from batonbus.cli.output import Output, clean, draw_rows, new_table, one_line, short
from batonbus.cli.running import run, start_logs
from batonbus.cli.sending import Timeout, Wait, check_timeout, hand_over, report
from batonbus.cli.tracing import configure_tracing
from batonbus.rules.chain import Chain
from batonbus.rules.errors import BatonbusError
from batonbus.rules.retention import Relatives, obstacles
from batonbus.run.archive import EXPORTS, remove
from batonbus.run.core import Core, open_operator
from batonbus.run.dead_letters import DeadLetter, list_dead, make_retry, read_dead
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.retention import read_relatives
from batonbus_schemas import InvalidMessageError, encode
from batonbus_schemas.counts import counted

app = new_app(no_args_is_help=True)


class NotDeadError(BatonbusError):
    """A handoff is no dead letter."""


@app.callback()
def dead() -> None:
    """Dead letters: handoffs that were given up on, kept with their reason.

    \b
    Examples:
      batonbus dead list
      batonbus dead retry 5f0c --wait
    """


@app.command("list")
def list_(
    work: Annotated[
        str | None, typer.Option(metavar="WORK", help="Of this work alone.", show_default=False)
    ] = None,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """List all dead letters, the newest first.

    \b
    Examples:
      batonbus dead list
      batonbus dead list --work WORK-01 --json | jq -r '.dead[].reason'
    """
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    raise typer.Exit(run(output, partial(_list, output, url, fleet or find_fleet(), work)))


async def _list(output: Output, url: str | None, fleet: str, work: str | None) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        letters = await list_dead(core, work)
    whose = f"the fleet {fleet!r}" if work is None else f"the work {work!r}"
    output.show(_draw_list(letters) if letters else f"{whose} has no dead letters")
    output.emit({"fleet": fleet, "dead": [summarize(it) for it in letters]})
    return 0


def _draw_list(letters: Sequence[DeadLetter]) -> Table:
    rows = [
        [
            short(it.history.chain.id),
            it.history.chain.work,
            (it.envelope.task or "") if it.envelope else "",
            (it.envelope.to if it.envelope else it.history.chain.addressee) or "",
            datetime.fromtimestamp(it.at).astimezone().strftime("%Y-%m-%d %H:%M"),
            one_line(it.reason),
            f"{short(it.retry.handoff_id)} {it.retry.state}" if it.retry else "",
        ]
        for it in letters
    ]
    columns = ("id", "work", "task", "to", "when", "reason", "retried")
    return draw_rows(columns, rows, wraps=("reason", "retried"))


def summarize(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter for programs, without its content: an item of the list, the head of `show`."""
    chain, envelope = letter.history.chain, letter.envelope
    return {
        "handoff_id": chain.id,
        "work": chain.work,
        "task": envelope.task if envelope else None,
        "from": envelope.sender if envelope else chain.sender,
        "to": envelope.to if envelope else chain.addressee,
        "at": datetime.fromtimestamp(letter.at, UTC),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "error": letter.error,
        "retry": letter.retry,
        "trace_id": letter.trace_id or None,
    }


@app.command()
def show(
    handoff: HandoffId,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Show why a handoff died.

    It tells its attempts with their errors, its trace, and what it asked.

    \b
    Examples:
      batonbus dead show 5f0c
    """
    text = check_prefix(handoff)
    start_logs(log_level, Level.ERROR)
    output = Output(as_json)
    raise typer.Exit(run(output, partial(_show, output, url, fleet or find_fleet(), text)))


async def _show(output: Output, url: str | None, fleet: str, text: str) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        letter = await read_dead(core, await resolve(core, text))
    _check_dead(letter.history.chain)
    output.show(*_describe(letter))
    began = letter.history.steps[0].stored.event.at
    details = {
        "envelope": letter.envelope,
        "events": as_data(letter.history, began)["events"],
    }
    output.emit({"fleet": fleet, **summarize(letter), **details})
    return 0


def _check_dead(chain: Chain) -> None:
    if chain.stage != "dead":
        stage = "not in the ledger" if chain.stage == "none" else chain.stage
        raise NotDeadError(
            f"handoff {chain.id} is {stage}, no dead letter: `batonbus dead list` names them"
        )


def _describe(letter: DeadLetter) -> list[Any]:
    chain, envelope = letter.history.chain, letter.envelope
    when = datetime.fromtimestamp(letter.at).astimezone()
    lines: list[Any] = [f"handoff {chain.id}: dead since {when:%Y-%m-%d %H:%M:%S}"]
    if envelope is not None:
        task = f", task {envelope.task}" if envelope.task else ""
        lines.append(f"{envelope.sender} → {envelope.to}, work {envelope.work}{task}")
    lines += [f"reason: {clean(letter.reason)}", f"last error: {clean(letter.error) or 'none'}"]
    lines.append(f"trace: {letter.trace_id or 'none'}")
    if letter.retry is not None:
        lines.append(f"retried by {letter.retry.handoff_id}, which is {letter.retry.state}")
    if letter.attempts:
        table = new_table("attempt", "agent", "after", "error", wraps=("error",))
        for it in letter.attempts:
            after = f"{it.at - letter.history.chain.began:.3f} s"
            table.add_row(str(it.attempt), it.agent, after, clean(it.error))
        lines += ["", table]
    if envelope is not None:
        lines += ["", f"asked: {describe_body(envelope)}", clean(encode(envelope).decode())]
    return lines


@app.command()
def retry(
    handoff: HandoffId,
    edit: Annotated[
        bool, typer.Option("--edit", help="Change its body in $EDITOR before it is sent.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Try a dead handoff again, as a new one at the same place.

    It has the same content and three new attempts. Its answer comes here, for
    nobody waits for the old one any more. A handoff is retried once; a retry
    that died is retried itself.

    \b
    Examples:
      batonbus dead retry 5f0c --wait
      EDITOR=vi batonbus dead retry 5f0c --edit

    \b
    Exit codes: 0 accepted (with --wait: passed), 1 not retried, or no result in
    time, 3 held, 4 refused, 5 overdue, 6 failed, dead or cancelled.
    """
    check_timeout(wait, timeout)
    text = check_prefix(handoff)
    start_logs(log_level, Level.WARNING)
    configure_tracing("batonbus-dead")
    output = Output(as_json)
    again = partial(_retry, output, url, fleet or find_fleet(), text, edit, wait, timeout)
    raise typer.Exit(run(output, again))


async def _retry(
    output: Output,
    url: str | None,
    fleet: str,
    text: str,
    edit: bool,
    wait: bool,
    timeout: float | None,
) -> int:
    url = url or find_url()
    async with open_operator(url, fleet=fleet) as core:
        envelope = make_retry(await read_dead(core, await resolve(core, text)))
    if edit:
        # Not while connected: a person may take an hour.
        data = await anyio.to_thread.run_sync(edit_body, envelope.body)
        try:
            envelope = with_body(envelope, data)
        except InvalidMessageError as error:
            return report(output, refused(encode(envelope), envelope.sender, error.violations))
    return await hand_over(output, url, fleet, envelope, wait, timeout)


@app.command()
def purge(
    handoffs: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID...", help="Dead letters, or --all.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that may go.")] = False,
    older_than: Annotated[
        str,
        typer.Option(metavar="AGE", help="With --all: dead for at least 90s, 15m, 12h or 30d."),
    ] = "0s",
    to: ExportFolder = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Remove dead letters from the ledger, after an export to a file.

    One stays while anything of its work or its line is open, and where
    another handoff handed on to it: `batonbus retention run` removes both.

    \b
    Examples:
      batonbus dead purge 5f0c 81aa
      batonbus dead purge --all --older-than 7d --yes
    """
    if bool(handoffs) == everything:
        raise typer.BadParameter("name dead letters, or say --all")
    texts, age = [check_prefix(it) for it in handoffs or ()], read_age(older_than)
    if age and not everything:
        raise typer.BadParameter("--older-than needs --all")
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    go = partial(_purge, output, url, fleet or find_fleet(), texts, age, to or EXPORTS, yes)
    raise typer.Exit(run(output, go))


async def _purge(
    output: Output,
    url: str | None,
    fleet: str,
    texts: Sequence[str],
    age: float,
    to: Path,
    yes: bool,
) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        named = [await resolve(core, it) for it in texts]
        relatives = await read_relatives(core.ledger)
        dead = named or _older(core, relatives, age)
        for handoff_id in named:
            known = relatives.get(handoff_id)
            _check_dead(known.chain if known else Chain(id=handoff_id))
        kept = obstacles(relatives, dead)
        going = list(dict.fromkeys(it for it in dead if it not in kept))
        for handoff_id, reason in kept.items():
            output.show(f"{handoff_id} stays: {reason}")
        declined = bool(going) and not (yes or await _confirm(output, len(going), to))
        removed = await remove(core, [] if declined else going, to)
    output.show(
        f"purged: {removed.handoffs} ({counted(removed.events, 'event')}); stay: {len(kept)}"
    )
    if removed.file is not None:
        output.show(f"They are in {removed.file}.")
    output.emit(
        {
            "fleet": fleet,
            "purged": [] if declined else going,
            "events": removed.events,
            "kept": {str(handoff_id): reason for handoff_id, reason in kept.items()},
            "export": str(removed.file) if removed.file else None,
        }
    )
    return 1 if declined or (named and kept) else 0


async def _confirm(output: Output, count: int, to: Path) -> bool:
    output.note(f"Dead letters to purge: {count}; they are exported to {to} before. Go on? [y/N]")
    if sys.stdin.isatty():
        # Ctrl-C ends this wait; it would not end a thread that reads.
        await anyio.wait_readable(sys.stdin)
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    output.note("Nothing is purged: answer y, or add --yes.")
    return False


def _older(core: Core, relatives: Relatives, age: float) -> list[UUID]:
    before = core.connection.server_time() - age
    chains = (it.chain for it in relatives.values())
    return [it.id for it in chains if it.stage == "dead" and it.changed <= before]
