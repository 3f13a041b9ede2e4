"""A pull feed: prompt after every break, never more than its window, nothing kept at its end."""

import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest

from batonbus.rules.settings import Settings
from batonbus.wire import connection as connection_module
from batonbus.wire import feed as feed_module
from batonbus.wire import server as server_module
from batonbus.wire.feed import ConsumerGoneError, Feed, Received, open_feed
from batonbus.wire.server import EmbeddedServer, embedded_server, free_port
from batonbus.wire.streams import role_consumer
from batonbus.wire.topology import ensure_addressee, ensure_topology

pytestmark = pytest.mark.anyio

CONSUMER = role_consumer("builder")
PATIENT = Settings(ack_wait=30.0)
"""What is not handed back comes again only after 30 s: no test waits so long."""

OpenFeed = Callable[..., AbstractAsyncContextManager[Feed]]


@pytest.fixture
async def deliver(wire: Any) -> Callable[..., Any]:
    """Stores deliveries to the builder, in their order."""
    await ensure_addressee(wire.connection, wire.fleet, "builder", PATIENT)

    async def store(count: int = 1, *, by: Any = wire) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                subject = str(by.draft("delivered", actor="window-manager").subject)
                tasks.start_soon(by.publisher.publish, subject, b"x", {})

    return store


@pytest.fixture
def open_one(wire: Any) -> OpenFeed:
    @asynccontextmanager
    async def opened(*, window: int = 1, by: Any = wire) -> AsyncGenerator[Feed]:
        async with open_feed(by.connection, by.ledger.stream, CONSUMER, window=window) as feed:
            yield feed

    return opened


