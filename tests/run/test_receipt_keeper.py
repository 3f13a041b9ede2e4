"""Nobody waits in the dark: what the bus answers where no agent does, and what it gives up on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import anyio
import msgspec
import pytest

from batonbus import (
    Agent,
    Bounced,
    BusUnavailableError,
    Context,
    NoAnswerError,
    Settings,
    TestBus,
)
from batonbus.rules.chain import RECEIPT_KEEPER
from batonbus.run.client import open_client
from batonbus.run.core import open_operator
from batonbus.testing import run_receipt_keeper
from batonbus.wire.ledger import Draft
from batonbus.wire.registry import Registry
from batonbus_schemas import (
    AgentCard,
    Dispatch,
    Presence,
    Question,
    Receipt,
    TaskResult,
    Then,
    decode,
    encode,
)

pytestmark = pytest.mark.anyio


class Blocker:
    """An agent that works on each handoff until it may end."""

    def __init__(self, role: str, *, slots: int = 1) -> None:
        self.agent = Agent(role, id=f"{role}-1", slots=slots)
        self.may_end = anyio.Event()
        self.agent.handles(self._work)

    async def _work(self, task: Dispatch, ctx: Context) -> TaskResult:
        await self.may_end.wait()
        return TaskResult.passed(what=task.brief)


class Seats:
    """Agents of a role as the registry knows them, without a process that would take anything."""

    def __init__(self, *presences: Presence) -> None:
        self.taken = presences

    @asynccontextmanager
    async def filled(self, bus: TestBus, beat: float) -> AsyncGenerator[None]:
        async def stay() -> None:
            async with open_operator(bus.server.url, fleet="default") as core:
                while True:
                    for it in self.taken:
                        await core.registry.put(it)
                    await anyio.sleep(beat)  # a heartbeat

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stay)
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
def steady(quick: Settings) -> Settings:
    """A busy machine may miss some beats of a seat, and nobody is gone."""
    return msgspec.structs.replace(quick, missed_beats=6, receipt_timeout=1.4)


def seat(number: int, *working: int, closed: str = "") -> Presence:
    card = AgentCard(id=f"builder-{number}", role="builder")
    return Presence(card=card, working=working, closed=closed)


async def test_nobody_listening_is_overdue_in_time(open_bus: Any, quick: Settings) -> None:
    async with open_bus(settings=quick) as bus:
        receipt = await (await bus.send("nobody", "x")).receipt()
    assert (receipt.state, receipt.by) == ("overdue", RECEIPT_KEEPER)
    assert receipt.reason == "no agent is listening as nobody"
    assert receipt.listening == ()
    assert receipt.waited_s is not None
    assert quick.receipt_timeout <= receipt.waited_s < quick.receipt_timeout + 1


async def test_right_after_its_start_a_keeper_does_not_say_who_is_there(
    open_bus: Any, quick: Settings
) -> None:
    """After an outage the registry is empty though all agents live."""
    early = msgspec.structs.replace(quick, receipt_timeout=0.2, heartbeat=1.0)
    async with open_bus(settings=early) as bus:
        receipt = await (await bus.send("nobody", "x")).receipt()
    assert receipt.state == "overdue"
    assert "who is listening is not known yet" in receipt.reason


async def test_a_handoff_to_a_busy_agent_is_held_and_then_accepted(
    open_bus: Any, quick: Settings, read_kinds: Any
) -> None:
    blocker = Blocker("busy")
    async with open_bus(blocker.agent, settings=quick) as bus:
        first = await bus.send("busy", "first")
        await first.receipt()
        second = await bus.send("busy", "second")
        receipt = await second.receipt()
        assert (receipt.state, receipt.reason) == ("held", "busy")
        assert receipt.listening == ("busy-1",)
        blocker.may_end.set()
        assert (await second.result()).summary == "second"
        assert await read_kinds(bus, second) == [
            "sent",
            "delivered",
            "held",
            "accepted",
            "settled",
        ]
        assert (await second.receipt()) == receipt


async def test_an_overdue_handoff_is_done_when_somebody_comes_late(
    open_bus: Any, quick: Settings, read_kinds: Any, echo: Any
) -> None:
    async with open_bus(settings=quick) as bus, anyio.create_task_group() as tasks:
        sent = await bus.send("echo", "x")
        assert (await sent.receipt()).state == "overdue"
        tasks.start_soon(bus.run, echo())
        assert (await sent.result()).summary == "x"
        assert await read_kinds(bus, sent) == [
            "sent",
            "delivered",
            "overdue",
            "accepted",
            "settled",
        ]
        tasks.cancel_scope.cancel()


async def test_a_handoff_that_nobody_takes_is_given_up_and_bounces(
    open_bus: Any, quick: Settings, bounce: Any, read_kinds: Any
) -> None:
    async with open_bus(settings=quick) as bus:
        sent = await bus.send("nobody", "x")
        error = await bounce(sent)
        assert await read_kinds(bus, sent) == ["sent", "delivered", "overdue", "dead"]
    assert (error.receipt.state, error.receipt.by) == ("dead", RECEIPT_KEEPER)
    assert "overdue for 1 s, nobody took it" in str(error)


async def test_a_held_handoff_waits_for_its_busy_agent_however_long(
    open_bus: Any, quick: Settings
) -> None:
    blocker = Blocker("busy")
    async with open_bus(blocker.agent, settings=quick) as bus:
        await (await bus.send("busy", "first")).receipt()
        second = await bus.send("busy", "second")
        assert (await second.receipt()).state == "held"
        with anyio.move_on_after(2 * quick.give_up_after):
            await second.result()
        blocker.may_end.set()
        assert (await second.result()).status == "PASS"


async def test_each_change_of_the_reason_is_told_once_however_many_keepers_run(
    open_bus: Any, steady: Settings, bounce: Any, read_events: Any
) -> None:
    """Closed, closed and busy, busy, gone, given up: whoever waits hears of each."""
    seats = Seats()

    async def more_keepers(bus: TestBus) -> None:
        async with anyio.create_task_group() as keepers:
            for _ in range(2):
                keepers.start_soon(run_receipt_keeper, bus.server.url, "default", steady)

    async with (
        open_bus(settings=steady) as bus,
        seats.filled(bus, steady.heartbeat),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(more_keepers, bus)
        sent = await bus.send("builder", "x")

        async def hear(state: str, reason: str) -> None:
            line = sent._line
            while line.last is None or (line.last.state, line.last.reason) != (state, reason):
                await line.wait_change()

        # What the window manager sees closed it holds itself.
        while len(await read_events(bus, sent.handoff_id)) < 2:
            pass
        seats.taken = (seat(1, closed="context usage"), seat(2, closed="context usage"))
        await hear("held", "all 2 agents are closed: context usage")
        assert (await sent.receipt()).listening == ("builder-1", "builder-2")
        seats.taken = (seat(1, 7), seat(2, closed="context usage"))
        await hear("held", "its agents are busy or closed: context usage")
        seats.taken = (seat(1, 7), seat(2, 8))
        await hear("held", "busy")
        seats.taken = ()
        assert (await bounce(sent)).receipt.state == "dead"
        stored = await read_events(bus, sent.handoff_id)
        tasks.cancel_scope.cancel()
    assert [it.event.kind for it in stored] == [
        *("sent", "delivered", "held", "held", "held", "overdue", "dead")
    ]
    *_, overdue, dead = [decode(it.payload, Receipt).reason for it in stored[2:]]
    assert overdue.startswith("no agent is listening as builder any more: its 2 agents were until")
    assert dead.startswith("overdue for ")
    assert " s, nobody took it: no agent is listening as builder" in dead


async def test_an_overdue_handoff_is_held_while_the_agents_that_came_are_busy(
    open_bus: Any, steady: Settings, read_kinds: Any
) -> None:
    """It is not given up: they will come to it."""
    seats = Seats()
    async with open_bus(settings=steady) as bus, seats.filled(bus, steady.heartbeat):
        sent = await bus.send("builder", "x")
        assert (await sent.receipt()).state == "overdue"
        seats.taken = (seat(1, 7),)
        with anyio.move_on_after(3 * steady.give_up_after):
            await sent.result()
        assert await read_kinds(bus, sent) == ["sent", "delivered", "overdue", "held"]
        assert await sent.cancel("enough")


async def test_a_question_waits_for_a_person_until_its_deadline(
    open_bus: Any, quick: Settings, bounce: Any, read_kinds: Any
) -> None:
    async with open_bus(settings=quick) as bus:
        deadline = datetime.now(UTC) + timedelta(seconds=1.8)
        question = Question(text="Which port?")
        sent = await bus.send("owner", question, deadline=deadline)
        receipt = await sent.receipt()
        assert (receipt.state, receipt.reason) == ("held", "waits for a person as owner")
        error = await bounce(sent)
        assert datetime.now(UTC) > deadline
        assert await read_kinds(bus, sent) == ["sent", "delivered", "held", "dead"]
    assert error.receipt.reason.startswith("its deadline passed")
    assert error.receipt.reason.endswith("while it was held: waits for a person as owner")


async def test_a_deadline_ends_what_waits_for_a_busy_agent(
    open_bus: Any, quick: Settings, bounce: Any
) -> None:
    blocker = Blocker("busy")
    async with open_bus(blocker.agent, settings=quick) as bus:
        first = await bus.send("busy", "first")
        await first.receipt()
        deadline = datetime.now(UTC) + timedelta(seconds=1.5)
        second = await bus.send("busy", "second", deadline=deadline)
        assert (await second.receipt()).state == "held"
        error = await bounce(second)
        assert error.receipt.reason.startswith("its deadline passed")
        assert error.receipt.reason.endswith("while it was held: busy")
        blocker.may_end.set()
        assert (await first.result()).summary == "first"


async def test_a_deadline_ends_the_work_too_and_its_owner_hears_of_it(
    open_bus: Any, quick: Settings, bounce: Any
) -> None:
    """At once, not at the next look at its lease."""
    slow = msgspec.structs.replace(quick, ack_wait=60.0)
    agent, stopped = Agent("slow", id="slow-1"), anyio.Event()

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with open_bus(agent, settings=slow) as bus:
        deadline = datetime.now(UTC) + timedelta(seconds=0.5)
        sent = await bus.send("slow", "x", deadline=deadline)
        assert (await sent.receipt()).state == "accepted"
        with anyio.fail_after(10):
            await stopped.wait()
        error = await bounce(sent)
    assert error.receipt.by == RECEIPT_KEEPER
    assert "its deadline passed" in error.receipt.reason
    assert "while slow-1 worked on it" in error.receipt.reason
    assert error.receipt.attempt == 1


async def test_a_next_handoff_that_nobody_takes_is_answered_and_given_up_as_well(
    open_bus: Any, quick: Settings, bounce: Any
) -> None:
    agent = Agent("builder")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="built").then("nobody", "x")

    async with open_bus(agent, settings=quick) as bus:
        error = await bounce(await bus.send("builder", "x"))
    assert error.receipt.state == "dead"


async def test_an_accepted_handoff_takes_as_long_as_it_takes(
    open_bus: Any, quick: Settings, read_kinds: Any
) -> None:
    """Neither the receipt's limit nor the lease ends a work whose owner lives."""
    blocker = Blocker("slow", slots=2)
    async with open_bus(blocker.agent, settings=quick) as bus:
        sent = await bus.send("slow", "x")
        await sent.receipt()
        # A whole life of another handoff: longer than every limit of the fleet.
        with pytest.raises(Bounced, match="nobody took it"):
            await (await bus.send("nobody", "y")).result()
        async with open_operator(bus.server.url, fleet="default") as core:
            data = await core.connection.api(f"CONSUMER.INFO.{core.ledger.stream}.to-slow")
        info = msgspec.json.decode(data)
        assert (info["num_ack_pending"], info["num_redelivered"]) == (1, 0)
        blocker.may_end.set()
        await sent.result()
        assert await read_kinds(bus, sent) == ["sent", "delivered", "accepted", "settled"]


