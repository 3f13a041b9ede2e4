"""One connection: made or refused with a reason, kept through every break, closed with an error."""

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from nats.aio.msg import Msg

from batonbus.rules.errors import BusUnavailableError, NoAnswerError
from batonbus.wire import connection as connection_module
from batonbus.wire.connection import ApiError, DeniedError, connect, without_credentials
from batonbus.wire.server import EmbeddedServer, free_port

pytestmark = pytest.mark.anyio


async def refuse(url: str, *, within: float = 0.4) -> str:
    """How a connect fails."""
    with anyio.fail_after(5), pytest.raises(BusUnavailableError) as caught:
        async with connect(url, "asker", connect_timeout=within):
            pass
    return str(caught.value)


async def test_where_no_server_answers_the_address_is_named_without_its_credentials() -> None:
    port = free_port()
    problem = await refuse(f"nats://boss:secret@127.0.0.1:{port}")
    assert problem.startswith(f"cannot connect to NATS at nats://127.0.0.1:{port} (")
    assert "Connect call failed" in problem
    assert "`batonbus up`" in problem
    assert "secret" not in problem
    assert "boss" not in problem


async def test_a_port_that_takes_connections_and_says_nothing_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        problem = await refuse(f"nats://127.0.0.1:{mute.getsockname()[1]}")
    assert "cannot connect" in problem


@pytest.mark.parametrize("url", ["nats://", "nats://[", "nats://127.0.0.1:port", "", "http://["])
async def test_an_address_that_cannot_be_read_is_refused_as_such(url: str) -> None:
    assert "cannot connect to NATS" in await refuse(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
        ("nats://user:secret@host:4222", "nats://host:4222"),
        ("user:secret@host:4222", "nats://host:4222"),
        ("nats://token@host", "nats://host"),
        ("tls://u:s@cret@host:1", "tls://host:1"),
        ("localhost:4222", "nats://localhost:4222"),
        ("nats://u:secret@[::1]:4222", "nats://[::1]:4222"),
        ("nats://u:s,cret@host:4222", "nats://host:4222"),
        ("nats://u:secret@a:1, tls://u:secret@b:2", "nats://a:1,tls://b:2"),
    ],
)
async def test_an_address_is_shown_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


@pytest.mark.parametrize(
    ("login", "told"),
    [
        ("a:guessed@", "does not let 'a' in (wrong user or password): correct them in --url"),
        ("guessed@", "does not take this token: correct it in --url"),
        ("", "its address names no user: write nats://USER:PASSWORD@HOST:PORT"),
    ],
)
async def test_whom_the_server_does_not_know_is_told_so_without_the_secret(
    server_with: Any, login: str, told: str
) -> None:
    with server_with("authorization { user: a, password: right }") as address:
        problem = await refuse(f"nats://{login}{address}")
    assert problem.startswith(f"the server at nats://{address} ")
    assert told in problem
    assert "guessed" not in problem
    assert "start a server" not in problem


async def test_who_may_not_ask_is_told_as_whom_it_is_logged_in(server_with: Any) -> None:
    mute = "{ user: mute, password: x, permissions: { publish: { deny: '>' } } }"
    with server_with(f"authorization {{ users: [ {mute} ] }}") as address:
        async with connect(f"nats://mute:x@{address}", "operator") as connection:
            with pytest.raises(DeniedError) as caught:
                await connection.request("a.b")
        async with connect(f"nats://mute:x@{address}", "mute") as connection:
            with pytest.raises(DeniedError, match=r"let mute publish to a\.b: see its user's"):
                await connection.request("a.b")
    assert "let the user 'mute', who asks as operator, publish to a.b: log in as one" in str(
        caught.value
    )


async def test_of_several_addresses_one_that_answers_is_enough(server: EmbeddedServer) -> None:
    dead = f"nats://127.0.0.1:{free_port()}"
    async with connect(f"{dead},{server.url}", "asker") as connection:
        assert connection.address == server.url
        assert not connection.is_clustered


@asynccontextmanager
async def pretend_server(version: str, *, more: bytes = b"") -> AsyncGenerator[str]:
    """As much of a NATS server as a connect needs; `more` is what it says of itself besides."""

    async def greet(stream: SocketStream) -> None:
        async with stream:
            said = b'INFO {"version":"%s","max_payload":1%s}\r\n'
            await stream.send(said % (version.encode(), more))
            async for data in stream:
                if b"PING" in data:
                    await stream.send(b"PONG\r\n")

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, greet)
        yield f"nats://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def test_a_server_that_is_too_old_is_refused_with_its_version() -> None:
    async with pretend_server("2.10.29") as url:
        problem = await refuse(url)
    assert problem.startswith("nats-server 2.10.29 is too old")
    assert "use 2.11.16, 2.12.7, 2.14.0 or newer" in problem


async def test_the_first_server_that_is_new_enough_is_taken() -> None:
    async with pretend_server("2.11.0") as url, connect(url, "asker") as connection:
        assert connection.client.is_connected


