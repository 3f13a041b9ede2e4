"""The ledger: one winner for each place in a chain, and one truth about what stands there."""

from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from batonbus.rules.chain import WINDOW_MANAGER, Chain, Event, fold
from batonbus.rules.errors import InvalidTokenError, MessageTooLargeError
from batonbus.wire.ledger import MARKS, REASON_LIMIT, Draft, Stored, to_stored
from batonbus.wire.publisher import LostRaceError
from batonbus.wire.subjects import Subject, chain_filter, kind_filter
from batonbus.wire.topology import ensure_topology

pytestmark = pytest.mark.anyio

ID = UUID("6d9c9b52-8a0d-4f6c-9d7e-0f6f3b1f2a11")


def stored(marks: str | None, *, rest: str = "sent.adhoc.asker.builder") -> Stored:
    headers = {} if marks is None else {MARKS: marks}
    found = to_stored(f"fleet.handoff.{ID}.{rest}", 9, 5.0, headers, b"{}")
    assert found is not None
    return found


async def test_an_event_is_read_back_as_it_was_written(wire: Any) -> None:
    draft = wire.draft(
        accepted=3,
        attempt=2,
        lease=4,
        waiter="asker",
        addressee="builder",
        reason="held: busy",
        child_to="tester",
        trace={"traceparent": "00-abc"},
    )
    sequence = await wire.ledger.append(draft, tail=0)
    found = await wire.ledger.read(sequence)
    assert (found.subject, found.payload) == (draft.subject, b"{}")
    assert found.headers["traceparent"] == "00-abc"
    assert found.event == Event(
        sequence=sequence,
        kind="sent",
        actor="asker",
        to="builder",
        work="adhoc",
        tail=0,
        at=found.event.at,
        accepted=3,
        attempt=2,
        lease=4,
        waiter="asker",
        addressee="builder",
        reason="held: busy",
        child_to="tester",
    )
    assert abs(found.event.at - wire.connection.server_time()) < 60


async def test_of_20_racing_writers_one_wins(server: Any, wire: Any, open_wire: Any) -> None:
    won: list[int] = []
    lost: list[LostRaceError] = []

    async def write(ledger: Any, draft: Draft) -> None:
        try:
            won.append(await ledger.append(draft, tail=0))
        except LostRaceError as error:
            lost.append(error)

    async with open_wire(server.url, "rival") as rival:
        for _ in range(10):
            handoff_id = uuid4()
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    draft = wire.draft(handoff_id=handoff_id, actor=f"writer-{number}")
                    tasks.start_soon(write, (wire, rival)[number % 2].ledger, draft)
            assert len(await wire.ledger.read_chain(handoff_id)) == 1
    assert (len(won), len(lost)) == (10, 190)


async def test_each_step_must_have_seen_the_one_before_whatever_its_kind(wire: Any) -> None:
    first = await wire.ledger.append(wire.draft(handoff_id=ID), tail=0)
    delivered = wire.draft("delivered", handoff_id=ID, actor="window-manager")
    with pytest.raises(LostRaceError):
        await wire.ledger.append(delivered, tail=0)
    with pytest.raises(LostRaceError):
        await wire.ledger.append(delivered, tail=first + 1)
    second = await wire.ledger.append(delivered, tail=first)
    assert [it.event.sequence for it in await wire.ledger.read_chain(ID)] == [first, second]


async def test_handoffs_do_not_race_with_one_another(wire: Any) -> None:
    for _ in range(3):
        await wire.ledger.append(wire.draft(), tail=0)


