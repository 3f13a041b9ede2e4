"""Any program as an agent: the assignment on stdin, the result on stdout.

The program runs in a process group of its own with a scrubbed environment and a time limit; nothing
of the group is left when the handoff is over.
"""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence

import anyio

from batonbus.run.agent import BODY_TYPES, Agent
from batonbus.run.context import Context
from batonbus_schemas import InvalidMessageError, TaskResult, decode

KEPT_VARIABLES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "TERM",
    }
)
"""All that a command sees of our environment, unless its caller names more."""

OUTPUT_LIMIT = 1_000_000
"""Bytes that a command may print; one that prints more is stopped."""

STDERR_SHOWN = 500
"""Characters of stderr that the error of a failed command quotes."""

KILL_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL of the process group."""


class CommandFailedError(Exception):
    """A command did not end well: this attempt failed."""


def command_agent(
    role: str,
    command: Sequence[str],
    *,
    id: str | None = None,
    capabilities: tuple[str, ...] = (),
    slots: int = 1,
    time_limit: float = 3600.0,
    variables: Sequence[str] = (),
) -> Agent:
    """An agent that runs `command` for each handoff, at most `time_limit` seconds long.

    Exit code 0 settles: stdout is a TaskResult as JSON, or else the text of its `what`. Any other
    exit is a failed attempt. `variables` are further environment variables that it may see.
    """
    agent = Agent(role, id=id, capabilities=capabilities, slots=slots, runtime="command")

    async def run(body: object, ctx: Context) -> TaskResult:
        return await run_command(command, ctx, time_limit=time_limit, variables=variables)

    agent.set_handler(run, BODY_TYPES)
    return agent


async def run_command(
    command: Sequence[str], ctx: Context, *, time_limit: float, variables: Sequence[str] = ()
) -> TaskResult:
    """Run a command on one handoff. Raises CommandFailedError."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=scrub(os.environ, variables) | _about(ctx),
        start_new_session=True,
    )
    try:
        with anyio.fail_after(time_limit):
            stdout, stderr = await _converse(process, ctx.text.encode())
    except TimeoutError:
        raise CommandFailedError(
            f"{command[0]} did not end within {time_limit:g} s: raise --time-limit, or ask for less"
        ) from None
    finally:
        await _end_group(process)
    if process.returncode != 0:
        said = stderr.decode(errors="replace").strip()[-STDERR_SHOWN:]
        raise CommandFailedError(f"{command[0]} ended with exit code {process.returncode}: {said}")
    return read_output(stdout.decode(errors="replace"), command[0])


def read_output(text: str, name: str) -> TaskResult:
    """What a command printed, as a result. Raises CommandFailedError where it said nothing."""
    if not text.strip():
        raise CommandFailedError(f"{name} ended with exit code 0 and printed nothing")
    if text.lstrip().startswith("{"):
        try:
            return decode(text.encode(), TaskResult)
        except InvalidMessageError:
            pass  # not a result but text that looks like JSON: it is the answer itself
    return TaskResult.passed(what=text.strip())


def scrub(environment: Mapping[str, str], variables: Sequence[str]) -> dict[str, str]:
    """The part of an environment that a command may see: no credentials of ours."""
    kept = KEPT_VARIABLES | set(variables)
    return {key: value for key, value in environment.items() if key in kept}


def _about(ctx: Context) -> dict[str, str]:
    return {
        "BATONBUS_HANDOFF": str(ctx.envelope.id),
        "BATONBUS_WORK": ctx.envelope.work,
        "BATONBUS_TASK": ctx.envelope.task or "",
        "BATONBUS_ATTEMPT": str(ctx.attempt),
    }


async def _converse(process: Process, text: bytes) -> tuple[bytes, bytes]:
    """Feed stdin, drain both outputs at once, and wait: a full pipe would block both sides."""
    outputs: dict[str, bytes] = {}

    async def drain(name: str, stream: asyncio.StreamReader | None) -> None:
        outputs[name] = await _read_limited(stream) if stream else b""

    async def feed() -> None:
        if process.stdin is not None:
            try:
                process.stdin.write(text)
                await process.stdin.drain()
                process.stdin.close()
            except (BrokenPipeError, ConnectionResetError):
                pass  # a command need not read what it is given

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drain, "stdout", process.stdout)
        tasks.start_soon(drain, "stderr", process.stderr)
        tasks.start_soon(feed)
        tasks.start_soon(process.wait)
    return outputs["stdout"], outputs["stderr"]


async def _read_limited(stream: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := await stream.read(65_536):
        size += len(chunk)
        if size > OUTPUT_LIMIT:
            raise CommandFailedError(
                f"the command printed more than {OUTPUT_LIMIT:,} bytes: write files, name them"
            )
        parts.append(chunk)
    return b"".join(parts)


async def _end_group(process: Process) -> None:
    """End whatever of the command's process group is left."""
    with anyio.CancelScope(shield=True):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except (ProcessLookupError, PermissionError):
                break
            with anyio.move_on_after(KILL_GRACE):
                await process.wait()
        await process.wait()
