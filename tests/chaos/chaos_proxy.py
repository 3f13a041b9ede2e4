"""One program's way to the server, on loopback: it can be cut, stalled without a word (half-open),
slowed down, and made to trickle."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress

WHOLE = 65_536
"""Bytes that are passed on at a time."""


class Proxy:
    """Passes bytes on between its clients and the server at `server_port`."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._lag = 0.0
        self._chunk = WHOLE
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """Where its clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> int:
        """End every connection at once, without a goodbye; returns how many there were."""
        for writer in self._writers:
            writer.transport.abort()
        return len(self._writers) // 2  # each has two ends

    @contextmanager
    def stalled(self) -> Generator[None]:
        """Nothing comes through, and nobody is told: not even that the other side hung up."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    @contextmanager
    def slowed(self, *, lag: float, chunk: int = WHOLE) -> Generator[None]:
        """Each `chunk` of bytes takes `lag` seconds."""
        self._lag, self._chunk = lag, chunk
        try:
            yield
        finally:
            self._lag, self._chunk = 0.0, WHOLE

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, both ways, until either side ends it."""
        await self._flowing.wait()
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()  # as if we were not there either
            return
        ends = {writer, up_writer}
        self._writers |= ends
        ways = [
            asyncio.create_task(self._pass_on(source, target))
            for source, target in ((reader, up_writer), (up_reader, writer))
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers -= ends
            for way in ways:
                way.cancel()
            for end in ends:
                end.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                data = await source.read(self._chunk)
                await self._flowing.wait()
                if not data:
                    return
                if self._lag:
                    await asyncio.sleep(self._lag)
                target.write(data)
                await target.drain()


@asynccontextmanager
async def open_proxy(server_port: int) -> AsyncGenerator[Proxy]:
    """A proxy that listens while the block runs."""
    proxy = Proxy(server_port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        proxy.cut()
