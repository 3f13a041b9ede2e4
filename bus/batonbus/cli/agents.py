"""`batonbus agent`: one agent, from a Python module or from any program."""

import enum
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from msgspec import Struct
from msgspec.structs import astuple

from batonbus.cli.lookup import ENTRY_POINTS, find_agent
from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output
from batonbus.cli.running import run, run_patiently, run_until_signal, start_logs
from batonbus.cli.tracing import configure_tracing
from batonbus.rules.command_lines import CommandLineError
from batonbus.run.agent import Agent
from batonbus.run.bus import serve
from batonbus.run.command import command_agent
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.session import Session, find_command_line
from batonbus.run.session_agent import session_agent


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


class ProgramOptions(Struct, frozen=True):
    """What the command line says of a program; a Python agent says it itself."""

    id: str | None
    slots: int | None
    capabilities: list[str] | None
    time_limit: float | None
    variables: list[str] | None
    text_form: TextFormName | None

    def of_the_agent(self) -> dict[str, Any]:
        """What every program's agent is made with."""
        return {
            "id": self.id,
            "capabilities": tuple(self.capabilities or ()),
            "text_form": self.text_form.value if self.text_form else "markdown",
        }


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
    does not end in time; a second signal hands everything back at once. One
    that starts before its server waits for it.

    \b
    Examples:
      batonbus agent my_fleet.reviewer:reviewer
      batonbus agent --role builder --runtime claude --env ANTHROPIC_API_KEY
      batonbus agent --role builder --runtime 'codex --sandbox workspace-write'
      batonbus agent --role counter --command 'wc -w' --slots 4
      batonbus agent --role builder --command ./build.sh --text-form xml
    """
    options = ProgramOptions(id, slots, capabilities, time_limit, variables, text_form)
    make = choose(target, role, command, runtime, options)
    start_logs(log_level, Level.INFO)
    output = Output(as_json)
    work = partial(_work, output, make, url, fleet or find_fleet())
    raise typer.Exit(run(output, partial(run_until_signal, work)))


def choose(
    target: str | None,
    role: str | None,
    command: str | None,
    runtime: str | None,
    options: ProgramOptions,
) -> Callable[[], Agent]:
    """What makes the agent: a Python one, one with a session, or a command.
    Raises BadParameter where it is not said which."""
    match target, role, command, runtime:
        case str(), None, None, None:
            if any(astuple(options)):
                raise typer.BadParameter("a Python agent says id, slots and capabilities itself")
            return partial(find_agent, target, Path.cwd())
        case None, str(), None, str():
            if options.slots not in (None, 1):
                raise typer.BadParameter(
                    "a session works on one handoff at a time: start more agents"
                )
            session = find_session(runtime, options.time_limit, options.variables)
            check_program("--runtime", session.name)
            return partial(session_agent, role, session, **options.of_the_agent())
        case None, str(), str(), None:
            words = split_command(command)
            check_program("--command", words[0])
            return partial(
                command_agent,
                role,
                words,
                slots=options.slots or 1,
                time_limit=options.time_limit or 3600.0,
                variables=tuple(options.variables or ()),
                **options.of_the_agent(),
            )
        case _:
            raise typer.BadParameter("give MODULE:ATTR, or --role with --command or --runtime")


async def _work(
    output: Output, make: Callable[[], Agent], url: str | None, fleet: str, stop: anyio.Event
) -> None:
    agent = make()
    configure_tracing(agent.card.role)
    output.emit({"agent": agent.card})

    async def working() -> None:
        # Looked up at each try: a bus that is started again may have another address.
        await serve(agent, url or find_url(), fleet=fleet, stop=stop)

    try:
        await run_patiently(working, stop)
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


def check_program(option: str, name: str) -> None:
    """Raises BadParameter where there is no such program: each handoff would fail by it."""
    if shutil.which(name) is None:
        raise typer.BadParameter(
            f"{option}: there is no program {name!r} on the PATH, or it may not be run: install "
            "it, or give its path"
        )