async def test_a_lost_answer_is_settled_by_reading_the_chain(
    wire: Any, proxy: Any, open_wire: Any, until: Any
) -> None:
    draft, stored_at = wire.draft(), []

    async def append(ledger: Any) -> None:
        stored_at.append(await ledger.append(draft, tail=0))

    async with (
        open_wire(proxy.url, "asker", timeout=0.2) as weak,
        anyio.create_task_group() as tasks,
    ):
        proxy.lose_answers = True
        tasks.start_soon(append, weak.ledger)
        with anyio.fail_after(5):
            while await wire.ledger.last_sequence() == 0:
                await anyio.lowlevel.checkpoint()
        assert stored_at == []
        await proxy.cut()
        await until(lambda: stored_at != [], limit=10)
    assert stored_at == [1]
    assert len(await wire.ledger.read_chain(draft.subject.handoff_id)) == 1


@pytest.mark.parametrize("other", [{"actor": "rival"}, {"kind": "cancelled"}])
async def test_anothers_event_is_not_taken_for_our_own_lost_one(
    wire: Any, proxy: Any, open_wire: Any, other: dict[str, Any], until: Any
) -> None:
    lost: list[LostRaceError] = []

    async def append(ledger: Any) -> None:
        try:
            await ledger.append(wire.draft(handoff_id=ID), tail=0)
        except LostRaceError as error:
            lost.append(error)

    async with (
        open_wire(proxy.url, "asker", timeout=0.1) as weak,
        anyio.create_task_group() as tasks,
    ):
        proxy.lose_all = True
        tasks.start_soon(append, weak.ledger)
        await wire.ledger.append(wire.draft(**{"handoff_id": ID, **other}), tail=0)
        await proxy.cut()
        await until(lambda: lost != [], limit=10)


async def test_without_a_lost_answer_even_an_equal_event_is_a_lost_race(wire: Any) -> None:
    draft = wire.draft()
    await wire.ledger.append(draft, tail=0)
    with pytest.raises(LostRaceError):
        await wire.ledger.append(draft, tail=0)


async def test_an_event_that_is_too_large_is_not_written(wire: Any) -> None:
    limit = wire.connection.client.max_payload
    draft = Draft(subject=wire.draft().subject, payload=b"x" * limit)
    with pytest.raises(MessageTooLargeError):
        await wire.ledger.append(draft, tail=0)
    assert await wire.ledger.last_sequence() == 0


@pytest.mark.parametrize("field", ["waiter", "addressee", "child_to"])
async def test_a_name_that_its_readers_would_not_take_is_not_written(wire: Any, field: str) -> None:
    with pytest.raises(InvalidTokenError):
        await wire.ledger.append(wire.draft(**{field: "code reviewer"}), tail=0)
    assert await wire.ledger.last_sequence() == 0


# Reading.


async def test_what_is_not_there_reads_as_nothing(wire: Any) -> None:
    assert await wire.ledger.read(1) is None
    assert await wire.ledger.next_of_chain(ID, after=0) is None
    assert await wire.ledger.read_chain(ID) == []
    assert await wire.ledger.read_folded(Chain(id=ID)) == Chain(id=ID)


async def test_a_chain_is_read_and_folded_to_the_place_that_is_asked_for(wire: Any) -> None:
    tail = 0
    places = []
    for kind, actor in (
        ("sent", "asker"),
        ("delivered", "window-manager"),
        ("held", "receipt-keeper"),
    ):
        await wire.ledger.append(wire.draft(), tail=0)  # others between them
        draft = wire.draft(kind, handoff_id=ID, actor=actor, reason=kind)
        tail = await wire.ledger.append(draft, tail=tail)
        places.append(tail)
    folded = await wire.ledger.read_folded(Chain(id=ID))
    assert (folded.stage, folded.tail, folded.void) == ("held", places[2], ())
    assert (await wire.ledger.read_folded(Chain(id=ID), upto=places[1])).stage == "delivered"
    assert (await wire.ledger.read_folded(Chain(id=ID), upto=places[2] - 1)).stage == "delivered"
    assert (await wire.ledger.read_folded(Chain(id=ID), upto=0)).stage == "none"
    later = await wire.ledger.read_chain(ID, after=places[0])
    assert [it.event.kind for it in later] == ["delivered", "held"]


