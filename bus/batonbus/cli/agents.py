"""`batonbus agent`: one agent, from a Python module or from any program."""

import inspect
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import anyio
import typer

from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output
from batonbus.cli.running import run, run_until_signal, start_logs
from batonbus.cli.tracing import configure_tracing
from batonbus.rules.errors import BatonbusError
from batonbus.run.agent import Agent
from batonbus.run.bus import serve
from batonbus.run.command import command_agent
from batonbus.run.discovery import find_fleet, find_url

ENTRY_POINTS = "batonbus.agents"

app = new_app()


class AgentNotFoundError(BatonbusError):
    """There is no agent of this name."""


@app.command()
def agent(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:ATTR]",
            help="A Python agent, looked up from the current folder; or the name of an installed "
            f"one (entry point {ENTRY_POINTS}).",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="The role that --command works as.", show_default=False),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM",
            help="Assignment on stdin, result on stdout. No shell runs it.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Its own name. Default: the role and a random suffix.",
            show_default=False,
        ),
    ] = None,
    slots: Annotated[
        int, typer.Option(min=1, metavar="N", help="Handoffs that it works on at a time.")
    ] = 1,
    capability: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="What it can do; repeat it.", show_default=False),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="How long the program may take for a handoff."
        ),
    ] = 3600.0,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable that the program may see; repeat it.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Run one agent until Ctrl-C or SIGTERM.

    It then takes nothing new, finishes what it works on, and hands back what
    does not end in time; a second signal hands everything back at once.

    \b
    Examples:
      batonbus agent my_fleet.reviewer:reviewer
      batonbus agent --role builder --command 'claude -p' --env ANTHROPIC_API_KEY
      batonbus agent --role counter --command 'wc -w' --slots 4
    """
    if (target is None) == (command is None) or (command is None) != (role is None):
        raise typer.BadParameter("give either MODULE:ATTR, or --role and --command")
    if target is not None and (id or capability or env or slots != 1 or time_limit != 3600.0):
        raise typer.BadParameter("a Python agent says id, slots and capabilities itself")
    start_logs(log_level, Level.INFO)
    output = Output(as_json)
    make = partial(find_agent, target, Path.cwd()) if target is not None else None
    if make is None:
        make = partial(
            command_agent,
            role or "",
            split_command(command or ""),
            id=id,
            slots=slots,
            capabilities=tuple(capability or ()),
            time_limit=time_limit,
            variables=tuple(env or ()),
        )

    async def work(stop: anyio.Event) -> None:
        made = make()
        configure_tracing(made.card.role)
        output.emit({"agent": made.card})
        try:
            await serve(made, url or find_url(), fleet=fleet or find_fleet(), stop=stop)
        finally:
            output.emit({"agent": made.card, "stopped": True})

    raise typer.Exit(run(output, partial(run_until_signal, work)))


def split_command(text: str) -> list[str]:
    """The words of a command line, quoted as in a shell, which runs it not.
    Raises BadParameter where there is none."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"--command {text!r}: {error}") from None
    if not words:
        raise typer.BadParameter("--command is empty")
    return words


def find_agent(target: str, folder: Path) -> Agent:
    """The agent at `module:attr`, looked up from `folder`, or the installed one of that name.

    Raises AgentNotFoundError that says what there is; an error inside of the module is its own.
    """
    name, colon, attribute = target.partition(":")
    if not colon:
        return _find_installed(target)
    sys.path.insert(0, str(folder))
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        # A module that it imports itself may be missing: that is another error.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise AgentNotFoundError(f"no module {error.name!r} in {folder} or installed") from None
    return _as_agent(target, attribute, vars(module))


def _find_installed(name: str) -> Agent:
    installed = {it.name: it for it in entry_points(group=ENTRY_POINTS)}
    if name not in installed:
        raise AgentNotFoundError(
            f"no agent {name!r} is installed (installed: {', '.join(sorted(installed)) or 'none'}):"
            " name a module's one as MODULE:ATTR"
        )
    return _as_agent(name, name, {name: installed[name].load()})


def _as_agent(target: str, attribute: str, names: Mapping[str, object]) -> Agent:
    found = names.get(attribute)
    if isinstance(found, Agent):
        if not found.accepts:
            raise AgentNotFoundError(
                f"{target} has no handler: decorate one with @{attribute}.handles"
            )
        return found
    agents = ", ".join(name for name, it in names.items() if isinstance(it, Agent)) or "none"
    what = f"is {_describe(found)}, no Agent" if attribute in names else "does not exist"
    raise AgentNotFoundError(f"{target} {what}; agents of that module: {agents}")


def _describe(value: object) -> str:
    kind = "function" if inspect.isroutine(value) else type(value).__name__
    return f"a {kind}"
