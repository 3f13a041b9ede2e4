"""What goes round is stopped: by the content that comes back, by the length of its line, and by
the number of handoffs of its work."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from batonbus import Agent, Bounced, Context
from batonbus.rules.chain import WINDOW_MANAGER
from batonbus.testing import FAST, run_window_manager
from batonbus_schemas import Dispatch, TaskResult, Then

pytestmark = pytest.mark.anyio

Say = Callable[[Dispatch, Context], Dispatch | str]


def hands_on(role: str, to: str, say: Say = lambda task, _ctx: task) -> Agent:
    """It hands on what it was given, for ever."""
    agent = Agent(role)

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what=f"{role} is done").then(to, say(task, ctx))

    return agent


def asks(role: str, to: str) -> Agent:
    """It asks another the very thing that it was asked, and answers with what came of it."""
    agent = Agent(role)

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        try:
            return await (await ctx.send(to, task)).result()
        except Bounced as error:
            return TaskResult.passed(what=error.receipt.reason)

    return agent


def answers(role: str) -> Agent:
    agent = Agent(role)

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult.passed(what=task.brief)

    return agent


async def test_three_that_hand_the_same_to_each_other_are_stopped_at_the_second_round(
    open_bus: Any, bounce: Any
) -> None:
    ring = [hands_on("a", "b"), hands_on("b", "c"), hands_on("c", "a")]
    async with open_bus(*ring) as bus:
        receipt = (await bounce(await bus.send("a", "Improve it"))).receipt
    assert (receipt.state, receipt.by) == ("refused", WINDOW_MANAGER)
    assert receipt.reason.startswith("LOOP: a → b → c → a with the same content")


async def test_three_that_ask_each_other_the_same_inside_their_handlers_are_stopped_too(
    open_bus: Any,
) -> None:
    """And where one of them hands on instead: the way is the same."""
    for second in (asks("b", "c"), hands_on("b", "c")):
        async with open_bus(asks("a", "b"), second, asks("c", "a")) as bus:
            result = await (await bus.send("a", "Improve it")).result()
        assert "LOOP: a → b → c → a with the same content" in result.summary


async def test_a_rebuild_that_counts_its_attempt_is_no_loop(open_bus: Any) -> None:
    reviewer, attempts = Agent("reviewer"), []

    @reviewer.handles
    async def review(task: Dispatch, ctx: Context) -> TaskResult | Then:
        attempts.append(ctx.attempt)
        if ctx.attempt == 3:
            return TaskResult.passed(what="good at last")
        return TaskResult.failed(what="no").then("builder", "Build it", attempt=ctx.attempt + 1)

    builder = Agent("builder")

    @builder.handles
    async def build(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="built").then("reviewer", "Review", attempt=ctx.attempt)

    async with open_bus(builder, reviewer) as bus:
        result = await (await bus.send("builder", "Build it")).result()
    assert (result.summary, attempts) == ("good at last", [1, 2, 3])


async def test_a_ping_pong_that_changes_a_word_each_time_ends_at_the_hop_limit(
    open_bus: Any, bounce: Any
) -> None:
    def longer(task: Dispatch, ctx: Context) -> str:
        return f"{task.brief}!"

    agents = [hands_on("ping", "pong", longer), hands_on("pong", "ping", longer)]
    async with open_bus(*agents, settings=replace(FAST, hop_limit=5)) as bus:
        receipt = (await bounce(await bus.send("ping", "Go"))).receipt
    assert receipt.state == "refused"
    path = "ping → pong → ping → pong → ping → pong → ping"
    assert receipt.reason.startswith(f"LOOP: {path}: handed on 6 times, limit 5")


async def test_the_same_content_asked_twice_side_by_side_is_no_loop(open_bus: Any) -> None:
    """Two opinions on one thing: neither stands on the other's way."""
    asker = Agent("asker")

    @asker.handles
    async def ask(task: Dispatch, ctx: Context) -> TaskResult:
        said = [await (await ctx.send("echo", "Well?", key=key)).result() for key in ("1", "2")]
        return TaskResult.passed(what=" ".join(it.summary for it in said))

    async with open_bus(asker, answers("echo")) as bus:
        for _ in range(2):
            assert (await (await bus.send("asker", "x")).result()).summary == "Well? Well?"


async def test_a_delivery_tells_the_way_to_it(open_bus: Any, read_delivery: Any) -> None:
    last, handled = Agent("last"), []

    @last.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        handled.append(ctx.envelope.id)
        return TaskResult.passed(what="done")

    async with open_bus(asks("first", "second"), hands_on("second", "last"), last) as bus:
        await (await bus.send("first", "x")).result()
        delivery = await read_delivery(bus, handled[0])
    assert [it.to for it in delivery.trail] == ["first", "second", "last"]
    assert delivery.envelope.hops == 2


async def test_a_work_that_has_used_its_handoffs_gets_no_more(open_bus: Any) -> None:
    """Whoever delivered them: here two window managers, one of which was not there from the
    start. Another work, and what belongs to none, go on."""
    settings = replace(FAST, work_limit=12)
    async with open_bus(answers("echo"), settings=settings) as bus:
        for number in range(6):
            await (await bus.send("echo", f"{number}", work="big")).result()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_window_manager, bus.server.url, "default", settings)
            sent = [await bus.send("echo", f"{number}", work="big") for number in range(20)]
            ends = [await _end(it) for it in sent]
            tasks.cancel_scope.cancel()
        assert 6 <= ends.count("done") <= 7
        refusal = "work big has used its 12 handoffs"
        assert all(refusal in it for it in ends if it != "done")
        await (await bus.send("echo", "x", work="small")).result()
        for number in range(15):
            await (await bus.send("echo", f"{number}")).result()


async def test_one_window_manager_counts_a_work_exactly(open_bus: Any) -> None:
    async with open_bus(answers("echo"), settings=replace(FAST, work_limit=20)) as bus:
        sent = [await bus.send("echo", f"{number}", work="big") for number in range(30)]
        ends = [await _end(it) for it in sent]
    assert ends.count("done") == 20


async def _end(sent: Any) -> str:
    try:
        await sent.result()
    except Bounced as error:
        return error.receipt.reason
    return "done"
