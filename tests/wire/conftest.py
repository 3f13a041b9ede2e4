"""What the tests of the wire share: real servers, connections, and ways to break them."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from batonbus.rules.chain import Kind
from batonbus.wire.connection import Connection, connect
from batonbus.wire.ledger import Draft, Ledger
from batonbus.wire.publisher import Publisher
from batonbus.wire.registry import Registry
from batonbus.wire.server import EmbeddedServer, embedded_server
from batonbus.wire.subjects import Subject
from batonbus.wire.topology import ensure_topology


@dataclass
class Wire:
    """A connected actor of a fleet of its own."""

    connection: Connection
    publisher: Publisher
    ledger: Ledger
    registry: Registry
    fleet: str

    def draft(
        self,
        kind: Kind = "sent",
        *,
        handoff_id: UUID | None = None,
        actor: str = "asker",
        **more: object,
    ) -> Draft:
        """An event of this fleet; a new handoff's unless it has an id."""
        subject = Subject(self.fleet, handoff_id or uuid4(), kind, "adhoc", actor, "builder")
        return Draft(subject=subject, payload=b"{}", **more)  # type: ignore[arg-type]


OpenWire = Callable[..., AbstractAsyncContextManager[Wire]]


class Proxy:
    """A TCP proxy in front of a server that can lose what passes, take nothing more, or cut every
    connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: set[SocketStream] = set()
        self.url = ""
        self.lose_answers = False
        self.lose_all = False
        self._stalled: set[SocketStream] = set()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener:
            port = listener.extra(SocketAttribute.local_port)
            self.url = f"nats://127.0.0.1:{port}"
            task_status.started()
            await listener.serve(self._join)

    def stall(self) -> None:
        """Take nothing more from the connections of now, without a word; later ones pass."""
        self._stalled |= self._streams

    async def cut(self) -> None:
        """End every connection; later ones pass unharmed."""
        self.lose_answers = self.lose_all = False
        for stream in list(self._streams):
            await stream.aclose()

    async def _join(self, client: SocketStream) -> None:
        try:
            server = await anyio.connect_tcp("127.0.0.1", self._port)
        except OSError:
            await client.aclose()
            return
        self._streams |= {client, server}
        async with client, server, anyio.create_task_group() as tasks:
            tasks.start_soon(self._pump, client, server, lambda: self.lose_all)
            await self._pump(server, client, lambda: self.lose_all or self.lose_answers)
            tasks.cancel_scope.cancel()
        self._streams -= {client, server}

    async def _pump(
        self, source: SocketStream, target: SocketStream, lost: Callable[[], bool]
    ) -> None:
        try:
            async for data in source:
                if source in self._stalled:
                    await anyio.sleep_forever()
                if not lost():
                    await target.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            await target.aclose()


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[EmbeddedServer]:
    """A server for tests that leave it running: each has a fleet of its own on it."""
    async with embedded_server(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
async def connection(server: EmbeddedServer) -> AsyncGenerator[Connection]:
    """An actor of the bus on the shared server, where nothing of its fleet is made yet."""
    async with connect(server.url, "window-manager") as connected:
        yield connected


@pytest.fixture
async def fragile_server(tmp_path: Path) -> AsyncGenerator[EmbeddedServer]:
    """A server for one test, which may kill it."""
    async with embedded_server(tmp_path / "store") as running:
        yield running


@pytest.fixture
async def proxy(server: EmbeddedServer) -> AsyncGenerator[Proxy]:
    async with anyio.create_task_group() as tasks:
        between = Proxy(server.port)
        await tasks.start(between.run)
        yield between
        tasks.cancel_scope.cancel()


@pytest.fixture
def fleet() -> str:
    return f"fleet-{uuid4().hex[:8]}"


@pytest.fixture
def open_wire(fleet: str) -> OpenWire:
    """Connects an actor; `timeout` is how long its publisher waits for an answer."""

    @asynccontextmanager
    async def opened(
        url: str, actor: str = "window-manager", *, timeout: float = 5.0
    ) -> AsyncGenerator[Wire]:
        async with (
            connect(url, actor) as connection,
            Publisher(connection, timeout=timeout) as publisher,
        ):
            yield Wire(
                connection,
                publisher,
                Ledger(connection, publisher, fleet),
                Registry(connection, publisher, fleet),
                fleet,
            )

    return opened


@pytest.fixture
async def wire(server: EmbeddedServer, open_wire: OpenWire, fleet: str) -> AsyncGenerator[Wire]:
    """An actor on the shared server, with its fleet's topology."""
    async with open_wire(server.url) as opened:
        await ensure_topology(opened.connection, fleet)
        yield opened


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Waits for a fact, at most `limit` seconds."""

    async def wait(fact: Callable[[], bool], *, limit: float = 5.0) -> None:
        end = time.monotonic() + limit
        while not fact():
            assert time.monotonic() < end, f"not so within {limit:g} s"
            await anyio.sleep(0.01)

    return wait


@pytest.fixture
async def rogue(server: EmbeddedServer) -> AsyncGenerator[Callable[..., Awaitable[None]]]:
    """Publishes any bytes as a subject and as headers, as no client library would."""
    async with await anyio.connect_tcp("127.0.0.1", server.port) as stream:
        await stream.receive()
        await stream.send(b'CONNECT {"verbose":false,"headers":true}\r\n')

        async def write(subject: bytes, *, headers: bytes = b"NATS/1.0\r\n\r\n") -> None:
            sizes = b"%d %d" % (len(headers), len(headers) + 2)
            await stream.send(b"HPUB " + subject + b" " + sizes + b"\r\n" + headers + b"{}\r\n")
            await stream.send(b"PING\r\n")
            answer = b""
            while b"PONG\r\n" not in answer:
                answer += await stream.receive()

        yield write
