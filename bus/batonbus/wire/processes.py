"""Child processes that do not outlive us."""

import asyncio
import contextlib
import ctypes
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import IO

import anyio

_PR_SET_PDEATHSIG = 1

# Found here, for between fork and exec nothing may be loaded any more.
_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Linux kills the child when its parent is gone, however that happened; elsewhere a parent that
    is killed with -9 leaves its children behind."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def start_child(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int | IO[bytes] = DEVNULL,
    stderr: int | IO[bytes] | None = None,
) -> Process:
    """Start a program that is bound to our life. It leads a session of its own, so that Ctrl-C
    reaches us alone and we end it in order."""
    return await asyncio.create_subprocess_exec(
        *command,
        env=env,
        cwd=cwd,
        stdin=DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


async def stop_child(process: Process, *, grace: float, again: float = 0.0) -> None:
    """SIGTERM, `grace` seconds, SIGTERM once more and `again` seconds (where that is more than 0),
    then SIGKILL; returns when it is gone."""
    with anyio.CancelScope(shield=True):
        for seconds in (grace, again) if again else (grace,):
            if process.returncode is None:
                _send(process, signal.SIGTERM)
                with anyio.move_on_after(seconds):
                    await process.wait()
        if process.returncode is None:
            _send(process, signal.SIGKILL)
            await process.wait()


def _send(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
