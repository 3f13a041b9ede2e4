"""`batonbus cancel`: an operator ends one handoff."""

from functools import partial
from typing import Annotated
from uuid import UUID

import typer

from batonbus.cli.history import HandoffId, check_prefix, resolve
from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean
from batonbus.cli.running import run, start_logs
from batonbus.rules.chain import OPERATOR, Chain
from batonbus.rules.errors import BatonbusError
from batonbus.run.cancellation import cancel_chain
from batonbus.run.core import Core, open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.history import HandoffNotFoundError, find_parents
from batonbus.secrecy import hide

app = new_app()


class EndedAlreadyError(BatonbusError):
    """A handoff has ended, and not by being cancelled."""


@app.command()
def cancel(
    handoff: HandoffId,
    reason: Annotated[
        str, typer.Option(help="Why, for who waits and who works on it.")
    ] = "cancelled",
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """End one handoff wherever it stands, as the operator. A handler that works
    on it is stopped, what it asked others for ends too, and whoever waits is told.

    \b
    Examples:
      batonbus cancel 5f0c
      batonbus cancel 5f0c --reason 'not wanted any more' --json

    \b
    Exit codes: 0 it is cancelled (also where it was before), 1 it has ended in
    another way: settled, refused or dead.
    """
    text = check_prefix(handoff)
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    go = partial(_cancel, output, url, fleet or find_fleet(), text, reason)
    raise typer.Exit(run(output, go))


async def _cancel(output: Output, url: str | None, fleet: str, text: str, reason: str) -> int:
    async with open_operator(url or find_url(), fleet=fleet) as core:
        chain = await _find(core, await resolve(core, text))
        before = await cancel_chain(core, chain, by=OPERATOR, reason=reason)
    if before.final and before.stage != "cancelled":
        raise EndedAlreadyError(f"handoff {before.id} is {before.stage} already: {_advise(before)}")
    said = before.reason if before.final else hide(reason)
    worker = before.owner if before.stage == "accepted" else None
    if before.final:
        output.show(f"handoff {before.id} was cancelled before: {clean(said)}")
    else:
        stopped = f"; the work of {worker} on it is stopped" if worker else ""
        output.show(f"handoff {before.id} is cancelled, it was {_describe(before)}{stopped}")
    output.emit(
        {
            "fleet": fleet,
            "handoff_id": before.id,
            "state": "cancelled",
            "was": before.stage,
            "owner": worker,
            "reason": said,
        }
    )
    return 0


async def _find(core: Core, handoff_id: UUID) -> Chain:
    """A handoff that is in the ledger, or that a settled one handed on to and the window manager is
    about to deliver. Raises HandoffNotFoundError."""
    chain = await core.ledger.read_folded(Chain(id=handoff_id))
    if chain.stage != "none":
        return chain
    if parent := (await find_parents(core.ledger, {handoff_id})).get(handoff_id):
        return Chain(id=handoff_id, work=parent.work, waiter=parent.waiter)
    raise HandoffNotFoundError(
        f"the ledger of the fleet {core.fleet!r} has no handoff {handoff_id}"
    )


def _describe(chain: Chain) -> str:
    return "handed on" if chain.stage == "none" else chain.stage


def _advise(ended: Chain) -> str:
    if ended.child is not None:
        return f"it was handed on, and `batonbus cancel {ended.child}` ends what came next"
    return f"`batonbus show {ended.id}` tells how it ended"
