"""Which commands there are. Each lives in a module of its own, imported only when it is called: a
fleet starts many processes at once, and each pays for what it imports."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from itertools import takewhile
from typing import Annotated, Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

from batonbus.cli.options import new_app


class Entry(NamedTuple):
    """A command: the module whose `app` it is, and what the overview says of it."""

    module: str
    summary: str


COMMANDS: Mapping[str, Entry] = {
    "demo": Entry("batonbus.cli.demo", "See it at work: real tasks, and two agents killed."),
    "up": Entry("batonbus.cli.up", "Start a bus here: server, window manager, receipt keeper."),
    "run": Entry("batonbus.cli.parts", "Run one process of the bus, for containers."),
    "agent": Entry("batonbus.cli.agents", "Run an agent: a Python one, or any program."),
    "send": Entry("batonbus.cli.sending", "Hand work over, and say what became of it."),
    "show": Entry("batonbus.cli.history", "Show all that happened to a handoff."),
    "trace": Entry("batonbus.cli.trace", "Show what each handoff of a work was given to read."),
    "tail": Entry("batonbus.cli.events", "Follow the events of the ledger as they happen."),
    "fleet": Entry("batonbus.cli.fleet", "List the live agents."),
    "inbox": Entry("batonbus.cli.inbox", "List what waits for a person of a role."),
    "answer": Entry("batonbus.cli.answering", "Answer a question, as a person."),
    "cancel": Entry("batonbus.cli.cancelling", "End one handoff, and the work on it."),
    "dead": Entry("batonbus.cli.dead", "Dead letters: look at them, try them again, purge them."),
    "retention": Entry("batonbus.cli.retention", "Export and purge what is over long ago."),
    "validate": Entry("batonbus.cli.validation", "Check messages in files, without a bus."),
    "policy": Entry("batonbus.cli.policy", "Show or check the context policy of a fleet."),
    "doctor": Entry("batonbus.cli.doctor", "Check whether the bus can do its work."),
    "topology": Entry("batonbus.cli.topology", "Print what an operator makes on the server."),
    "work": Entry("batonbus.cli.work", "Run real work items, from a request to commits."),
    "bench": Entry("batonbus.cli.bench", "Measure handoffs a second, and the texts of agents."),
}
"""In the order of the overview."""


UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""Whatever is wrong with a call. Typer itself names one kind of it alone."""


@contextmanager
def telling_programs(as_json: bool) -> Generator[None]:
    """A wrong call that asked for JSON is answered in JSON, too; people are told by Typer."""
    try:
        yield
    except UsageError as error:
        # Not before it is needed: most calls are right.
        from batonbus.cli.output import Output

        Output(as_json).emit({"error": error.format_message()})
        raise


class Commands(TyperGroup):
    """The group of all commands, which knows them by name alone until one is called."""

    def make_context(self, info_name: Any, args: list[str], *more: Any, **options: Any) -> Any:
        """Read what stands before the command."""
        as_json = "--json" in takewhile(lambda it: it != "--", args)
        with telling_programs(as_json):
            context = super().make_context(info_name, args, *more, **options)
        context.meta[__name__] = as_json
        return context

    def invoke(self, ctx: Any) -> Any:
        """Read what stands behind it, and run it."""
        with telling_programs(ctx.meta[__name__]):
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What the overview needs of a command."""
        entry = COMMANDS.get(cmd_name)
        return entry and TyperCommand(cmd_name, help=entry.summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, which is to run."""
        name, _, rest = super().resolve_command(ctx, args)
        module = import_module(COMMANDS[str(name)].module)
        return name, typer.main.get_command(module.app), rest


app = new_app(cls=Commands, no_args_is_help=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"batonbus {version('batonbus')}")
        raise typer.Exit


@app.callback()
def batonbus(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version, and exit."
        ),
    ] = False,
) -> None:
    """Hand work between agents: nobody waits in the dark, nothing is lost.

    \b
    A bus in this folder, an agent in a second terminal, work from a third:
      batonbus up
      batonbus agent --role reviewer --command 'wc -w'
      batonbus send --to reviewer --wait 'How long is this?'

    \b
    Exit codes: 0 done or accepted, 1 error, 2 usage, 3 held, 4 refused,
    5 overdue, 6 failed, 7 halted.
    """