@pytest.mark.parametrize(
    ("said", "open_at"),
    [
        (b"", None),  # we came by loopback
        (b',"host":"127.0.0.1"', None),
        (b',"host":"0.0.0.0"', "0.0.0.0"),
        (b',"host":"0.0.0.0","auth_required":true', None),
        (b',"host":"10.1.2.3","tls_verify":true', None),
        (b',"host":"nats.example"', "nats.example"),
    ],
)
async def test_a_server_that_lets_anybody_in_from_elsewhere_is_known(
    said: bytes, open_at: str | None
) -> None:
    async with pretend_server("2.14.0", more=said) as url, connect(url, "asker") as connection:
        assert connection.open_at == open_at


async def test_a_real_server_says_whether_it_wants_credentials(server_with: Any) -> None:
    with server_with("") as address, server_with("authorization { token: x }") as guarded:
        async with connect(f"nats://{address}", "asker") as connection:
            assert connection.open_at is None
            connection.client._server_info["host"] = "::"
            assert connection.open_at == "::"
        async with connect(f"nats://x@{guarded}", "asker") as connection:
            connection.client._server_info["host"] = "::"
            assert connection.open_at is None


async def test_a_connection_has_an_inbox_of_its_own(wire: Any) -> None:
    assert wire.connection.client.new_inbox().startswith("_INBOX_window-manager.")


# Asking.


async def test_a_request_that_nobody_serves_fails_at_once(wire: Any) -> None:
    with anyio.fail_after(2), pytest.raises(NoAnswerError, match="nobody answers nobody"):
        await wire.connection.request("nobody", timeout=30)


async def test_a_request_that_is_not_answered_in_time_fails_with_its_limit(wire: Any) -> None:
    async def say_nothing(_: Msg) -> None: ...

    await wire.connection.subscribe("mute", say_nothing)
    with pytest.raises(NoAnswerError, match=r"no answer to mute within 0\.05 s"):
        await wire.connection.request("mute", timeout=0.05)


async def test_an_error_of_the_api_has_its_numbers(wire: Any) -> None:
    with pytest.raises(
        ApiError, match=r"JetStream error 10059 \(404\): stream not found"
    ) as caught:
        await wire.connection.api("STREAM.INFO.NONE")
    assert (caught.value.code, caught.value.err_code, caught.value.temporary) == (404, 10059, False)


async def test_a_request_that_is_cancelled_half_way_does_no_harm(wire: Any) -> None:
    late: list[Msg] = []

    async def keep(message: Msg) -> None:
        late.append(message)

    await wire.connection.subscribe("slow", keep)
    for _ in range(20):
        with anyio.move_on_after(0.005):
            await wire.connection.request("slow", timeout=5)
    for message in late:
        await message.respond(b"too late")
    assert b"ok" not in await wire.connection.api("INFO", timeout=2)
    assert late


async def test_a_ping_that_is_cancelled_half_way_does_not_deafen_the_connection(wire: Any) -> None:
    for _ in range(20):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wire.connection.client.flush)
                await anyio.lowlevel.checkpoint()
                scope.cancel()
    await wire.connection.client.flush()
    await wire.connection.api("INFO", timeout=2)


async def test_a_subscription_that_is_ended_under_cancellation_does_not_deafen_the_connection(
    wire: Any,
) -> None:
    async def ignore(_: Msg) -> None: ...

    for _ in range(20):
        subscription = await wire.connection.subscribe("any", ignore)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await wire.connection.drain(subscription)
    await wire.connection.api("INFO", timeout=2)


async def test_a_drained_subscription_has_handled_all_that_was_sent_before(wire: Any) -> None:
    heard: list[Msg] = []

    async def hear(message: Msg) -> None:
        heard.append(message)

    subscription = await wire.connection.subscribe("many", hear)
    for _ in range(3000):
        await wire.connection.publish("many", b"x" * 100)
    await wire.connection.drain(subscription)
    assert len(heard) == 3000


# The server's clock.


