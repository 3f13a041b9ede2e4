"""Reading the ledger in order: every event once, whatever breaks meanwhile."""

import os
import signal
from typing import Any
from uuid import uuid4

import anyio
import msgspec
import pytest
from nats.aio.msg import Msg

from batonbus.wire import reader as reader_module
from batonbus.wire.feed import Feed, Received
from batonbus.wire.reader import FORGET_AFTER, read_from
from batonbus.wire.subjects import chain_filter, kind_filter
from batonbus.wire.topology import ensure_topology

pytestmark = pytest.mark.anyio


async def fill(wire: Any, count: int) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            subject = str(wire.draft().subject)
            tasks.start_soon(wire.publisher.publish, subject, b"x" * 10, {"Batonbus": '{"tail":0}'})


async def read_on(feed: Any, upto: int, *, limit: float = 10.0) -> list[int]:
    """The sequences that come, up to this one."""
    sequences: list[int] = []
    with anyio.fail_after(limit):
        while not sequences or sequences[-1] < upto:
            sequences.append((await feed.receive()).sequence)
            await feed.release()
    return sequences


async def test_every_event_is_read_in_order_and_the_head_is_known(wire: Any) -> None:
    await fill(wire, 1500)  # more than one request
    async with read_from(wire.connection, wire.fleet) as feed:
        assert await read_on(feed, 1499) == list(range(1, 1500))
        with anyio.fail_after(5):
            last = await feed.receive()
    assert (last.sequence, last.pending) == (1500, 0)


async def test_headers_alone_are_read_unless_the_rest_is_asked_for(wire: Any) -> None:
    await fill(wire, 1)
    for headers_only, data in ((True, b""), (False, b"x" * 10)):
        async with (
            read_from(wire.connection, wire.fleet, headers_only=headers_only) as feed,
            anyio.create_task_group(),
        ):
            with anyio.fail_after(5):
                received = await feed.receive()
        assert received.data == data
        assert received.headers["Batonbus"] == '{"tail":0}'


async def test_what_is_stored_later_comes_too(wire: Any) -> None:
    async with read_from(wire.connection, wire.fleet) as feed:
        for number in (1, 2, 3):
            await fill(wire, 1)
            assert await read_on(feed, number) == [number]


async def test_reading_can_begin_in_the_middle(wire: Any) -> None:
    await fill(wire, 10)
    async with read_from(wire.connection, wire.fleet, 8) as feed:
        assert await read_on(feed, 10) == [8, 9, 10]


async def test_only_what_is_under_a_subject_is_read(wire: Any) -> None:
    await fill(wire, 20)
    mine = uuid4()
    first = await wire.ledger.append(wire.draft(handoff_id=mine), tail=0)
    await fill(wire, 20)
    second = await wire.ledger.append(
        wire.draft("cancelled", handoff_id=mine, actor="operator"), tail=first
    )
    await fill(wire, 1)
    for subject, start, sequences in (
        (chain_filter(wire.fleet, mine), 1, [first, second]),
        (chain_filter(wire.fleet, mine), first + 1, [second]),
        (kind_filter(wire.fleet, "cancelled"), 1, [second]),
        (kind_filter(wire.fleet, "dead"), 1, []),
        (kind_filter(wire.fleet, "cancelled"), second + 1, []),
    ):
        heard: list[Any] = []
        with anyio.fail_after(5):
            await reader_module.read_to_head(wire.ledger, heard.append, start, subject=subject)
        assert [it.event.sequence for it in heard] == sequences


async def test_reading_can_begin_behind_the_end(wire: Any) -> None:
    await fill(wire, 2)
    async with read_from(wire.connection, wire.fleet, 4) as feed:
        await fill(wire, 2)
        assert await read_on(feed, 4) == [4]


async def test_no_event_is_missed_or_read_twice_when_connections_break(
    wire: Any, proxy: Any, open_wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "BATCH", 50)
    await fill(wire, 3000)
    sequences: list[int] = []
    async with (
        open_wire(proxy.url, "reader") as weak,
        read_from(weak.connection, wire.fleet) as feed,
    ):
        for upto in (100, 900, 1700):
            sequences += await read_on(feed, upto)
            # What is asked for now is lost on its way, and there is no ack that would tell.
            proxy.lose_answers = True
            with anyio.move_on_after(0.2):
                while True:
                    sequences += await read_on(feed, sequences[-1] + 1)
            await proxy.cut()
        sequences += await read_on(feed, 3000)
        assert weak.connection.session == 3
    assert sequences == list(range(1, 3001))


async def test_an_event_that_is_lost_on_its_way_is_read_before_those_behind_it(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a reconnect: the consumer sends on, behind what it sent to nobody."""
    on_message, lost = Feed._on_message, False

    async def lose_the_third(self: Feed, inbox: str, message: Msg) -> None:
        nonlocal lost
        if not lost and Received(wire.connection, message).sequence == 3:
            lost = True
        else:
            await on_message(self, inbox, message)

    monkeypatch.setattr(Feed, "_on_message", lose_the_third)
    await fill(wire, 10)
    async with read_from(wire.connection, wire.fleet) as feed:
        assert await read_on(feed, 10) == list(range(1, 11))
    assert lost


@pytest.mark.faults
async def test_no_event_is_missed_or_read_twice_when_the_server_is_killed(
    fragile_server: Any, open_wire: Any
) -> None:
    async with open_wire(fragile_server.url) as wire:
        await ensure_topology(wire.connection, wire.fleet)
        await fill(wire, 500)
        async with read_from(wire.connection, wire.fleet) as feed:
            assert await read_on(feed, 300) == list(range(1, 301))
            os.kill(fragile_server.pid, signal.SIGKILL)
            assert await read_on(feed, 500, limit=15) == list(range(301, 501))
            await wire.ledger.append(wire.draft(), tail=0)
            assert await read_on(feed, 501) == [501]


async def test_a_reader_whose_consumer_is_deleted_goes_on_with_another(wire: Any) -> None:
    await fill(wire, 5)
    async with read_from(wire.connection, wire.fleet) as feed:
        await read_on(feed, 5)
        (consumer,) = await readers(wire)
        await wire.connection.api(f"CONSUMER.DELETE.{wire.ledger.stream}.{consumer['name']}")
        await fill(wire, 1)
        assert await read_on(feed, 6) == [6]


async def test_the_server_forgets_a_reader_that_is_gone(wire: Any) -> None:
    async with read_from(wire.connection, wire.fleet) as feed:
        await fill(wire, 1)
        await read_on(feed, 1)
        (consumer,) = await readers(wire)
    assert consumer["config"]["inactive_threshold"] == FORGET_AFTER * 1_000_000_000
    assert "durable_name" not in consumer["config"]


async def readers(wire: Any) -> list[Any]:
    data = await wire.connection.api(f"CONSUMER.LIST.{wire.ledger.stream}")
    found = msgspec.json.decode(data)["consumers"]
    return [it for it in found if it["name"].startswith("reader-")]


async def test_a_reader_finds_the_head_though_the_rest_is_purged_meanwhile(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "BATCH", 1)
    monkeypatch.setattr(reader_module, "SILENCE", 0.05)
    await fill(wire, 500)
    heard: list[int] = []

    def hear(stored: Any) -> None:
        heard.append(stored.event.sequence)
        if len(heard) == 1:
            tasks.start_soon(wire.connection.api, f"STREAM.PURGE.{wire.ledger.stream}")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await reader_module.read_to_head(wire.ledger, hear)
    assert 1 <= len(heard) < 500
    assert await wire.ledger.is_head(0)
    assert await wire.ledger.last_sequence() == 500
