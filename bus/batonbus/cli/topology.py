"""`batonbus topology`: what an operator makes where the bus may not."""

import shlex
from functools import partial
from hashlib import sha256
from typing import Annotated

import msgspec
import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output
from batonbus.cli.running import run, start_logs
from batonbus.rules.chain import BUS_ACTORS, OPERATOR
from batonbus.rules.settings import Settings
from batonbus.run.core import open_core
from batonbus.run.discovery import find_fleet, find_url
from batonbus.wire.blueprint import Rights, agent_rights, blueprint, bus_rights
from batonbus.wire.streams import Making
from batonbus.wire.topology import ensure_addressee

Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="NAME", help="A role, or an agent's id; repeat it."),
]
AgentId = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="ID",
        help="Print the user of this agent instead, for deploy/nats-server.conf. --role is its "
        "role; default: its id.",
        show_default=False,
    ),
]
Apply = Annotated[bool, typer.Option("--apply", help="Make what is missing, on the bus's server.")]

app = new_app()


@app.command()
def topology(
    roles: Roles = None,
    agent: AgentId = None,
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

    On a server with a user for each agent, --agent prints the block of
    another one, and says on stderr what else to do.

    \b
    Examples:
      batonbus topology --role reviewer --role reviewer-1 | sh
      batonbus topology --json | jq '.rights'
      BATONBUS_URL=nats://admin:…@host batonbus topology --role reviewer --apply
      batonbus topology --agent reviewer-2 --role reviewer
    """
    start_logs(log_level, Level.WARNING)
    output, name = Output(as_json), fleet or find_fleet()
    if agent is None:
        work = partial(_topology, output, name, roles or [], apply, url)
    elif agent in BUS_ACTORS:
        raise typer.BadParameter(f"--agent {agent}: that is an actor of the bus, and has its user")
    elif apply or len(roles or []) > 1:
        raise typer.BadParameter("an agent's user has one --role, and is no part of --apply")
    else:
        work = partial(_user, output, name, agent, roles[0] if roles else agent)
    raise typer.Exit(run(output, work))


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


async def _user(output: Output, fleet: str, agent: str, role: str) -> int:
    rights, password = agent_rights(fleet, agent, role), password_variable(agent)
    output.show(*user_block(agent, rights))
    output.note(
        "This goes among the `users` of AGENTS in deploy/nats-server.conf. Then:\n"
        f"  echo {password}=$(openssl rand -hex 24) >> deploy/.env\n"
        "  nats-server --signal reload\n"
        f"  BATONBUS_URL=nats://{agent}:…@HOST:4222 "
        f"batonbus agent --role {role} --id {agent} --command …"
    )
    output.emit({"fleet": fleet, "agent": agent, "role": role, "rights": rights})
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


def password_variable(agent: str) -> str:
    """The name under which the server's configuration has an agent's password; no other agent's."""
    name = agent.upper().replace("-", "_")
    if agent != name.lower().replace("_", "-"):
        name += f"_{sha256(agent.encode()).hexdigest()[:6].upper()}"
    return f"NATS_{name}_PASSWORD"


def user_block(agent: str, rights: Rights) -> list[str]:
    """The lines of a user in the server's configuration, indented as they stand there."""
    lines = [
        "{",
        f'  user: "{agent}"',
        f"  password: ${password_variable(agent)}",
        "  permissions: {",
        "    publish: [",
        *(f'      "{it}"' for it in rights.publish),
        "    ]",
        f"    subscribe: {msgspec.json.encode(rights.subscribe).decode().replace(',', ', ')}",
        "  }",
        "}",
    ]
    return [f"      {line}" for line in lines]