async def test_the_handoffs_of_a_work_that_were_delivered_are_counted_once_each(wire: Any) -> None:
    """A stranger's `delivered` is none."""

    async def store(handoff_id: UUID, tail: int, kind: str, work: str, actor: str) -> int:
        subject = Subject(wire.fleet, handoff_id, kind, work, actor, "builder")  # type: ignore[arg-type]
        return await wire.ledger.append(Draft(subject=subject, payload=b"{}"), tail=tail)

    assert await wire.ledger.delivered_of("big") == set()
    one, two, other = uuid4(), uuid4(), uuid4()
    tail = await store(one, 0, "sent", "big", "asker")
    tail = await store(one, tail, "delivered", "big", WINDOW_MANAGER)
    await store(one, tail, "delivered", "big", WINDOW_MANAGER)
    await store(two, 0, "delivered", "big", WINDOW_MANAGER)
    await store(other, 0, "delivered", "small", WINDOW_MANAGER)
    await store(uuid4(), 0, "delivered", "big", "asker")
    await store(uuid4(), 0, "sent", "big", "asker")
    assert await wire.ledger.delivered_of("big") == {one, two}


async def test_who_listens_hears_what_is_stored_from_then_on(wire: Any, until: Any) -> None:
    heard: list[Stored] = []
    await wire.ledger.append(wire.draft(), tail=0)
    await wire.ledger.listen(kind_filter(wire.fleet, "sent"), heard.append)
    await wire.connection.api("INFO")
    await wire.ledger.append(wire.draft("held", actor="receipt-keeper"), tail=0)
    draft = wire.draft(waiter="asker")
    await wire.ledger.append(draft, tail=0)
    await until(lambda: heard != [])
    assert [(it.subject, it.event.waiter) for it in heard] == [(draft.subject, "asker")]


async def test_a_chain_is_only_known_to_begin_with_an_event_that_the_server_compared(
    wire: Any, rogue: Any
) -> None:
    honest = wire.draft()
    await wire.ledger.append(honest, tail=0)
    expected = b"Nats-Expected-Last-Subject-Sequence"
    behind = f"-Subject: {chain_filter(wire.fleet, ID)}\r\n".encode()
    forged = [
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0\r\n" + expected + b" : 0\r\n" + expected + behind + b"\r\n",
        b"NATS/1.0\r\n"
        + expected
        + b": 2\r\n"
        + expected
        + b": 0\r\n"
        + expected
        + behind
        + b"\r\n",
    ]
    subject = f"{wire.fleet}.handoff.{ID}.sent.adhoc.rogue.builder".encode()
    for headers in forged:
        await rogue(subject, headers=headers)
    first, *others = [
        await wire.ledger.read(n) for n in range(1, 1 + await wire.ledger.last_sequence())
    ]
    assert wire.ledger.is_first(first)
    assert len(others) >= 2
    assert not any(wire.ledger.is_first(it) for it in others)


# What strangers write.


@pytest.mark.parametrize(
    "rest",
    [
        "sent",
        "sent.adhoc.rogue.builder.more",
        "done.adhoc.rogue.builder",
        "sent.\x0b.rogue.builder",
    ],
)
async def test_what_stands_in_a_chain_and_is_no_event_moves_its_tail_and_stops_nobody(
    wire: Any, rogue: Any, rest: str
) -> None:
    await wire.ledger.append(wire.draft(handoff_id=ID), tail=0)
    await rogue(f"{wire.fleet}.handoff.{ID}.{rest}".encode())
    delivered = wire.draft("delivered", handoff_id=ID, actor="window-manager")
    with pytest.raises(LostRaceError):
        await wire.ledger.append(delivered, tail=1)
    chain = await wire.ledger.read_folded(Chain(id=ID))
    assert (chain.stage, chain.tail, chain.void) == ("sent", 2, (2,))
    await wire.ledger.append(delivered, tail=chain.tail)
    assert (await wire.ledger.read_folded(chain)).stage == "delivered"
    kinds = [it.event.kind for it in await wire.ledger.read_chain(ID)]
    assert kinds == ["sent", "unknown", "delivered"]