async def test_the_servers_clock_is_not_the_wall_clock(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = datetime(2001, 2, 3, tzinfo=UTC)
    monkeypatch.setattr("time.time", lambda: 0.0)
    wire.connection.set_clock(told)
    assert 0 <= wire.connection.server_time() - told.timestamp() < 1


async def test_a_clock_that_was_never_read_is_an_error(server: EmbeddedServer) -> None:
    async with connect(server.url, "asker") as connection:
        with pytest.raises(BusUnavailableError, match="has not been read yet"):
            connection.server_time()


# Breaks.


async def test_a_closed_connection_ends_every_wait_with_the_servers_reason(
    wire: Any, until: Any
) -> None:
    client = wire.connection.client
    # nats-py counts the payload alone: with its headers this one is too large for the server.
    await client.publish("any", b"x" * client.max_payload, headers={"one": "more"})
    with anyio.fail_after(5), pytest.raises(BusUnavailableError, match="maximum payload violation"):
        await wire.connection.wait_closed()
    with pytest.raises(BusUnavailableError, match="for good"):
        await wire.connection.request("any")
    with pytest.raises(BusUnavailableError, match="for good"):
        await wire.ledger.append(wire.draft(), tail=0)
    with pytest.raises(BusUnavailableError, match="for good"):
        await wire.ledger.read(1)


async def test_who_has_left_is_told_so(server: EmbeddedServer) -> None:
    async with connect(server.url, "asker") as connection:
        pass
    with pytest.raises(BusUnavailableError, match="asker has left the bus"):
        await connection.request("any")
    with pytest.raises(BusUnavailableError, match="asker has left the bus"):
        await connection.wait_closed()


async def test_it_is_not_connected_while_the_server_is_away_and_counts_from_its_return(
    tmp_path: Any, until: Any
) -> None:
    server = EmbeddedServer(tmp_path, free_port())
    await server.start()
    try:
        async with connect(server.url, "asker") as connection:
            await until(lambda: connection.connected_for > 0.2)
            await server.stop()
            await until(lambda: connection.connected_for == 0)
            away = time.monotonic()
            await server.start()
            await until(lambda: connection.connected_for > 0)
            assert connection.connected_for < time.monotonic() - away
            assert connection.session == 1
            await connection.api("INFO")
    finally:
        await server.stop()


async def test_a_fleet_comes_back_to_its_server_soon_and_not_in_one_instant(
    tmp_path: Any, until: Any
) -> None:
    server = EmbeddedServer(tmp_path, free_port())
    await server.start()
    try:
        async with AsyncExitStack() as stack:
            fleet = [
                await stack.enter_async_context(connect(server.url, f"agent-{number}"))
                for number in range(30)
            ]
            await server.stop()
            await until(lambda: not any(it.connected_for for it in fleet))
            await server.start()
            began = time.monotonic()
            await until(lambda: all(it.session == 1 and it.connected_for for it in fleet), limit=10)
            back = [time.monotonic() - it.connected_for - began for it in fleet]
            for it in fleet:
                await it.api("INFO")
    finally:
        await server.stop()
    assert max(back) < 10
    # No tenth of the fleet's return holds the half of it.
    crowds = Counter(round((it - min(back)) / (max(back) - min(back)) * 9) for it in back)
    assert max(crowds.values()) <= 15
    assert {it.client.options["max_reconnect_attempts"] for it in fleet} == {-1}
    waits = [float(it.client.options["reconnect_time_wait"]) for it in fleet]
    assert max(waits) - min(waits) > 0.1


@pytest.mark.faults
async def test_it_comes_back_to_a_server_that_was_killed(
    fragile_server: EmbeddedServer, until: Any
) -> None:
    async with connect(fragile_server.url, "asker") as connection:
        for times in range(3):
            os.kill(fragile_server.pid, signal.SIGKILL)
            await until(lambda seen=times: connection.session == seen + 1, limit=10)
            await until(lambda seen=times: fragile_server.restarts == seen + 1)
            await connection.api("INFO")
        assert connection.address == fragile_server.url


async def test_a_question_is_given_up_at_once_when_the_connection_is_lost(
    wire: Any, proxy: Any
) -> None:
    """Who asks again gets the answer of the server that is back."""
    heard = anyio.Event()

    async def keep_silent(_: Msg) -> None:
        heard.set()

    await wire.connection.subscribe("silence", keep_silent)
    async with connect(proxy.url, "asker") as connection, anyio.create_task_group() as tasks:

        async def cut() -> None:
            await heard.wait()
            await proxy.cut()

        tasks.start_soon(cut)
        with anyio.fail_after(5), pytest.raises(NoAnswerError, match="connection was lost before"):
            await connection.request("silence", timeout=60)
        await connection.api("INFO")


async def test_a_connection_that_was_cut_without_a_word_is_noticed_and_made_again(
    proxy: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "PING_INTERVAL", 0.1)
    async with connect(proxy.url, "asker") as connection:
        await connection.api("INFO")
        proxy.lose_all = True
        await until(lambda: connection.connected_for == 0)
        await proxy.cut()
        await until(lambda: connection.session == 1)
        await connection.api("INFO")


async def test_a_dead_connection_is_left_though_it_has_not_taken_all_that_was_written(
    proxy: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "PING_INTERVAL", 0.1)
    async with connect(proxy.url, "asker") as connection:
        proxy.stall()
        for _ in range(200):  # 12 MB: more than the kernel's buffers take
            await connection.publish("any", b"x" * 60_000)
        await until(lambda: connection.session == 1)
        await connection.api("INFO")


async def test_a_cut_is_noticed_within_the_time_for_a_receipt() -> None:
    # nats-py gives up at the ping after two that were not answered.
    assert 3 * connection_module.PING_INTERVAL < 30


async def test_while_it_is_away_a_failed_try_is_no_warning(
    tmp_path: Any, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = EmbeddedServer(tmp_path, free_port())
    await server.start()
    try:
        async with connect(server.url, "asker") as connection:
            await server.stop()
            await until(lambda: connection.connected_for == 0)
            with anyio.move_on_after(0.7):
                await anyio.sleep_forever()
            warned = [it for it in caplog.records if it.levelname == "WARNING"]
            assert len(warned) <= 2  # the end of the connection, and that it is lost
            await server.start()
            await until(lambda: connection.connected_for > 0)
    finally:
        await server.stop()
