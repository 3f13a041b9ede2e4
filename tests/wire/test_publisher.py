"""Publishing with an answer to each message: stored, lost, refused, too large, or not known."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from batonbus.rules.errors import BusUnavailableError, MessageTooLargeError, NoAnswerError
from batonbus.wire import server as server_module
from batonbus.wire.connection import ApiError, connect
from batonbus.wire.publisher import LostRaceError, Publisher, check_size
from batonbus.wire.server import EmbeddedServer, embedded_server, free_port
from batonbus.wire.topology import ensure_topology

pytestmark = pytest.mark.anyio


def subject(wire: Any, number: int = 0) -> str:
    return f"{wire.fleet}.handoff.any.{number}"


async def persist(publisher: Publisher, subject: str) -> int:
    """Publish until an answer comes, for a connection that may be on its way back."""
    with anyio.fail_after(10):
        while True:
            try:
                return await publisher.publish(subject, b"x", {})
            except NoAnswerError:
                await anyio.lowlevel.checkpoint()


async def test_each_message_gets_its_own_sequence_however_many_wait(wire: Any) -> None:
    found: dict[int, int] = {}

    async def publish(number: int) -> None:
        found[number] = await wire.publisher.publish(subject(wire, number), b"x", {})

    # More than its window takes at a time.
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for number in range(1500):
                tasks.start_soon(publish, number)
    assert sorted(found.values()) == list(range(1, 1501))


@pytest.mark.parametrize("headers", [{}, {"Batonbus": '{"tail":0}', "traceparent": "é" * 40}])
async def test_the_largest_message_is_stored_and_one_byte_more_is_refused_before_the_wire(
    wire: Any, headers: dict[str, str]
) -> None:
    limit = wire.connection.client.max_payload
    room = limit - (12 + sum(len(k) + len(v.encode()) + 4 for k, v in headers.items()))
    assert await wire.publisher.publish(subject(wire), b"x" * room, headers) == 1
    with pytest.raises(MessageTooLargeError, match=r"raise max_payload") as caught:
        await wire.publisher.publish(subject(wire), b"x" * (room + 1), headers)
    assert (caught.value.size, caught.value.limit) == (limit + 1, limit)
    assert await wire.publisher.publish(subject(wire), b"small", headers) == 2
    assert wire.connection.session == 0


def test_a_size_is_counted_in_bytes_of_payload_and_headers() -> None:
    check_size(b"1234", {"A": "é"}, 4 + 12 + 1 + 2 + 4)
    with pytest.raises(MessageTooLargeError, match="message of 23 bytes"):
        check_size(b"1234", {"A": "é"}, 22)


async def test_a_lost_race_is_its_own_error(wire: Any) -> None:
    expected = {"Nats-Expected-Last-Subject-Sequence": "0"}
    await wire.publisher.publish(subject(wire), b"first", expected)
    with pytest.raises(LostRaceError, match="wrong last sequence: 1"):
        await wire.publisher.publish(subject(wire), b"second", expected)


async def test_another_refusal_has_the_servers_numbers(wire: Any) -> None:
    with pytest.raises(ApiError) as caught:
        await wire.publisher.publish(subject(wire), b"x", {"Nats-Expected-Stream": "OTHER"})
    assert caught.value.err_code == 10060


async def test_a_subject_that_no_stream_takes_gets_no_answer_and_says_so_at_once(
    wire: Any,
) -> None:
    with anyio.fail_after(2), pytest.raises(NoAnswerError, match="no stream takes this subject"):
        await wire.publisher.publish("nobody.listens", b"x", {})


async def test_an_answer_that_is_lost_ends_in_time_and_the_next_message_is_not_confused_by_it(
    wire: Any, proxy: Any, open_wire: Any
) -> None:
    async with open_wire(proxy.url, "asker", timeout=0.2) as weak:
        proxy.lose_answers = True
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.2 s"):
            await weak.publisher.publish(subject(wire), b"unheard", {})
        await proxy.cut()
        assert await persist(weak.publisher, subject(wire)) > 1


async def test_what_waits_when_the_connection_is_lost_is_told_at_once(
    wire: Any, proxy: Any, open_wire: Any
) -> None:
    told: list[str] = []

    async def publish(publisher: Publisher) -> None:
        with pytest.raises(NoAnswerError) as caught:
            await publisher.publish(subject(wire), b"x", {})
        told.append(str(caught.value))

    async with open_wire(proxy.url, "asker", timeout=30) as weak:
        proxy.lose_answers = True
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(publish, weak.publisher)
                await anyio.wait_all_tasks_blocked()
                await proxy.cut()
    assert told == ["the connection was lost before an answer came"]


async def test_each_message_has_its_own_time_limit(
    wire: Any, proxy: Any, open_wire: Any, until: Any
) -> None:
    waited: list[float] = []

    async def publish(publisher: Publisher) -> None:
        began = anyio.current_time()
        with pytest.raises(NoAnswerError, match=r"within 0\.3 s"):
            await publisher.publish(subject(wire), b"x", {})
        waited.append(anyio.current_time() - began)

    async with open_wire(proxy.url, "asker", timeout=0.3) as weak:
        proxy.lose_answers = True
        async with anyio.create_task_group() as tasks:
            for number in (1, 2, 3):
                tasks.start_soon(publish, weak.publisher)
                later = anyio.current_time() + 0.1 * number
                await until(lambda moment=later: anyio.current_time() > moment)
    assert len(waited) == 3
    assert all(0.29 < it < 2 for it in waited)


async def test_whoever_waits_when_the_publisher_is_left_is_told(wire: Any, proxy: Any) -> None:
    told: list[BaseException] = []

    async def publish(publisher: Publisher) -> None:
        try:
            await publisher.publish(subject(wire), b"x", {})
        except BusUnavailableError as error:
            told.append(error)

    async with (
        anyio.create_task_group() as tasks,
        connect(proxy.url, "asker") as connection,
        Publisher(connection) as publisher,
    ):
        proxy.lose_answers = True
        tasks.start_soon(publish, publisher)
        await anyio.wait_all_tasks_blocked()
    assert [str(it) for it in told] == ["left before the server answered"]


PERMISSIONS = """
authorization: {{ users: [
  {{ user: boss, password: x }}
  {{ user: Asker, password: x, permissions: {{ publish: {{ deny: "*.handoff.*.*.*.boss.*" }} }} }}
] }}
"""


async def test_who_may_not_publish_is_told_at_once_and_goes_on(
    tmp_path: Any, open_wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CONFIGURATION", server_module.CONFIGURATION + PERMISSIONS)
    async with embedded_server(tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        async with open_wire(f"nats://boss:x@{address}") as boss:
            await ensure_topology(boss.connection, boss.fleet)
        async with open_wire(f"nats://Asker:x@{address}", "Asker") as asker:
            forged = asker.draft(actor="boss")
            with anyio.fail_after(2), pytest.raises(BusUnavailableError) as caught:
                await asker.ledger.append(forged, tail=0)
            assert str(caught.value) == (
                f"the server does not let Asker publish to {forged.subject}: "
                "see its user's permissions, or start as the id that they are for"
            )
            assert await asker.ledger.append(asker.draft(actor="Asker"), tail=0) == 1


async def test_the_callers_headers_are_not_changed(wire: Any) -> None:
    headers = {"A": "1\r\nB: 2"}
    await wire.publisher.publish(subject(wire), b"x", headers)
    assert headers == {"A": "1\r\nB: 2"}


async def test_a_header_cannot_add_another_one(wire: Any) -> None:
    await ensure_topology(wire.connection, wire.fleet)
    forged = {"Note": "x\r\nNats-Msg-Id: forged\r\n\r\n"}
    await wire.publisher.publish(
        f"{wire.fleet}.handoff.00000000-0000-0000-0000-000000000007.sent.a.b.c", b"x", forged
    )
    stored = await wire.ledger.read(1)
    assert set(stored.headers) == {"Note"}


async def test_a_publish_that_is_cancelled_frees_its_place(wire: Any, proxy: Any) -> None:
    async with (
        connect(proxy.url, "asker") as connection,
        Publisher(connection, window=1) as publisher,
    ):
        proxy.lose_answers = True
        for _ in range(5):
            with anyio.move_on_after(0.01):
                await publisher.publish(subject(wire), b"x", {})
        await proxy.cut()
        assert await persist(publisher, subject(wire)) > 5


async def test_publishing_under_back_pressure_can_be_cancelled(wire: Any) -> None:
    async def flood() -> None:
        while True:
            await wire.connection.publish("flood", b"x" * 100_000)

    with anyio.fail_after(10):
        for _ in range(5):
            with anyio.move_on_after(0.05):
                await flood()
    await wire.connection.api("INFO")


async def test_nothing_is_kept_to_be_sent_while_the_connection_is_away(
    tmp_path: Path, until: Any
) -> None:
    """Who tries again and again would send it as often when the server is back."""
    server = EmbeddedServer(tmp_path, free_port())
    await server.start()
    async with (
        connect(server.url, "asker") as connection,
        Publisher(connection, timeout=0.2) as publisher,
    ):
        await ensure_topology(connection, "f")
        await server.stop()
        await until(lambda: not connection.client.is_connected)
        for _ in range(2):
            with pytest.raises(NoAnswerError, match=r"not back within 0\.2 s"):
                await publisher.publish("f.x", b"x" * 1000, {})
            with pytest.raises(NoAnswerError, match=r"not back within 0\.1 s"):
                await connection.request("f.y", b"y" * 1000, timeout=0.1)
        assert connection.client.pending_data_size < 1000
        async with anyio.create_task_group() as tasks:
            # Who asks while it is away is answered when it is back.
            tasks.start_soon(partial(connection.api, "INFO", timeout=10))
            await server.start()
    await server.stop()