@pytest.fixture
def info(wire: Any) -> Callable[[], Any]:
    """What the server knows of the consumer."""

    async def ask() -> Any:
        data = await wire.connection.api(f"CONSUMER.INFO.{wire.ledger.stream}.{CONSUMER}")
        return SimpleNamespace(**msgspec.json.decode(data))

    return ask


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests end after 0.4 s, and a heartbeat comes each 0.1 s."""
    monkeypatch.setattr(feed_module, "EXPIRES", 0.4)
    monkeypatch.setattr(feed_module, "IDLE_HEARTBEAT", 0.1)


async def take(feed: Feed, count: int, *, limit: float = 5.0) -> list[Received]:
    """The next messages, which stay in hand."""
    with anyio.fail_after(limit):
        return [await feed.receive() for _ in range(count)]


async def finish(feed: Feed, received: Received) -> None:
    await received.ack()
    await feed.release()


async def wait_for_pulls(info: Any, count: int) -> None:
    with anyio.fail_after(5):
        while (await info()).num_waiting < count:
            await anyio.lowlevel.checkpoint()


# Messages.


async def test_a_message_says_what_the_server_knows_of_it(
    wire: Any, deliver: Any, open_one: Any
) -> None:
    await deliver(3)
    async with open_one(window=1) as feed:
        (first,) = await take(feed, 1)
    assert (first.sequence, first.deliveries, first.pending) == (1, 1, 2)
    assert (first.data, first.headers) == (b"x", {})
    assert first.subject.endswith(".delivered.adhoc.window-manager.builder")
    assert abs(first.at - wire.connection.server_time()) < 60


@pytest.mark.parametrize("account", ["", "hub.ACCOUNTHASH."])
async def test_both_forms_of_an_ack_subject_are_read(account: str) -> None:
    more = ".token" if account else ""
    reply = f"$JS.ACK.{account}STREAM.consumer.2.17.5.1700000000500000000.42{more}"
    message = SimpleNamespace(reply=reply, subject="s", data=b"", headers=None)
    received = Received(None, message)  # type: ignore[arg-type]
    assert (received.deliveries, received.sequence, received.pending) == (2, 17, 42)
    assert received.at == 1_700_000_000.5


async def test_what_is_handed_back_comes_again_and_counts(deliver: Any, open_one: Any) -> None:
    await deliver()
    async with open_one() as feed:
        for times in (1, 2, 3):
            (received,) = await take(feed, 1)
            assert received.deliveries == times
            await received.nak(0.05 if times == 2 else 0)
            await feed.release()


async def test_what_is_acked_is_done(deliver: Any, open_one: Any, info: Any) -> None:
    await deliver(2)
    async with open_one() as feed:
        for _ in range(2):
            await finish(feed, (await take(feed, 1))[0])
    assert ((await info()).num_ack_pending, (await info()).num_pending) == (0, 0)


async def test_an_answer_on_a_closed_connection_is_only_logged(
    server: Any, wire: Any, deliver: Any, open_one: Any, open_wire: Any, caplog: Any
) -> None:
    await deliver()
    async with open_wire(server.url, "builder") as other, open_one(by=other) as feed:
        (received,) = await take(feed, 1)
    await received.ack()
    assert "answer.not_sent" in caplog.text


# The window.


async def test_no_more_than_the_window_is_ever_in_hand(deliver: Any, open_one: Any) -> None:
    await deliver(5)
    async with open_one(window=3) as feed:
        first, *_ = await take(feed, 3)
        with anyio.move_on_after(0.2):
            await feed.receive()
            pytest.fail("a fourth message came")
        await finish(feed, first)
        await take(feed, 1)


async def test_no_more_than_the_window_is_out_though_requests_overlap_and_expire(
    hurried: None, deliver: Any, open_one: Any, info: Any
) -> None:
    released = 0

    async def store_slowly() -> None:
        for count in (1, 3, 0, 7, 2, 0, 9, 1, 12, 5):
            await deliver(count)
            delivered = (await info()).delivered["consumer_seq"]
            assert delivered - released <= 8
            with anyio.move_on_after(0.15):  # requests end meanwhile
                await anyio.sleep_forever()

    async with open_one(window=8) as feed, anyio.create_task_group() as tasks:
        tasks.start_soon(store_slowly)
        for _ in range(40):
            (received,) = await take(feed, 1)
            released += 1
            await finish(feed, received)
    assert (await info()).num_pending == 0


async def test_messages_come_one_by_one_in_order(deliver: Any, open_one: Any) -> None:
    await deliver(200)
    async with open_one(window=1) as feed:
        sequences = []
        for _ in range(200):
            (received,) = await take(feed, 1)
            sequences.append(received.sequence)
            await finish(feed, received)
    assert sequences == list(range(1, 201))


async def test_a_large_window_takes_all_of_many_messages_once(deliver: Any, open_one: Any) -> None:
    await deliver(2000)
    async with open_one(window=256) as feed:
        sequences = []
        for _ in range(2000):
            (received,) = await take(feed, 1)
            sequences.append(received.sequence)
            await finish(feed, received)
    assert sequences == list(range(1, 2001))


async def test_a_request_that_ended_empty_does_not_delay_the_next_message(
    hurried: None, deliver: Any, open_one: Any
) -> None:
    async with open_one(window=5) as feed:
        for _ in range(4):
            with anyio.move_on_after(0.5):
                await feed.receive()
                pytest.fail("there is nothing to receive")
            began = time.monotonic()
            await deliver()
            (received,) = await take(feed, 1)
            assert time.monotonic() - began < 1
            await finish(feed, received)


@pytest.fixture
def inboxes(wire: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those that are subscribed to from now on."""
    seen: list[str] = []
    subscribe = wire.connection.subscribe

    async def note(subject: str, *more: Any, **options: Any) -> Any:
        seen.append(subject)
        return await subscribe(subject, *more, **options)

    monkeypatch.setattr(wire.connection, "subscribe", note)
    return seen


async def test_a_request_that_ended_empty_is_followed_by_another_on_the_same_inbox(
    hurried: None, wire: Any, open_one: Any, deliver: Any, inboxes: list[str]
) -> None:
    await ensure_addressee(wire.connection, wire.fleet, "builder", PATIENT)
    async with open_one(window=2) as feed:
        with anyio.move_on_after(1.5):
            await feed.receive()
        await deliver()
        await take(feed, 1)
    assert len(inboxes) == 1


