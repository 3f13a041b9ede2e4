"""Nobody waits in the dark: what the bus answers where no agent does, and what it gives up on."""

from typing import Any

import anyio
import msgspec
import pytest

from batonbus import Agent, Bounced, BusUnavailableError, Context, NoAnswerError, Settings
from batonbus.rules.chain import RECEIPT_KEEPER
from batonbus.run.client import open_client
from batonbus.run.core import open_operator
from batonbus.wire.ledger import Draft
from batonbus.wire.registry import Registry
from batonbus_schemas import Dispatch, Presence, Receipt, TaskResult, Then, encode

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
    early = msgspec.structs.replace(quick, receipt_timeout=0.2)
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
        assert len(bus.client.lines) == 1
