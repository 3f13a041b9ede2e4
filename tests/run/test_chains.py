"""What a keeper holds of the ledger: what is open, and not what strangers write beside it."""

from functools import partial
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from batonbus import Agent, Context, Settings, TestBus
from batonbus.rules.chain import Chain, Kind, child_id
from batonbus.run import receipt_keeper
from batonbus.run.chains import Chains
from batonbus.run.core import open_operator
from batonbus.testing import run_receipt_keeper
from batonbus.wire.ledger import Draft, Ledger, Stored
from batonbus_schemas import Dispatch, Envelope, TaskResult, Then

pytestmark = pytest.mark.anyio


async def write(bus: TestBus, handoff_id: UUID, kind: Kind = "settled", *, tail: int = 0) -> int:
    """An event that counts for nothing, for there is nothing that it could follow."""
    subject = bus.client.subject(handoff_id, kind, "adhoc", "test")
    return await bus.client.ledger.append(Draft(subject=subject, payload=b"{}"), tail=tail)


async def read(bus: TestBus, start: int = 1) -> list[Stored]:
    """The ledger as it is."""
    async with open_operator(bus.server.url, fleet="default") as core:
        last = await core.ledger.last_sequence()
        found = [await core.ledger.read(it) for it in range(start, last + 1)]
    return [it for it in found if it is not None]


async def test_a_stranger_cannot_fill_a_keepers_memory(
    open_bus: Any, quick: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with open_bus(settings=quick) as bus:
        for _ in range(20):
            await write(bus, uuid4())
        async with open_operator(bus.server.url, fleet="default") as core:
            held = Chains(core.ledger, 5)
            for stored in await read(bus):
                await held.fold(stored)
            assert (len(held), held.open()) == (5, [])
        caplog.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_receipt_keeper, bus.server.url, "default", quick)
            while "receipt_keeper.started" not in caplog.text:  # noqa: ASYNC110 - a log
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
    assert "'open': 0, 'event': 'receipt_keeper.started'" in caplog.text


async def test_many_void_events_of_one_handoff_take_no_more_than_one(open_bus: Any) -> None:
    async with open_bus() as bus:
        handoff_id, tail = uuid4(), 0
        for _ in range(5):
            tail = await write(bus, handoff_id, tail=tail)
        async with open_operator(bus.server.url, fleet="default") as core:
            held = Chains(core.ledger)
            folded = [await held.fold(it) for it in await read(bus)]
    assert [it.void for it in folded] == [(it.tail,) for it in folded]
    assert len(held) == 1


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keepers that forget at once what is not open."""
    monkeypatch.setattr(receipt_keeper, "Chains", partial(Chains, strays=0))


@pytest.mark.usefixtures("forgetful")
async def test_a_handoff_behind_forgotten_void_events_is_answered_and_confirmed(
    open_bus: Any, quick: Settings, read_kinds: Any, echo: Any
) -> None:
    async with open_bus(echo(), settings=quick) as bus:
        for to, rest in (("echo", ["delivered", "accepted", "settled"]), ("nobody", None)):
            handoff_id = uuid4()
            await write(bus, handoff_id, tail=await write(bus, handoff_id))
            envelope = Envelope(id=handoff_id, sender="test", to=to, body=Dispatch(brief="x"))
            sent = await bus.send_envelope(envelope)
            receipt = await sent.receipt()
            assert receipt.state == ("overdue" if rest is None else "accepted")
            if rest is not None:
                assert (await sent.result()).text == "x"
                assert await read_kinds(bus, sent) == ["settled", "settled", "sent", *rest]


@pytest.mark.usefixtures("forgetful")
async def test_a_next_handoff_behind_forgotten_void_events_is_answered(
    open_bus: Any, quick: Settings, read_events: Any, bounce: Any
) -> None:
    first = Agent("first")

    @first.handles
    async def hand_on(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="done").then("nobody", task)

    async with open_bus(first, settings=quick) as bus:
        handoff_id = uuid4()
        await write(bus, child_id(handoff_id))
        envelope = Envelope(id=handoff_id, sender="test", to="first", body=Dispatch(brief="x"))
        await bounce(await bus.send_envelope(envelope))
        kinds = [it.event.kind for it in await read_events(bus, child_id(handoff_id))]
    assert kinds == ["settled", "delivered", "overdue", "dead"]


@pytest.mark.usefixtures("forgetful")
async def test_a_blind_event_behind_a_forgotten_end_does_not_begin_anew(
    open_bus: Any, quick: Settings, echo: Any
) -> None:
    """It says that it is the first one; the server was not asked to check that."""
    async with open_bus(echo(), settings=quick) as bus:
        sent = await bus.send("echo", "x")
        await sent.result()
        last = max(it.event.sequence for it in await read(bus))
        subject = str(bus.client.subject(sent.handoff_id, "sent", "adhoc", "echo"))
        marks = {"Batonbus": '{"tail": 0}'}
        await bus.client.connection.client.publish(subject, b"{}", headers=marks)
        while not (blind := await read(bus, last + 1)):  # noqa: ASYNC110 - nobody is told
            await anyio.sleep(0.02)
        async with open_operator(bus.server.url, fleet="default") as core:
            chain = await Chains(core.ledger).fold(blind[0])
    assert blind[0].event.tail == 0
    assert chain.void == (blind[0].event.sequence,)


async def test_void_events_of_forgotten_handoffs_cost_no_reading_of_their_chains(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Chain] = []
    read_folded = Ledger.read_folded

    async def counted(self: Ledger, chain: Chain, **more: Any) -> Chain:
        reads.append(chain)
        return await read_folded(self, chain, **more)

    async with open_bus() as bus:
        ids, tails = [uuid4() for _ in range(3)], dict[UUID, int]()
        for _ in range(4):
            for it in ids:
                tails[it] = await write(bus, it, tail=tails.get(it, 0))
        async with open_operator(bus.server.url, fleet="default") as core:
            held = Chains(core.ledger, 1)
            events = await read(bus)
            monkeypatch.setattr(Ledger, "read_folded", counted)
            folded = [await held.fold(it) for it in events]
    assert reads == []
    assert [it.void for it in folded] == [(it.event.sequence,) for it in events]
    assert held.open() == []


async def test_an_id_whose_events_were_removed_begins_anew(open_bus: Any) -> None:
    async with open_bus() as bus:
        handoff_id = uuid4()
        async with open_operator(bus.server.url, fleet="default") as core:
            held = Chains(core.ledger)
            stray = await write(bus, handoff_id)
            await held.fold(await stored(core.ledger, stray))
            await core.ledger.delete(stray)
            again = await write(bus, handoff_id, "sent")
            chain = await held.fold(await stored(core.ledger, again))
    assert (chain.stage, chain.void) == ("sent", ())
    assert held.find(handoff_id) == chain


async def stored(ledger: Ledger, sequence: int) -> Stored:
    found = await ledger.read(sequence)
    assert found is not None
    return found
