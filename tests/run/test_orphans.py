"""Cancelling reaches what was asked for inside the handler, and nothing else."""

from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from batonbus import Agent, Bounced, Context, Sent, Settings, TestBus
from batonbus.rules.chain import OPERATOR, RECEIPT_KEEPER, WINDOW_MANAGER, Chain, Event, Kind
from batonbus.run.core import open_core, open_operator
from batonbus.run.holding import Waiting
from batonbus.run.window_manager import WindowManager
from batonbus.testing import FAST, run_receipt_keeper
from batonbus.wire.ledger import Draft
from batonbus.wire.subjects import Subject
from batonbus_schemas import Dispatch, TaskResult, Then

pytestmark = pytest.mark.anyio


class Worker:
    """An agent that works until it may end, and tells how its handler ended."""

    def __init__(self, role: str = "worker", *, slots: int = 2) -> None:
        self.agent = Agent(role, slots=slots)
        self.may_end, self.began, self.stopped = anyio.Event(), anyio.Event(), anyio.Event()
        self.handoffs: list[UUID] = []
        self.agent.handles(self._work)

    async def _work(self, task: Dispatch, ctx: Context) -> TaskResult:
        self.handoffs.append(ctx.envelope.id)
        self.began.set()
        try:
            await self.may_end.wait()
        except anyio.get_cancelled_exc_class():
            self.stopped.set()
            raise
        return TaskResult.passed(what=task.brief)


def asks(role: str, *others: str) -> Agent:
    """An agent that asks all of these, and waits for their results."""
    agent = Agent(role)

    @agent.handles
    async def ask(task: Dispatch, ctx: Context) -> TaskResult:
        sent = [await ctx.send(it, task) for it in others]
        return [await it.result() for it in sent][-1]

    return agent


async def ended(
    bus: TestBus, handoff_id: UUID, stage: str = "cancelled", *, fleet: str = "default"
) -> Event:
    """The last event of a handoff, once it is of that kind."""
    async with open_operator(bus.server.url, fleet=fleet) as core:
        while True:
            events = await core.ledger.read_chain(handoff_id)
            if events and events[-1].event.kind == stage:
                return events[-1].event
            await anyio.sleep(0.02)


async def test_who_cancels_a_handoff_stops_whoever_works_for_it_at_any_depth(
    open_bus: Any,
) -> None:
    worker = Worker()
    async with open_bus(asks("first", "second"), asks("second", "worker"), worker.agent) as bus:
        sent = await bus.send("first", "x")
        await worker.began.wait()
        assert await sent.cancel("not wanted any more")
        with pytest.raises(Bounced, match="cancelled by test: not wanted any more"):
            await sent.result()
        await worker.stopped.wait()
        event = await ended(bus, worker.handoffs[-1])
    assert event.actor == RECEIPT_KEEPER
    assert event.reason.endswith(", which asked for it, was cancelled")
    assert str(sent.handoff_id) not in event.reason  # its own asker is the second


async def test_what_nobody_has_taken_yet_ends_as_well_and_each_is_told_by_whom(
    open_bus: Any,
) -> None:
    asked: list[Sent] = []
    asker, all_asked = Agent("asker"), anyio.Event()

    @asker.handles
    async def ask(task: Dispatch, ctx: Context) -> TaskResult:
        asked.extend([await ctx.send("nobody", "x", key=key) for key in ("1", "2", "3")])
        all_asked.set()
        return await asked[0].result()

    async with open_bus(asker) as bus:
        sent = await bus.send("asker", "x")
        await all_asked.wait()
        await sent.cancel("no")
        for it in asked:
            event = await ended(bus, it.handoff_id)
            assert event.reason == (f"handoff {sent.handoff_id}, which asked for it, was cancelled")


