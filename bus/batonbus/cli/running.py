"""Running a command: its logs, its signals, its errors, its exit code."""

import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, cast

import anyio
import typer

from batonbus.cli import INTERRUPTED
from batonbus.cli.options import Level, log_format
from batonbus.cli.output import Output
from batonbus.logs import configure, log
from batonbus.rules.errors import BatonbusError, ServerAwayError, leaves
from batonbus_schemas import InvalidMessageError

GARBAGE_THRESHOLD = 100_000
"""Objects that may be made before the young ones are looked through; Python's own is 700."""

AWAITED_INTERVAL = 1.0
"""Seconds between two looks whether a server is there."""

BY_SIGNAL = 128
"""Added to a signal's number, an exit code as shells have it."""


def start_logs(level: Level | None, default: Level) -> None:
    """Logs to stderr: what was asked for, else the command's default."""
    form = log_format()
    if form not in {"auto", "console", "json"}:
        raise typer.BadParameter(f"BATONBUS_LOG_FORMAT is {form!r}: use auto, console or json")
    configure(level or default, cast("Literal['auto', 'console', 'json']", form))


def run(output: Output, work: Callable[[], Awaitable[int]]) -> int:
    """Run a command to its exit code. What Batonbus refuses is one line each; anything else is a
    bug, and leaves a traceback."""
    try:
        collect_garbage_seldom()
        return anyio.run(work)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if all(isinstance(it, BrokenPipeError) for it in leaves(error)):
            # Whoever read us has enough, as `head` does; Python would complain again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        known = known_errors(error)
        if not known:
            raise
        output.fail(known)
        return 1


def collect_garbage_seldom() -> None:
    """What was imported stays, and what a handoff makes ends with it, without cycles: to look
    through all of it often costs a tenth of the handoffs a second."""
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 20)


def known_errors(error: BaseException) -> list[str]:
    """What to say of an error, also out of a task group; nothing where a part of it is a bug."""
    parts = leaves(error)
    known = all(isinstance(it, BatonbusError | InvalidMessageError) for it in parts)
    return list(dict.fromkeys(map(str, parts))) if known else []


async def run_until_signal(work: Callable[[anyio.Event], Awaitable[None]]) -> int:
    """Run `work` until it returns. SIGINT or SIGTERM sets its event; a second one cancels it, and
    gives the exit code that shells have for its signal: 130 or 143."""
    stop = anyio.Event()
    code = 0

    async def watch_signals() -> None:
        nonlocal code
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                log.info("stop.requested", signal=number.name, again=stop.is_set())
                if stop.is_set():
                    code = BY_SIGNAL + number
                    tasks.cancel_scope.cancel()
                stop.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_signals)
        await work(stop)
        tasks.cancel_scope.cancel()
    return code


async def run_patiently(work: Callable[[], Awaitable[None]], stop: anyio.Event) -> None:
    """Run `work`, again while no server is there for it, until `stop` is set: containers start in
    any order, and one that ends for that is started again and again."""
    while not stop.is_set():
        try:
            await work()
            return
        except ServerAwayError as error:
            log.warning("server.awaited", error=str(error))
        with anyio.move_on_after(AWAITED_INTERVAL):
            await stop.wait()


async def run_and_cancel(work: Callable[[], Coroutine[Any, Any, None]], stop: anyio.Event) -> None:
    """Run `work`, which never ends by itself, until `stop` is set."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await stop.wait()
        tasks.cancel_scope.cancel()
