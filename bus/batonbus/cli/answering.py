"""`batonbus answer`: a person answers."""

import getpass
import re
import sys
from functools import partial
from typing import Annotated
from uuid import UUID

import typer
from msgspec import Struct

from batonbus.cli.history import HandoffId, check_prefix, resolve
from batonbus.cli.inbox import number
from batonbus.cli.options import Fleet, Json, Level, LogLevel, Url, new_app
from batonbus.cli.output import Output, clean
from batonbus.cli.running import run, start_logs
from batonbus.rules.ownership import PERSON_PREFIX
from batonbus.run.client import open_client
from batonbus.run.core import open_operator
from batonbus.run.discovery import find_fleet, find_url
from batonbus.run.inbox import Inbox
from batonbus.wire.subjects import is_token
from batonbus_schemas import Body, Question, TaskResult
from batonbus_schemas.counts import counted

USAGE = 2

app = new_app()


class Answer(Struct, frozen=True, kw_only=True):
    """What was answered, and by whom."""

    handoff_id: UUID
    by: str
    status: str
    answer: str


class UnfitAnswerError(ValueError):
    """The text is no answer to this handoff."""


@app.command()
def answer(
    handoff: HandoffId,
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="The answer, or the number of one; `-` reads stdin."),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="Who answers. Default: your login name.",
            show_default=False,
        ),
    ] = None,
    fail: Annotated[
        bool, typer.Option("--fail", help="Work was done by hand, and did not pass.")
    ] = False,
    url: Url = None,
    fleet: Fleet = None,
    as_json: Json = False,
    log_level: LogLevel = None,
) -> None:
    """Answer a question as a person; whoever asked goes on with the answer. Where it names options,
    the answer is one of them, or its number. Any other handoff that waits in an inbox is done by
    hand so: TEXT says what was done.

    \b
    Examples:
      batonbus answer 5f0c2c1e yes
      batonbus answer 5f0c2c1e 2 --as ada
      git log -1 | batonbus answer 5f0c2c1e -

    \b
    Exit codes: 0 answered, 1 it does not wait for an answer (any more), 2 no answer to it.
    """
    handoff = check_prefix(handoff)
    start_logs(log_level, Level.WARNING)
    output = Output(as_json)
    person = _person(name)
    said = sys.stdin.buffer.read().decode(errors="replace") if text == "-" else text
    if not said.strip():
        raise typer.BadParameter("the answer is blank: say something")
    go = partial(_answer, output, url, fleet or find_fleet(), handoff, person, said.strip(), fail)
    raise typer.Exit(run(output, go))


def _person(name: str | None) -> str:
    """The id under which somebody answers. Raises BadParameter."""
    if name is None:
        try:
            name = re.sub(r"[^A-Za-z0-9_-]", "-", getpass.getuser())
        except (KeyError, OSError):
            raise typer.BadParameter("you have no login name here: add --as NAME") from None
    person = PERSON_PREFIX + name
    if not name or not is_token(person):
        raise typer.BadParameter(
            f"--as {name!r} is no name: 1 to {64 - len(PERSON_PREFIX)} letters, digits, dashes and "
            "underscores"
        )
    return person


async def _answer(
    output: Output, url: str | None, fleet: str, handoff: str, person: str, text: str, fail: bool
) -> int:
    url = url or find_url()
    async with open_operator(url, fleet=fleet) as core:
        handoff_id = await resolve(core, handoff)
        inbox = Inbox(core)
        waiting = await inbox.find(handoff_id)
        try:
            result = _as_result(waiting.envelope.body, text, fail)
        except UnfitAnswerError as error:
            output.fail([str(error)])
            return USAGE
        async with open_client(url, person, fleet=fleet) as client:
            result = await inbox.answer(handoff_id, result, client)
    output.show(f"{person} answered {handoff_id}: {clean(result.text)}")
    output.emit(Answer(handoff_id=handoff_id, by=person, status=result.status, answer=result.text))
    return 0


def _as_result(body: Body, text: str, fail: bool) -> TaskResult:
    """The answer as a result. Raises UnfitAnswerError."""
    if not isinstance(body, Question):
        return TaskResult.failed(text) if fail else TaskResult.passed(text)
    if fail:
        raise UnfitAnswerError("a question is answered, it neither passes nor fails: omit --fail")
    chosen = choose(body.options, text)
    if chosen is None:
        raise UnfitAnswerError(
            f"{text!r} is none of its {counted(len(body.options), 'option')}: "
            f"{number(body.options)}"
        )
    return TaskResult.passed(chosen)


def choose(options: tuple[str, ...], text: str) -> str | None:
    """The option that this text means: by its words, in any case, or by its number from 1 on. None
    where it is none, or may be two of them. Without options, the text itself."""
    if not options or text in options:
        return text
    alike = [it for it in options if it.strip().casefold() == text.strip().casefold()]
    if alike:
        return alike[0] if len(alike) == 1 else None
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    return None