async def test_what_an_asked_one_is_just_handing_on_to_never_starts(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, handed_on, cancelled = Agent("first"), anyio.Event(), anyio.Event()
    worker, arrived = Worker(), list[UUID]()
    deliver = WindowManager._deliver  # pyright: ignore[reportPrivateUsage]

    @first.handles
    async def hand_on(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="my part").then("worker", "yours")

    async def late(manager: WindowManager, waiting: Waiting, chain: Chain) -> bool:
        if waiting.arrival.addressee == "worker":
            arrived.append(waiting.arrival.handoff_id)
            handed_on.set()
            await cancelled.wait()
        return await deliver(manager, waiting, chain)

    monkeypatch.setattr(WindowManager, "_deliver", late)
    async with open_bus(asks("asker", "first"), first, worker.agent) as bus:
        sent = await bus.send("asker", "x")
        await handed_on.wait()
        await sent.cancel("no")
        await ended(bus, arrived[0])
        cancelled.set()
        # What comes later is worked on.
        worker.may_end.set()
        await (await bus.send("first", "y")).result()
    assert worker.handoffs == arrived[1:]


async def test_a_handoff_that_is_dead_leaves_nobody_working_for_it(open_bus: Any) -> None:
    worker, asker = Worker(), Agent("asker")

    @asker.handles
    async def ask(task: Dispatch, ctx: Context) -> TaskResult:
        await ctx.send("worker", "x")
        await worker.began.wait()
        raise ValueError("it cannot be done")

    async with open_bus(asker, worker.agent) as bus:
        sent = await bus.send("asker", "x")
        with pytest.raises(Bounced, match="failed 3 of 3 attempts"):
            await sent.result()
        await worker.stopped.wait()
        event = await ended(bus, worker.handoffs[-1])
    assert event.reason == f"handoff {sent.handoff_id}, which asked for it, is dead"


async def test_what_a_settled_handoff_asked_for_goes_on(open_bus: Any, quick: Settings) -> None:
    worker, asker = Worker(), Agent("asker")

    @asker.handles
    async def ask(task: Dispatch, ctx: Context) -> TaskResult:
        await ctx.send("worker", "for whoever needs it later")
        await worker.began.wait()
        return TaskResult.passed(what="answered")

    async with open_bus(asker, asks("other", "worker"), worker.agent, settings=quick) as bus:
        await (await bus.send("asker", "x")).result()
        (kept,) = worker.handoffs
        # Another one that is cancelled is ended by the keeper; the kept one is not.
        worker.began = anyio.Event()
        sent = await bus.send("other", "y")
        await worker.began.wait()
        await sent.cancel("no")
        await ended(bus, worker.handoffs[-1])
        worker.may_end.set()
        await ended(bus, kept, "settled")


async def test_a_keeper_that_starts_later_ends_what_an_owner_that_is_gone_has_left(
    open_bus: Any,
) -> None:
    """Nobody is there: neither the owner, nor a keeper when the handoff was cancelled."""
    async with (
        open_bus() as bus,
        # A fleet in which nobody runs yet.
        open_core(bus.server.url, OPERATOR, fleet="later", settings=FAST) as core,
    ):

        async def write(handoff_id: UUID, kind: Kind, actor: str, tail: int, **marks: Any) -> int:
            subject = Subject("later", handoff_id, kind, "WORK-01", actor, "worker")
            draft = Draft(subject=subject, payload=b"{}", waiter="asker", **marks)
            return await core.ledger.append(draft, tail=tail)

        asker, asked = uuid4(), uuid4()
        tail = await write(asker, "sent", "asker", 0)
        tail = await write(asker, "delivered", WINDOW_MANAGER, tail)
        accepted = await write(asker, "accepted", "gone", tail, attempt=1, lease=1)
        await write(asked, "sent", "gone", 0, accepted=accepted)
        await write(asker, "cancelled", "asker", accepted)
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(run_receipt_keeper, bus.server.url, "later", FAST)
            event = await ended(bus, asked, fleet="later")
            tasks.cancel_scope.cancel()
    assert event.reason == f"handoff {asker}, which asked for it, was cancelled"