async def test_a_reason_cannot_add_a_header_and_is_kept_to_its_limit(wire: Any) -> None:
    reason = "x\r\nNats-Msg-Id: forged\r\n" + "é" * 500
    sequence = await wire.ledger.append(wire.draft(reason=reason), tail=0)
    found = await wire.ledger.read(sequence)
    assert "Nats-Msg-Id" not in found.headers
    assert found.event.reason == reason[:REASON_LIMIT]


@pytest.mark.parametrize(
    "marks",
    [
        None,
        "",
        "7",
        "{}",
        "not json",
        '{"tail":-1}',
        '{"tail":"0"}',
        '{"tail":1.5}',
        '{"tail":0}, {"tail":0}',
        '{"tail":0,"attempt":' + "9" * 5000 + "}",
        '{"tail":0,"lease":-1}',
        '{"tail":0,"waiter":"a.b"}',
        '{"tail":0,"addressee":"a b"}',
        '{"tail":0,"child_to":">"}',
        '{"tail":0,"more":' + "[" * 50_000 + "}",
    ],
)
def test_an_event_without_valid_marks_is_void(marks: str | None) -> None:
    found = stored(marks)
    assert found.event.tail == -1
    assert fold(Chain(id=ID), [found.event]).void == (9,)


def test_marks_that_a_later_version_adds_are_passed_over() -> None:
    event = stored('{"tail":0,"waiter":"asker","colour":"red"}').event
    assert (event.tail, event.waiter) == (0, "asker")


def test_a_message_of_no_chain_is_no_event() -> None:
    assert to_stored("fleet.handoff.x.sent.a.b.c", 1, 0.0, {}, b"") is None


async def test_two_readers_of_one_ledger_fold_the_same(wire: Any, rogue: Any) -> None:
    await ensure_topology(wire.connection, wire.fleet)
    await wire.ledger.append(wire.draft(handoff_id=ID), tail=0)
    subject = f"{wire.fleet}.handoff.{ID}.cancelled.adhoc.asker._".encode()
    for marks in (b'Batonbus : {"tail":1}', b'Batonbus: {"tail":9}\r\nBatonbus: {"tail":1}'):
        await rogue(subject, headers=b"NATS/1.0\r\n" + marks + b"\r\n\r\n")
    chain = await wire.ledger.read_folded(Chain(id=ID))
    assert (chain.stage, chain.void) == ("sent", (2, 3))


async def test_a_chain_that_is_deleted_opens_its_id_again(wire: Any) -> None:
    gone, stays = wire.draft(), wire.draft()
    first = await wire.ledger.append(gone, tail=0)
    await wire.ledger.append(stays, tail=0)
    for _ in range(2):  # the second time there is nothing left to delete
        await wire.ledger.delete(first)
    assert await wire.ledger.read_chain(gone.subject.handoff_id) == []
    assert len(await wire.ledger.read_chain(stays.subject.handoff_id)) == 1
    assert await wire.ledger.append(gone, tail=0) == first + 2


async def test_what_is_left_of_a_chain_without_its_beginning_is_void(wire: Any) -> None:
    """So nothing mistakes it for a handoff when a deletion is interrupted."""
    handoff_id = uuid4()
    tail = await wire.ledger.append(wire.draft(handoff_id=handoff_id), tail=0)
    delivered = wire.draft("delivered", handoff_id=handoff_id, actor="window-manager")
    await wire.ledger.append(delivered, tail=tail)
    await wire.ledger.delete(tail)
    chain = await wire.ledger.read_folded(Chain(id=handoff_id))
    assert (chain.stage, len(chain.void)) == ("none", 1)
    with pytest.raises(LostRaceError):
        await wire.ledger.append(wire.draft(handoff_id=handoff_id), tail=0)