async def test_a_feed_whose_places_are_all_taken_asks_for_nothing_and_then_at_once(
    hurried: None, wire: Any, deliver: Any, open_one: Any, inboxes: list[str]
) -> None:
    await deliver()
    async with open_one() as feed:
        (received,) = await take(feed, 1)
        asked = wire.connection.client.stats["out_msgs"]
        with anyio.move_on_after(0.8):  # many heartbeats, had it asked
            await feed.receive()
        assert wire.connection.client.stats["out_msgs"] == asked
        await finish(feed, received)
        with anyio.move_on_after(0.05):  # it does not doubt the request that it has just made
            await feed.receive()
        await deliver()
        await take(feed, 1, limit=1)
    assert len(inboxes) == 1


# Breaks.


@pytest.mark.faults
async def test_the_first_message_comes_within_a_second_of_a_killed_servers_return(
    fragile_server: Any, open_wire: Any, open_one: Any, until: Any
) -> None:
    async with open_wire(fragile_server.url) as wire:
        await ensure_topology(wire.connection, wire.fleet)
        await ensure_addressee(wire.connection, wire.fleet, "builder", PATIENT)
        async with open_one(window=2, by=wire) as feed:
            for times in (1, 2, 3):
                os.kill(fragile_server.pid, signal.SIGKILL)
                await until(lambda seen=times: wire.connection.session == seen, limit=15)
                back = time.monotonic()
                draft = wire.draft("delivered", actor="window-manager")
                await wire.ledger.append(draft, tail=0)
                # Both places are good: no request of before the break still counts.
                await wire.ledger.append(wire.draft("delivered", actor="window-manager"), tail=0)
                received = await take(feed, 2, limit=10)
                assert time.monotonic() - back < 1
                for it in received:
                    await finish(feed, it)


async def test_a_place_given_back_while_the_server_is_away_is_filled_after_its_return(
    tmp_path: Any, open_wire: Any, open_one: Any, until: Any
) -> None:
    server = EmbeddedServer(tmp_path, free_port())
    await server.start()
    try:
        async with open_wire(server.url) as wire:
            await ensure_topology(wire.connection, wire.fleet)
            await ensure_addressee(wire.connection, wire.fleet, "builder", PATIENT)
            await wire.ledger.append(wire.draft("delivered", actor="window-manager"), tail=0)
            async with open_one(by=wire) as feed:
                (held,) = await take(feed, 1)
                await server.stop()
                await until(lambda: wire.connection.connected_for == 0)
                written = wire.connection.client.stats["out_msgs"]
                await finish(feed, held)
                # Only the ack: a request would be sent later, for an inbox of before.
                assert wire.connection.client.stats["out_msgs"] == written + 1
                await server.start()
                await until(lambda: wire.connection.session == 1)
                await wire.ledger.append(wire.draft("delivered", actor="window-manager"), tail=0)
                (received,) = await take(feed, 1, limit=2)
                assert received.sequence == 2
    finally:
        await server.stop()


async def test_a_feed_that_hears_no_heartbeat_asks_again(
    hurried: None,
    proxy: Any,
    deliver: Any,
    open_one: Any,
    open_wire: Any,
    info: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "DRAIN_TIMEOUT", 0.1)
    async with open_wire(proxy.url, "builder") as weak, open_one(by=weak) as feed:
        await wait_for_pulls(info, 1)
        proxy.lose_answers = True
        await deliver()  # goes to the old inbox, and nobody hears it
        with anyio.move_on_after(0.5):
            await feed.receive()
            pytest.fail("nothing can be heard")
        proxy.lose_answers = False
        await deliver()
        (received,) = await take(feed, 1, limit=2)
        assert received.sequence == 2


# A consumer that is gone.


async def test_a_consumer_that_is_deleted_under_a_feed_ends_it(
    wire: Any, open_one: Any, info: Any
) -> None:
    async def delete() -> None:
        await wait_for_pulls(info, 1)
        await wire.connection.api(f"CONSUMER.DELETE.{wire.ledger.stream}.{CONSUMER}")

    await ensure_addressee(wire.connection, wire.fleet, "builder", PATIENT)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delete)
        with anyio.fail_after(5), pytest.RaisesGroup(ConsumerGoneError):
            async with open_one() as feed:
                await feed.receive()