async def test_a_stray_event_behind_the_end_changes_nothing(
    open_bus: Any, quick: Settings, read_kinds: Any, echo: Any
) -> None:
    """A keeper has forgotten the settled chain; it must not take the stray for a new one."""
    async with open_bus(echo(), settings=quick) as bus:
        sent = await bus.send("echo", "x")
        await sent.result()
        tail = (await bus.client.ask(sent.handoff_id)).chain.tail
        for kind in ("refused", "sent"):
            stray = Draft(
                subject=bus.client.subject(sent.handoff_id, kind, "adhoc", "test"),
                payload=encode(Receipt(handoff_id=sent.handoff_id, state="refused", by="test")),
                waiter="test",
                addressee="echo",
            )
            tail = await bus.client.ledger.append(stray, tail=tail)
        with pytest.raises(Bounced, match="nobody took it"):
            await (await bus.send("nobody", "y")).result()
        kinds = await read_kinds(bus, sent)
        assert kinds == ["sent", "delivered", "accepted", "settled", "refused", "sent"]
        again = await bus.client.ask(sent.handoff_id)
        assert again.chain.stage == "settled"
        assert len(again.chain.void) == 2
        assert again.settlement is not None


async def test_an_owner_is_called_gone_only_by_a_registry_that_answers(
    open_bus: Any, quick: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = Blocker("slow")

    async def unanswered(self: Registry) -> list[Presence]:
        raise NoAnswerError

    async def empty(self: Registry) -> list[Presence]:
        return []

    async with open_bus(blocker.agent, settings=quick) as bus:
        sent = await bus.send("slow", "x")
        await sent.receipt()
        # By then the keeper has been connected for long enough to be believed.
        assert (await (await bus.send("nobody", "y")).receipt()).state == "overdue"
        assert (await bus.client.ask(sent.handoff_id)).owner_alive is True
        with monkeypatch.context() as patch:
            patch.setattr(Registry, "list", unanswered)
            assert (await bus.client.ask(sent.handoff_id)).owner_alive is None
            patch.setattr(Registry, "list", empty)
            assert (await bus.client.ask(sent.handoff_id)).owner_alive is False
        blocker.may_end.set()
        await sent.result()
        assert (await bus.client.ask(sent.handoff_id)).owner_alive is None


async def test_questions_share_a_look_at_the_registry_and_most_need_none(
    open_bus: Any, steady: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = Blocker("slow")
    looks: list[int] = []
    list_ = Registry.list

    async def count(self: Registry) -> list[Presence]:
        looks.append(1)
        return await list_(self)

    monkeypatch.setattr(Registry, "list", count)

    async def ask(bus: TestBus, handoff_id: UUID, alive: bool | None) -> None:
        assert (await bus.client.ask(handoff_id)).owner_alive is alive

    async with open_bus(blocker.agent, settings=steady) as bus:
        sent = await bus.send("slow", "x")
        await sent.receipt()
        for alive in (True, None):
            # A fresh owner needs a moment to list what it accepted.
            while (await bus.client.ask(sent.handoff_id)).owner_alive is not alive:  # noqa: ASYNC110
                await anyio.sleep(0.05)
            looks.clear()
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(ask, bus, sent.handoff_id, alive)
            assert len(looks) < 50  # a keeper looks once a heartbeat besides
            blocker.may_end.set()
            await sent.result()


async def test_only_those_who_are_part_of_a_handoff_may_ask_for_it(
    open_bus: Any, echo: Any
) -> None:
    async with (
        open_bus(echo()) as bus,
        open_client(bus.server.url, "stranger", fleet="default") as stranger,
    ):
        sent = await bus.send("echo", "a secret")
        await sent.result()
        with pytest.raises(BusUnavailableError, match="stranger is not part of handoff"):
            await stranger.ask(sent.handoff_id)
        assert (await bus.client.ask(sent.handoff_id)).chain.stage == "settled"


async def test_a_waiter_that_hears_nothing_finds_everything_by_asking(
    open_bus: Any, quick: Settings, bounce: Any, echo: Any
) -> None:
    builder = Agent("builder")

    @builder.handles
    async def work(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="built").then("echo", "to the end")

    async with open_bus(builder, echo(), settings=quick) as bus:
        bus.client.lines.hear = lambda _stored: None
        sent = await bus.send("builder", "x")
        assert (await sent.receipt()).state in {"accepted", "settled"}
        assert (await sent.result()).summary == "to the end"
        assert (await (await bus.send("nobody", "x")).receipt()).state == "overdue"
        assert (await bounce(await bus.send("nobody", "x"))).receipt.state == "dead"
        assert len(bus.client.lines) == 0
