"""A program of others: its own process group, a scrubbed environment, a time limit, bounded output.

Nothing of the group is left when the call is over, however it ends; and where we are killed in the
middle, the program itself ends with us (on Linux): it must not write into what others do next.
"""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from batonbus.rules.errors import BatonbusError
from batonbus.secrecy import hide
from batonbus.wire.processes import die_with_parent

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
"""Seconds between SIGTERM and SIGKILL of the process group, and for what a program left behind to
close its outputs."""

EXIT_INTERVAL = 0.005
"""Seconds between two looks at whether a program has ended."""


class Ended(Struct, frozen=True, kw_only=True):
    """How a program ended: exit code (negative: the signal), stdout, stderr."""

    code: int
    stdout: str
    stderr: str


class ProgramError(BatonbusError):
    """A program could not be started, took too long, or printed too much."""


class CommandFailedError(Exception):
    """A command did not end well: this attempt failed."""


def end_of(text: str) -> str:
    """The end of what a program said, as an error quotes it: without secrets, which the cut could
    make unrecognizable."""
    return hide(text.strip())[-STDERR_SHOWN:]


async def run_program(
    command: Sequence[str],
    *,
    text: str = "",
    cwd: Path | None = None,
    time_limit: float,
    variables: Sequence[str] = (),
    extra: Mapping[str, str] | None = None,
    merged: bool = False,
    bound: bool = True,
    output_limit: int = OUTPUT_LIMIT,
) -> Ended:
    """Run a program with `text` on its stdin, at most `time_limit` seconds long.

    `variables` names further variables of ours that it may see, `extra` adds new ones; `merged`
    puts stderr into stdout, in order. One that is not `bound` ends its work though we are killed.
    More than `output_limit` bytes on either output stop it. Raises ProgramError.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT if merged else PIPE,
            cwd=cwd,
            env={**scrub(os.environ, variables), **(extra or {})},
            start_new_session=True,
            preexec_fn=die_with_parent if bound else None,
        )
    except OSError as error:
        raise ProgramError(f"{command[0]} cannot be started: {error.strerror}") from error
    try:
        with anyio.fail_after(time_limit):
            outputs = await _converse(process, text.encode(), output_limit)
    except TimeoutError:
        raise ProgramError(
            f"{command[0]} did not end within {time_limit:g} s: allow it more, or ask for less"
        ) from None
    finally:
        await _end_group(process)
        _close_pipes(process)
    if any(len(output) > output_limit for output in outputs):
        raise ProgramError(
            f"{command[0]} printed more than {output_limit:,} bytes: write files, and name them"
        )
    stdout, stderr = (output.decode(errors="replace") for output in outputs)
    return Ended(code=process.returncode or 0, stdout=stdout, stderr=stderr)


def scrub(environment: Mapping[str, str], variables: Sequence[str]) -> dict[str, str]:
    """The part of an environment that a program may see: no credentials of ours."""
    kept = KEPT_VARIABLES | set(variables)
    return {key: value for key, value in environment.items() if key in kept}


async def _converse(process: Process, text: bytes, limit: int) -> tuple[bytes, bytes]:
    """Feed stdin, drain both outputs at once, and wait: a full pipe would block both sides. Ends
    early where an output goes over the limit."""
    outputs = [bytearray(), bytearray()]

    async with anyio.create_task_group() as tasks:

        async def drain(stream: asyncio.StreamReader | None, output: bytearray) -> None:
            while stream is not None and (chunk := await stream.read(65_536)):
                output += chunk
                if len(output) > limit:
                    tasks.cancel_scope.cancel()

        tasks.start_soon(drain, process.stdout, outputs[0])
        tasks.start_soon(drain, process.stderr, outputs[1])
        tasks.start_soon(_feed, process, text)
        await _wait(process)
        # What it left behind may be writing still, or hold the outputs open for ever.
        tasks.cancel_scope.deadline = anyio.current_time() + KILL_GRACE
    return bytes(outputs[0]), bytes(outputs[1])


async def _feed(process: Process, text: bytes) -> None:
    if process.stdin is None:
        return
    try:
        process.stdin.write(text)
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # a program need not read what it is given


async def _end_group(process: Process) -> None:
    """End whatever of the command's process group is left."""
    with anyio.CancelScope(shield=True):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except (ProcessLookupError, PermissionError):
                break
            with anyio.move_on_after(KILL_GRACE):
                await _wait(process)
        await _wait(process)


async def _wait(process: Process) -> None:
    """Until the program itself has ended. asyncio's own wait is also for its pipes, which what has
    left the group may hold for ever."""
    while process.returncode is None:  # noqa: ASYNC110 - only the child watcher knows
        await anyio.sleep(EXIT_INTERVAL)


def _close_pipes(process: Process) -> None:
    process._transport.close()  # type: ignore[attr-defined] # pyright: ignore
