"""`batonbus topology`: what an operator makes where the bus may not."""

import shlex
from functools import partial
from typing import Annotated

import msgspec
import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output
from batonbus.cli.running import run, start_logs
from batonbus.rules.chain import OPERATOR
from batonbus.rules.settings import Settings
from batonbus.run.core import open_core
from batonbus.run.discovery import find_fleet, find_url
from batonbus.wire.blueprint import Rights, blueprint, bus_rights
from batonbus.wire.streams import Making
from batonbus.wire.topology import ensure_addressee

Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="NAME", help="A role, or an agent's id; repeat it."),
]
Apply = Annotated[bool, typer.Option("--apply", help="Make what is missing, on the bus's server.")]

app = new_app()


@app.command()
def topology(
    roles: Roles = None,
    apply: Apply = False,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Print what a fleet needs on its server, for an operator to make.

    Where the bus's own user may make streams and consumers, it does so at its
    start, and nobody needs this. Where it may not: run the printed lines as a
    user who may, or let --apply do it. An agent needs two consumers: one for
    its role, one for its id. What is there already is left as it is.

    \b
    Examples:
      batonbus topology --role reviewer --role reviewer-1 | sh
      batonbus topology --json | jq '.rights'
      BATONBUS_URL=nats://admin:…@host batonbus topology --role reviewer --apply
    """
    start_logs(log_level, Level.WARNING)
    output, name = Output(as_json), fleet or find_fleet()
    raise typer.Exit(run(output, partial(_topology, output, name, roles or [], apply, url)))


async def _topology(
    output: Output, fleet: str, roles: list[str], apply: bool, url: str | None
) -> int:
    makings, rights = blueprint(fleet, roles, Settings()), bus_rights(fleet)
    if apply:
        await _apply(url or find_url(), fleet, roles)
        output.show(f"Made, or found as needed: {len(makings)} streams and consumers.")
    else:
        output.show(*map(_command, makings), "", *_describe(rights))
    requests = [{"subject": it.subject, "body": it.body} for it in makings]
    output.emit({"fleet": fleet, "applied": apply, "requests": requests, "rights": rights})
    return 0


async def _apply(url: str, fleet: str, roles: list[str]) -> None:
    async with open_core(url, OPERATOR, fleet=fleet) as core:
        for role in roles:
            await ensure_addressee(core.connection, fleet, role, core.settings)


def _command(making: Making) -> str:
    """A line for a shell."""
    body = msgspec.json.encode(making.body).decode()
    return f"nats request {shlex.quote(making.subject)} {shlex.quote(body)}"


def _describe(rights: Rights) -> list[str]:
    """Comments of that shell."""
    return [
        "# The bus's own user then needs no more than this:",
        "# permissions: {",
        f"#   publish: {msgspec.json.encode(rights.publish).decode()}",
        f"#   subscribe: {msgspec.json.encode(rights.subscribe).decode()}",
        "#   allow_responses: true",
        "# }",
    ]