async def test_a_consumer_that_never_was_ends_a_feed(wire: Any, open_one: Any) -> None:
    problem = f"the consumer {wire.ledger.stream}.{CONSUMER} is gone"
    expected = pytest.RaisesExc(ConsumerGoneError, match=problem)
    with anyio.fail_after(5), pytest.RaisesGroup(expected):
        async with open_one() as feed:
            await feed.receive()


PERMISSIONS = """
authorization: {{ users: [
  {{ user: boss, password: x }}
  {{ user: builder, password: x, permissions: {{
    publish: {{ deny: "$JS.API.CONSUMER.INFO.>" }}
  }} }}
] }}
"""


async def test_who_may_not_ask_for_its_consumer_still_learns_that_it_is_deleted(
    tmp_path: Any, open_wire: Any, open_one: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def delete(boss: Any) -> None:
        name = f"{boss.ledger.stream}.{CONSUMER}"
        with anyio.fail_after(5):
            while b'"num_waiting":0' in await boss.connection.api(f"CONSUMER.INFO.{name}"):
                await anyio.lowlevel.checkpoint()
        await boss.connection.api(f"CONSUMER.DELETE.{name}")

    monkeypatch.setattr(server_module, "CONFIGURATION", server_module.CONFIGURATION + PERMISSIONS)
    async with (
        embedded_server(tmp_path) as server,
        open_wire(f"nats://boss:x@127.0.0.1:{server.port}") as boss,
        open_wire(f"nats://builder:x@127.0.0.1:{server.port}", "builder") as builder,
        anyio.create_task_group() as tasks,
    ):
        await ensure_topology(boss.connection, boss.fleet)
        await ensure_addressee(boss.connection, boss.fleet, "builder", PATIENT)
        tasks.start_soon(delete, boss)
        with anyio.fail_after(5), pytest.RaisesGroup(ConsumerGoneError):
            async with open_one(by=builder) as feed:
                await feed.receive()


# The end.


async def test_after_its_stop_a_feed_says_so_to_all_who_wait(deliver: Any, open_one: Any) -> None:
    ended = 0

    async def wait(feed: Feed) -> None:
        nonlocal ended
        with pytest.raises(anyio.EndOfStream):
            await feed.receive()
        ended += 1

    async with open_one() as feed:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, feed)
                tasks.start_soon(wait, feed)
                await anyio.wait_all_tasks_blocked()
                await feed.stop()
        await wait(feed)
        await feed.stop()
    assert ended == 3


async def test_what_nobody_received_is_handed_back_at_once(
    deliver: Any, open_one: Any, info: Any
) -> None:
    await deliver(5)
    async with open_one(window=5) as feed:
        (kept,) = await take(feed, 1)
        with anyio.fail_after(5):
            while (await info()).num_ack_pending < 5:
                await anyio.lowlevel.checkpoint()
        await feed.stop()
        async with open_one(window=5) as other:
            others = await take(other, 4, limit=2)
        assert {it.sequence for it in others} == {1, 2, 3, 4, 5} - {kept.sequence}


@pytest.mark.parametrize("received", [0, 1, 100])
async def test_what_was_on_its_way_when_a_feed_stopped_is_handed_back_too(
    deliver: Any, open_one: Any, received: int
) -> None:
    await deliver(1000)
    async with open_one(window=256) as feed:
        await anyio.lowlevel.checkpoint()
        for it in await take(feed, received):
            await finish(feed, it)
    async with open_one(window=256) as other:
        for _ in range(1000 - received):
            (message,) = await take(other, 1, limit=10)
            await finish(other, message)


async def test_a_cancelled_feed_hands_back_too(deliver: Any, open_one: Any) -> None:
    await deliver(4)
    with anyio.CancelScope() as scope:
        async with open_one(window=4) as feed:
            await take(feed, 1)
            scope.cancel()
            await anyio.sleep_forever()
    async with open_one(window=4) as other:
        await take(other, 3, limit=2)
