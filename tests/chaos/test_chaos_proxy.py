"""The proxy does to a connection what its words say."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from chaos_proxy import Proxy, open_proxy

from batonbus.wire.server import free_port

pytestmark = pytest.mark.anyio

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[Proxy, Streams]]:
    """A connection to an echo, through a proxy."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with open_proxy(server.sockets[0].getsockname()[1]) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with anyio.fail_after(5):
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            yield proxy, (reader, writer)
        writer.close()
    server.close()


async def test_a_cut_ends_the_connection_and_the_next_one_works() -> None:
    async with connected() as (proxy, (reader, _)):
        assert proxy.cut() == 1
        assert await reader.read(1) == b""
        again, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"again")
        assert await again.readexactly(5) == b"again"
        writer.close()


async def test_a_stall_keeps_the_connection_and_passes_nothing_on_until_it_is_over() -> None:
    async with connected() as (proxy, (reader, writer)):
        with proxy.stalled():
            writer.write(b"later")
            with anyio.move_on_after(0.2):
                pytest.fail(f"{await reader.read(5)!r} came through")
        assert await reader.readexactly(5) == b"later"


async def test_a_slow_way_takes_its_time_for_each_chunk() -> None:
    async with connected() as (proxy, (reader, writer)):
        with proxy.slowed(lag=0.02, chunk=10):
            writer.write(b"drop")  # the read that is under way still takes all that it gets
            await reader.readexactly(4)
            began = time.monotonic()
            writer.write(bytes(100))
            await reader.readexactly(100)
            assert time.monotonic() - began >= 0.2


async def test_without_a_server_there_is_nobody_to_talk_to() -> None:
    async with open_proxy(free_port()) as proxy:
        with anyio.fail_after(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            assert await reader.read(1) == b""
            writer.close()
