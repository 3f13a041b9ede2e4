"""Dead letters: why a handoff was given up on, and what becomes of its retry."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from batonbus import Agent, Bounced, Bus, ConflictError, Context, Sent, Settings, TestBus
from batonbus.rules.chain import OPERATOR, WINDOW_MANAGER, child_id, retry_id
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import Core, open_core, open_operator
from batonbus.run.dead_letters import (
    NotRetriedError,
    list_dead,
    make_retry,
    read_dead,
)
from batonbus.testing import run_receipt_keeper, run_window_manager
from batonbus.wire.ledger import Draft
from batonbus.wire.server import embedded_server
from batonbus.wire.subjects import NOBODY, Subject
from batonbus_schemas import (
    Delivery,
    Dispatch,
    Envelope,
    Receipt,
    Settlement,
    TaskResult,
    decode,
    encode,
)

pytestmark = pytest.mark.anyio


class Fragile:
    """An agent that fails until it is mended, or never ends."""

    def __init__(self, role: str = "fragile") -> None:
        self.mended = self.hanging = False
        self.seen: list[str] = []
        self.agent = Agent(role)

        @self.agent.handles
        async def work(task: Dispatch, ctx: Context) -> TaskResult:
            self.seen.append(task.brief)
            if self.hanging:
                await anyio.sleep_forever()
            if not self.mended:
                raise RuntimeError(f"no compiler for {task.brief}")
            return TaskResult.passed(what=f"Did {task.brief}.")


@pytest.fixture
def fragile() -> Fragile:
    return Fragile()


async def die(sent: Sent) -> UUID:
    with pytest.raises(Bounced):
        await sent.result()
    return sent.handoff_id


@asynccontextmanager
async def looking(bus: TestBus) -> AsyncGenerator[Core]:
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        yield core


async def retry(bus: TestBus, handoff_id: UUID) -> tuple[Sent, Bus]:
    """Try it again as the operator, on a connection that the test closes."""
    async with looking(bus) as core:
        envelope = make_retry(await read_dead(core, handoff_id))
    operator = Bus(bus.server.url, actor=OPERATOR)
    await operator.__aenter__()
    return await operator.send_envelope(envelope), operator


async def test_a_dead_letter_tells_every_attempt_with_its_error(
    open_bus: Any, quick: Settings, fragile: Fragile
) -> None:
    async with open_bus(fragile.agent, settings=quick) as bus:
        dead = await die(await bus.send("fragile", "x", work="shop", task="TASK-01"))
        async with looking(bus) as core:
            letter = await read_dead(core, dead)
    assert [(it.attempt, it.error) for it in letter.attempts] == [
        (n, "RuntimeError: no compiler for x") for n in (1, 2, 3)
    ]
    assert {it.agent for it in letter.attempts} == {fragile.agent.card.id}
    assert letter.error == "RuntimeError: no compiler for x"
    assert letter.reason.startswith("failed 3 of 3 attempts")
    assert letter.envelope is not None
    assert (letter.envelope.work, letter.envelope.task) == ("shop", "TASK-01")
    assert letter.retry is None


async def test_dead_letters_are_listed_newest_first_and_by_work(
    open_bus: Any, quick: Settings, fragile: Fragile
) -> None:
    async with open_bus(fragile.agent, settings=quick) as bus:
        first = await die(await bus.send("fragile", "x", work="shop"))
        second = await die(await bus.send("fragile", "y"))
        async with looking(bus) as core:
            assert [it.history.chain.id for it in await list_dead(core)] == [second, first]
            (one,) = await list_dead(core, "shop")
    assert one.history.chain.id == first
    assert one.error == "RuntimeError: no compiler for x"


async def test_a_retry_stands_where_the_dead_one_stood(
    open_bus: Any, quick: Settings, fragile: Fragile, echo: Any, read_delivery: Any
) -> None:
    async with open_bus(echo("builder"), fragile.agent, settings=quick) as bus:
        built = await bus.send("builder", "Built it.", work="shop", task="TASK-01")
        await built.result()
        sent = await bus.send("fragile", "Check it.", work="shop", task="TASK-01", after=[built])
        dead = await die(sent)
        fragile.mended = True
        again, operator = await retry(bus, dead)
        assert (await again.result()).summary == "Did Check it.."
        await operator.__aexit__(None, None, None)
        before, after = await read_delivery(bus, dead), await read_delivery(bus, retry_id(dead))
    assert before.envelope.stage_parents
    assert (after.window, after.opener) == (before.window, before.opener)
    for name in ("work", "task", "stage_parents", "task_parents", "hops", "after", "body"):
        assert getattr(after.envelope, name) == getattr(before.envelope, name), name
    assert (after.envelope.retry_of, after.envelope.attempt) == (dead, 1)


async def test_a_second_retry_is_the_same_handoff(
    open_bus: Any, quick: Settings, fragile: Fragile
) -> None:
    """Also by another operator at the same moment, who does not know of the first."""
    async with open_bus(fragile.agent, settings=quick) as bus:
        dead = await die(await bus.send("fragile", "x"))
        fragile.mended = True
        async with looking(bus) as core:
            envelope = make_retry(await read_dead(core, dead))
        async with Bus(bus.server.url, actor=OPERATOR) as operator:
            one = await operator.send_envelope(envelope)
            other = await operator.send_envelope(envelope)
            assert one.handoff_id == other.handoff_id == retry_id(dead)
            assert await one.result() == await other.result()
            edited = Envelope(
                id=envelope.id,
                sender=OPERATOR,
                to=envelope.to,
                body=Dispatch(brief="y"),
                retry_of=dead,
            )
            with pytest.raises(ConflictError, match="another body"):
                await operator.send_envelope(edited)
        async with looking(bus) as core:
            letter = await read_dead(core, dead)
            (listed,) = await list_dead(core)
            with pytest.raises(NotRetriedError, match=f"{retry_id(dead)}, which is settled"):
                make_retry(letter)
    assert fragile.seen == ["x"] * 4
    assert letter.retry is not None
    assert (letter.retry.state, listed.retry) == ("settled", letter.retry)


async def test_a_retry_that_died_is_retried_itself(
    open_bus: Any, quick: Settings, fragile: Fragile
) -> None:
    async with open_bus(fragile.agent, settings=quick) as bus:
        dead = await die(await bus.send("fragile", "x"))
        again, operator = await retry(bus, dead)
        dead_again = await die(again)
        async with looking(bus) as core:
            with pytest.raises(NotRetriedError, match=f"`batonbus dead retry {dead_again}`"):
                make_retry(await read_dead(core, dead))
        await operator.__aexit__(None, None, None)
        fragile.mended = True
        third, operator = await retry(bus, dead_again)
        assert (await third.result()).status == "PASS"
        await operator.__aexit__(None, None, None)


async def test_a_retry_that_was_cancelled_is_retried_itself(
    open_bus: Any, quick: Settings, fragile: Fragile
) -> None:
    """The dead one has no other retry."""
    async with open_bus(fragile.agent, settings=quick) as bus:
        dead = await die(await bus.send("fragile", "x"))
        fragile.hanging = True
        again, operator = await retry(bus, dead)
        assert (await again.receipt()).state == "accepted"
        assert await again.cancel("not now")
        fragile.hanging, fragile.mended = False, True
        third = await operator.send_envelope(make_retry(await _read(bus, again.handoff_id)))
        assert (await third.result()).status == "PASS"
        await operator.__aexit__(None, None, None)


async def _read(bus: TestBus, handoff_id: UUID) -> Any:
    async with looking(bus) as core:
        return await read_dead(core, handoff_id)


async def test_what_is_not_dead_is_not_retried(open_bus: Any, echo: Any) -> None:
    async with open_bus(echo()) as bus:
        sent = await bus.send("echo", "x")
        await sent.result()
        letter = await _read(bus, sent.handoff_id)
        with pytest.raises(NotRetriedError, match="is settled: only a dead one"):
            make_retry(letter)
        assert letter.envelope is not None
        forged = Envelope(
            id=retry_id(sent.handoff_id),
            sender=OPERATOR,
            to="echo",
            body=Dispatch(brief="x"),
            retry_of=sent.handoff_id,
        )
        async with Bus(bus.server.url, actor=OPERATOR) as operator:
            receipt = await (await operator.send_envelope(forged)).receipt()
    assert receipt.state == "refused"
    assert "is settled: only a dead one is retried" in receipt.reason


async def test_an_agent_cannot_retry(open_bus: Any, quick: Settings, fragile: Fragile) -> None:
    async with open_bus(fragile.agent, settings=quick) as bus:
        dead = await die(await bus.send("fragile", "x"))
        forged = Envelope(
            id=retry_id(dead), sender="test", to="fragile", body=Dispatch(brief="x"), retry_of=dead
        )
        receipt = await (await bus.send_envelope(forged)).receipt()
    assert receipt.state == "refused"
    assert [it.path for it in receipt.violations] == ["$.retry_of"]


async def test_a_dead_handoff_that_was_handed_on_is_retried_with_its_parent(
    open_bus: Any, quick: Settings, fragile: Fragile, read_delivery: Any
) -> None:
    builder = Agent("builder")

    @builder.handles
    async def build(task: Dispatch, ctx: Context) -> Any:
        return TaskResult.passed(what="Built it.").then("fragile", "Check it.")

    async with open_bus(builder, fragile.agent, settings=quick) as bus:
        sent = await bus.send("builder", "x")
        await die(sent)
        dead = child_id(sent.handoff_id)
        letter = await _read(bus, dead)
        assert letter.handed_on_by == sent.handoff_id
        fragile.mended = True
        again, operator = await retry(bus, dead)
        assert (await again.result()).status == "PASS"
        await operator.__aexit__(None, None, None)
        delivery = await read_delivery(bus, retry_id(dead))
    (entry,) = delivery.window
    assert entry.handoff_id == sent.handoff_id
    # On the way it takes the dead one's place, and so is no loop.
    assert [it.to for it in delivery.trail] == ["builder", "fragile"]


async def write(
    core: Core, handoff_id: UUID, kind: Any, tail: int, message: Any, **more: Any
) -> int:
    actor = more.pop("actor", OPERATOR)
    to = more.pop("to", NOBODY)
    subject = Subject(DEFAULT_FLEET, handoff_id, kind, "shop", actor, to)
    return await core.ledger.append(
        Draft(subject=subject, payload=encode(message), **more), tail=tail
    )


async def write_dead(core: Core, handoff_id: UUID, tail: int) -> None:
    receipt = Receipt(handoff_id=handoff_id, state="dead", by=OPERATOR, reason="nobody took it")
    await write(core, handoff_id, "dead", tail, receipt)


async def write_settled(core: Core, envelope: Envelope, following: Envelope | None) -> None:
    """A handoff that its agent settled, with the next one if there is one."""
    handoff_id, agent = envelope.id, "builder-1"
    sent = await write(
        core, handoff_id, "sent", 0, envelope, actor="asker", to="builder", addressee="builder"
    )
    delivery = Delivery(envelope=envelope, opener="builder")
    delivered = await write(
        core, handoff_id, "delivered", sent, delivery, actor=WINDOW_MANAGER, to="builder"
    )
    receipt = Receipt(handoff_id=handoff_id, state="accepted", by=agent)
    marks = {"actor": agent, "attempt": 1}
    accepted = await write(core, handoff_id, "accepted", delivered, receipt, lease=1, **marks)
    settlement = Settlement(result=TaskResult.passed(what="Built it."), next=following)
    child_to = following.to if following else None
    await write(
        core,
        handoff_id,
        "settled",
        accepted,
        settlement,
        accepted=accepted,
        child_to=child_to,
        **marks,
    )


@pytest.mark.parametrize("handed_on", [False, True])
async def test_a_dead_handoff_that_no_window_manager_saw_is_admitted_by_its_retry(
    tmp_path: Path, quick: Settings, handed_on: bool
) -> None:
    """It is checked as of the moment at which it was sent, and placed after what it named."""
    parent = Envelope(
        id=uuid4(), sender="asker", to="builder", body=Dispatch(brief="x"), work="shop"
    )
    dead = child_id(parent.id) if handed_on else uuid4()
    lost = Envelope(
        id=dead,
        sender="builder-1" if handed_on else "asker",
        to="verifier",
        body=Dispatch(brief="Check it."),
        work="shop",
        after=None if handed_on else (parent.id,),
    )
    with anyio.fail_after(20):
        async with (
            embedded_server(tmp_path) as server,
            open_core(server.url, OPERATOR, fleet=DEFAULT_FLEET, settings=quick) as core,
            anyio.create_task_group() as tasks,
        ):
            await write_settled(core, parent, lost if handed_on else None)
            tail = 0
            if not handed_on:
                tail = await write(core, dead, "sent", 0, lost, actor="asker", to="verifier")
            await write_dead(core, dead, tail)
            for run in (run_window_manager, run_receipt_keeper):
                tasks.start_soon(run, server.url, DEFAULT_FLEET)
            envelope = make_retry(await read_dead(core, dead))
            async with Bus(server.url, actor=OPERATOR) as operator:
                sent = await operator.send_envelope(envelope)
                assert (await sent.receipt()).state == "overdue"
            (stored,) = [
                it
                for it in await core.ledger.read_chain(retry_id(dead))
                if it.event.kind == "delivered"
            ]
            tasks.cancel_scope.cancel()
    delivery = decode(stored.payload, Delivery)
    assert [it.handoff_id for it in delivery.envelope.stage_parents] == [parent.id]
    assert [it.what for it in delivery.window] == ["Built it."]
    assert delivery.envelope.retry_of == dead
