"""A whole bus in one folder: the server, and its processes, started again whenever one dies."""

import fcntl
import os
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from batonbus.logs import log
from batonbus.rules.chain import OPERATOR, RECEIPT_KEEPER, WINDOW_MANAGER
from batonbus.rules.errors import BusUnavailableError
from batonbus.rules.settings import Settings
from batonbus.run.core import open_core
from batonbus.run.discovery import STATE_FOLDER, address_file, store_folder
from batonbus.run.files import write_whole
from batonbus.wire.processes import start_child, stop_child
from batonbus.wire.server import embedded_server, is_port_free

STEADY = 10.0
"""Seconds that a process must have lived for its death to count as its first."""

STOP_GRACE = 5.0
"""Seconds that a process has to end by itself: one of the bus has no state to save, and an agent
may end what it is just about to answer."""

HAND_BACK_GRACE = 8.0
"""Seconds that an agent which still works then has to end its programs and hand back what it has:
killed with it in hand, it spends one of the times that a handoff may change hands."""


def restart_delay(deaths: int) -> float:
    """Seconds before a process that died `deaths` times in a row is started again."""
    return min(0.1 * 2.0 ** (deaths - 1), 5.0)


async def supervise(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    pids: dict[str, int] | None = None,
) -> None:
    """Run a program, and start it again whenever it ends, until cancelled; then it ends too.
    `pids` is kept up with its process id, under its name."""
    deaths = 0
    while True:
        started = time.monotonic()
        try:
            process = await start_child(command, env=environment)
        except OSError as error:
            # A machine without room for a process may have some in a moment.
            deaths += 1
            log.error("process.not_started", name=name, error=str(error))
            await anyio.sleep(restart_delay(deaths))
            continue
        if pids is not None:
            pids[name] = process.pid
        log.info("process.started", name=name, pid=process.pid)
        try:
            code = await process.wait()
        finally:
            await stop_child(process, grace=STOP_GRACE, again=HAND_BACK_GRACE)
        deaths = 1 if time.monotonic() - started >= STEADY else deaths + 1
        delay = restart_delay(deaths)
        log.warning("process.died", name=name, code=code, deaths=deaths, again_in_s=delay)
        await anyio.sleep(delay)


@asynccontextmanager
async def local_bus(
    folder: Path,
    *,
    fleet: str,
    port: int | None = None,
    settings: Settings | None = None,
    log_level: str | None = None,
) -> AsyncGenerator[str]:
    """A bus that keeps its store and its address under `folder`/.batonbus; gives its address as
    soon as the server listens. `port` None is the one of the last time, if it is free; `log_level`
    None is what BATONBUS_LOG_LEVEL says.

    Raises BusUnavailableError where one runs in this folder already, or the server does not start;
    TopologyError where its store is of another kind, or of other `settings`.
    """
    state = folder / STATE_FOLDER
    with _only_one(state):
        async with embedded_server(store_folder(folder), _choose_port(state, port)) as server:
            write_whole(state / "port", str(server.port).encode())
            async with open_core(server.url, OPERATOR, fleet=fleet, settings=settings):
                pass  # before its processes start, so that all go by the same numbers
            environment = {**os.environ, "BATONBUS_URL": server.url, "BATONBUS_FLEET": fleet}
            if log_level is not None:
                environment["BATONBUS_LOG_LEVEL"] = log_level
            async with anyio.create_task_group() as tasks:
                for part in (WINDOW_MANAGER, RECEIPT_KEEPER):
                    # -P: a module in the current folder must not stand in for one of ours.
                    command = [sys.executable, "-P", "-m", "batonbus", "run", part]
                    tasks.start_soon(supervise, part, command, environment)
                write_whole(address_file(folder), server.url.encode())
                try:
                    yield server.url
                finally:
                    address_file(folder).unlink(missing_ok=True)
                    tasks.cancel_scope.cancel()


@contextmanager
def _only_one(state: Path) -> Generator[None]:
    """Hold the folder's lock, which the system releases however we end."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        write_whole(state / ".gitignore", b"*\n")
        opened = (state / "lock").open("w")
    except OSError as error:
        raise BusUnavailableError(
            f"the bus cannot keep its store in {state} ({error.strerror}): start it in a folder "
            "where it may write"
        ) from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            address = address_file(state.parent)
            where = address.read_text().strip() if address.exists() else "it is just starting"
            raise BusUnavailableError(
                f"a bus runs in this folder already ({where}): use it, or stop it with Ctrl-C first"
            ) from None
        yield


def _choose_port(state: Path, wanted: int | None) -> int | None:
    """The wanted port, which must be free, or that of the last time if it is free, or any."""
    if wanted is not None:
        if not is_port_free(wanted):
            raise BusUnavailableError(
                f"port {wanted} on 127.0.0.1 is in use: choose another --port"
            )
        return wanted
    try:
        last = int((state / "port").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return last if is_port_free(last) else None
