"""Running a command: its logs, its signals, its errors, its exit code."""

import signal
from collections.abc import Awaitable, Callable, Coroutine
from itertools import chain
from typing import Any, Literal, cast

import anyio
import typer

from batonbus.cli.options import Level, log_format
from batonbus.cli.output import Output
from batonbus.logs import configure, log
from batonbus.rules.errors import BatonbusError
from batonbus_schemas import InvalidMessageError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


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
        return anyio.run(work)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        known = known_errors(error)
        if not known:
            raise
        output.fail(known)
        return 1


def known_errors(error: BaseException) -> list[str]:
    """What to say of an error, also out of a task group; nothing where a part of it is a bug."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        parts = [known_errors(it) for it in group.exceptions]
        return list(dict.fromkeys(chain.from_iterable(parts))) if all(parts) else []
    return [str(error)] if isinstance(error, BatonbusError | InvalidMessageError) else []


async def run_until_signal(work: Callable[[anyio.Event], Awaitable[None]]) -> int:
    """Run `work` until it returns. SIGINT or SIGTERM sets its event, a second one cancels it; the
    exit code is then 1."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch_signals, stop, tasks.cancel_scope)
        await work(stop)
        tasks.cancel_scope.cancel()
        return 0
    return 1


async def _watch_signals(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            log.info("stop.requested", signal=number.name, again=stop.is_set())
            if stop.is_set():
                scope.cancel()
            stop.set()


async def run_and_cancel(work: Callable[[], Coroutine[Any, Any, None]], stop: anyio.Event) -> None:
    """Run `work`, which never ends by itself, until `stop` is set."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await stop.wait()
        tasks.cancel_scope.cancel()
