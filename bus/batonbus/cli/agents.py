"""`batonbus agent`: one agent, from a Python module or from any program."""

import enum
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from batonbus.cli.lookup import ENTRY_POINTS, find_agent
from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output
from batonbus.cli.running import run, run_until_signal, start_logs
from batonbus.cli.tracing import configure_tracing
from batonbus.rules.command_lines import CommandLineError
from batonbus.run.agent import Agent
from batonbus.run.bus import serve
from batonbus.run.command import command_agent, session_agent
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.session import Session, find_command_line


class TextFormName(enum.Enum):
    """The forms of an assignment, as words of the command line."""

    MARKDOWN = "markdown"
    XML = "xml"


Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:ATTR]",
        help="A Python agent, looked up from the current folder; or the name of an installed one "
        f"(entry point {ENTRY_POINTS}).",
        show_default=False,
    ),
]
Role = Annotated[
    str | None,
    typer.Option(
        "--role", metavar="ROLE", help="Role of --command and --runtime.", show_default=False
    ),
]
Command = Annotated[
    str | None,
    typer.Option(
        "--command",
        metavar="PROGRAM",
        help="Assignment on stdin, result on stdout. No shell runs it.",
        show_default=False,
    ),
]
Runtime = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="NAME",
        help="An agent that goes on with its session: claude, codex, gemini, hermes or openclaw, "
        "with options of its own; or a file NAME.toml.",
        show_default=False,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="NAME",
        help="Its own name. Default: the role and a random suffix.",
        show_default=False,
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        min=1,
        metavar="N",
        help="Handoffs that it works on at a time. Default: 1.",
        show_default=False,
    ),
]
Capabilities = Annotated[
    list[str] | None,
    typer.Option("--capability", metavar="WORD", help="What it can do; repeat it."),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        min=0.1,
        metavar="SECONDS",
        help="How long the program may take for a handoff. Default: an hour.",
        show_default=False,
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--env", metavar="NAME", help="Environment variable that the program may see; repeat it."
    ),
]
Form = Annotated[
    TextFormName | None,
    typer.Option(
        "--text-form",
        help="How the program reads its assignments. Default: markdown.",
        show_default=False,
    ),
]

app = new_app()


@app.command()
def agent(
    target: Target = None,
    role: Role = None,
    command: Command = None,
    runtime: Runtime = None,
    id: Id = None,
    slots: Slots = None,
    capabilities: Capabilities = None,
    time_limit: TimeLimit = None,
    variables: Variables = None,
    text_form: Form = None,
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
      batonbus agent --role builder --runtime claude --env ANTHROPIC_API_KEY
      batonbus agent --role builder --runtime 'codex --sandbox workspace-write'
      batonbus agent --role counter --command 'wc -w' --slots 4
      batonbus agent --role builder --command ./build.sh --text-form xml
    """
    make: Callable[[], Agent]
    if target is not None and role is None and command is None and runtime is None:
        if id or slots or capabilities or time_limit or variables or text_form:
            raise typer.BadParameter("a Python agent says id, slots and capabilities itself")
        make = partial(find_agent, target, Path.cwd())
    elif target is None and role is not None and runtime is not None and command is None:
        if slots not in (None, 1):
            raise typer.BadParameter("a session works on one handoff at a time: start more agents")
        make = partial(
            session_agent,
            role,
            find_session(runtime, time_limit, variables),
            id=id,
            capabilities=tuple(capabilities or ()),
            text_form=text_form.value if text_form else "markdown",
        )
    elif target is None and role is not None and command is not None and runtime is None:
        make = partial(
            command_agent,
            role,
            split_command(command),
            id=id,
            slots=slots or 1,
            capabilities=tuple(capabilities or ()),
            time_limit=time_limit or 3600.0,
            variables=tuple(variables or ()),
            text_form=text_form.value if text_form else "markdown",
        )
    else:
        raise typer.BadParameter("give MODULE:ATTR, or --role with --command or --runtime")
    start_logs(log_level, Level.INFO)
    output = Output(as_json)
    work = partial(_work, output, make, url, fleet or find_fleet())
    raise typer.Exit(run(output, partial(run_until_signal, work)))


async def _work(
    output: Output, make: Callable[[], Agent], url: str | None, fleet: str, stop: anyio.Event
) -> None:
    agent = make()
    configure_tracing(agent.card.role)
    output.emit({"agent": agent.card})
    try:
        await serve(agent, url or find_url(), fleet=fleet, stop=stop)
    finally:
        output.emit({"agent": agent.card, "stopped": True})


def find_session(text: str, time_limit: float | None, variables: list[str] | None) -> Session:
    """The session that --runtime describes, not begun. Raises BadParameter where it names none."""
    try:
        line = find_command_line(text)
    except CommandLineError as error:
        raise typer.BadParameter(f"--runtime: {error}") from None
    return Session(line, time_limit=time_limit or 3600.0, variables=tuple(variables or ()))


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
