"""Any program as an agent: the assignment on stdin, the result on stdout."""

from collections.abc import Sequence

import msgspec

from batonbus.run.agent import BODY_TYPES, Agent
from batonbus.run.context import Context
from batonbus.run.program import CommandFailedError, end_of, run_program
from batonbus_schemas import InvalidMessageError, TaskResult, TextForm, decode
from batonbus_schemas.xml import read_result


def command_agent(
    role: str,
    command: Sequence[str],
    *,
    id: str | None = None,
    capabilities: tuple[str, ...] = (),
    slots: int = 1,
    time_limit: float = 3600.0,
    variables: Sequence[str] = (),
    text_form: TextForm = "markdown",
) -> Agent:
    """An agent that runs `command` for each handoff, at most `time_limit` seconds long.

    Exit code 0 settles: stdout is a TaskResult as JSON or XML, or else the text of its `what`. Any
    other exit is a failed attempt. `variables` are further environment variables that it may see,
    `text_form` is what stands on its stdin.
    """
    agent = Agent(
        role,
        id=id,
        capabilities=capabilities,
        slots=slots,
        runtime="command",
        text_form=text_form,
    )

    async def run(body: object, ctx: Context) -> TaskResult:
        return await run_command(command, ctx, time_limit=time_limit, variables=variables)

    agent.set_handler(run, BODY_TYPES)
    return agent


async def run_command(
    command: Sequence[str], ctx: Context, *, time_limit: float, variables: Sequence[str] = ()
) -> TaskResult:
    """Run a command on one handoff. Raises CommandFailedError, ProgramError, and ContextFullError
    where the reported usage is at emergency."""
    ctx.check_command()
    ended = await run_program(
        command,
        text=ctx.text_for_program(),
        time_limit=time_limit,
        variables=variables,
        extra=describe(ctx),
    )
    if ended.code != 0:
        said = end_of(ended.stderr)
        raise CommandFailedError(f"{command[0]} ended with exit code {ended.code}: {said}")
    return read_output(ended.stdout, command[0])


def read_output(text: str, name: str) -> TaskResult:
    """What a command printed, as a result: a TaskResult as JSON or XML, or else the text itself.

    Raises CommandFailedError where it said nothing, or what is meant as a result cannot be read:
    that might say FAIL, and must not pass as a text.
    """
    text = text.strip()
    if not text:
        raise CommandFailedError(f"{name} ended with exit code 0 and printed nothing")
    try:
        if "<task-result" in text:
            return read_result(text).value
        if _is_result(text):
            return decode(text.encode(), TaskResult)
    except InvalidMessageError as error:
        raise CommandFailedError(f"{name} printed a result that cannot be read: {error}") from error
    return TaskResult.passed(what=text)


def _is_result(text: str) -> bool:
    """Whether this is a JSON object with a status."""
    try:
        return "status" in msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False


def describe(ctx: Context) -> dict[str, str]:
    """What a program is told of its handoff, beside the text."""
    return {
        "BATONBUS_HANDOFF": str(ctx.envelope.id),
        "BATONBUS_WORK": ctx.envelope.work,
        "BATONBUS_TASK": ctx.envelope.task or "",
        "BATONBUS_ATTEMPT": str(ctx.attempt),
    }
