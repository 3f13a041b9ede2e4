"""Any part of the bus may die at any instant: nothing is lost, and nobody is answered twice."""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from msgspec.structs import replace

from batonbus import Agent, Bus, Context, Sent, Settings, TestBus, gather
from batonbus.rules.chain import Chain, fold
from batonbus.run.core import Core, open_operator
from batonbus.testing import FAST, run_receipt_keeper, run_window_manager
from batonbus.wire.server import embedded_server
from batonbus_schemas import Dispatch, Receipt, TaskResult, Then, decode

pytestmark = [pytest.mark.anyio, pytest.mark.faults]


class Parts:
    """The parts of a bus, each of which can be killed and started again."""

    def __init__(self, tasks: TaskGroup, url: str, settings: Settings) -> None:
        self.url = url
        self._tasks, self._settings = tasks, settings
        self._scopes: dict[str, anyio.CancelScope] = {}

    def start(self, name: str, function: Callable[..., Any]) -> None:
        async def run(scope: anyio.CancelScope) -> None:
            with scope:
                await function(self.url, "default", self._settings)

        self._scopes[name] = anyio.CancelScope()
        self._tasks.start_soon(run, self._scopes[name])

    def kill(self, name: str) -> None:
        self._scopes.pop(name).cancel()


@pytest.fixture
def open_parts(tmp_path: Path) -> Any:
    @asynccontextmanager
    async def start(*agents: Agent, settings: Settings = FAST) -> AsyncGenerator[tuple[Parts, Bus]]:
        with anyio.fail_after(20):
            async with embedded_server(tmp_path) as server, anyio.create_task_group() as tasks:
                parts = Parts(tasks, server.url, settings)
                parts.start("manager", run_window_manager)
                parts.start("keeper", run_receipt_keeper)
                async with Bus(server.url, actor="test") as bus:
                    for agent in agents:
                        tasks.start_soon(bus.run, agent)
                    yield parts, bus
                tasks.cancel_scope.cancel()

    return start


def line_of_two() -> list[Agent]:
    first, second = Agent("first", slots=4), Agent("second", slots=4)

    @first.handles
    async def begin(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what=f"began {task.brief}").then("second", task.brief)

    @second.handles
    async def end(task: Dispatch, ctx: Context) -> TaskResult:
        assert [it.what for it in ctx.window] == [f"began {task.brief}"]
        return TaskResult.passed(what=task.brief)

    return [first, second]


async def check_ledger(core: Core, sent: list[Sent]) -> None:
    """Each handoff of each line: one of every event, a result at its end, nothing void."""
    for handoff_id in {it for line in sent for it in (line.handoff_id, line.settled_id)}:
        events = [it.event for it in await core.ledger.read_chain(handoff_id)]
        kinds = [it.kind for it in events if it.kind != "accepted"]
        assert len(set(kinds)) == len(kinds), kinds
        assert kinds[-1] == "settled"
        assert fold(Chain(id=handoff_id), events).void == ()


async def test_a_window_manager_that_dies_in_the_middle_loses_nothing(open_parts: Any) -> None:
    async with open_parts(*line_of_two()) as (parts, bus):
        sent: list[Sent] = []
        for number in range(30):
            sent.append(await bus.send("first", f"{number}"))
            if number % 10 == 5:
                parts.kill("manager")
            if number % 10 == 9:
                parts.start("manager", run_window_manager)
        assert [it.summary for it in await gather(*sent)] == [str(it) for it in range(30)]
        async with open_operator(parts.url, fleet="default") as core:
            await check_ledger(core, sent)


async def test_two_of_each_part_side_by_side_answer_nobody_twice(
    open_parts: Any, quick: Settings
) -> None:
    async with open_parts(*line_of_two(), settings=quick) as (parts, bus):
        parts.start("second manager", run_window_manager)
        parts.start("second keeper", run_receipt_keeper)
        sent = [await bus.send("first", f"{number}") for number in range(20)]
        lost = [await bus.send("nobody", f"{number}") for number in range(5)]
        assert [it.summary for it in await gather(*sent)] == [str(it) for it in range(20)]
        with pytest.raises(ExceptionGroup, match="5 of 5"):
            await gather(*lost)
        async with open_operator(parts.url, fleet="default") as core:
            await check_ledger(core, sent)
            for it in lost:
                kinds = [it.event.kind for it in await core.ledger.read_chain(it.handoff_id)]
                assert kinds == ["sent", "delivered", "overdue", "dead"]


async def test_a_keeper_that_dies_forgets_nothing(open_parts: Any, quick: Settings) -> None:
    async with open_parts(settings=quick) as (parts, bus):
        overdue = await bus.send("nobody", "x")
        assert (await overdue.receipt()).state == "overdue"
        unanswered = await bus.send("nobody", "y")
        parts.kill("keeper")
        parts.start("keeper", run_receipt_keeper)
        assert (await unanswered.receipt()).state == "overdue"
        with pytest.raises(ExceptionGroup, match="2 of 2"):
            await gather(overdue, unanswered)
        async with open_operator(parts.url, fleet="default") as core:
            for it in (overdue, unanswered):
                kinds = [it.event.kind for it in await core.ledger.read_chain(it.handoff_id)]
                assert kinds == ["sent", "delivered", "overdue", "dead"]


def restart(parts: Parts) -> None:
    for name, run in (("keeper", run_receipt_keeper), ("manager", run_window_manager)):
        parts.kill(name)
        parts.start(name, run)


async def test_attempts_are_counted_across_restarts_of_agents_and_bus(
    open_parts: Any, quick: Settings, bounce: Any
) -> None:
    patient = replace(quick, give_up_after=30.0)
    async with open_parts(settings=patient) as (parts, bus):
        sent = await bus.send("worker", "x")
        for number in (1, 2, 3):
            agent, stop = Agent("worker", id=f"worker-{number}"), anyio.Event()

            async def fail(task: Dispatch, ctx: Context, stop: anyio.Event = stop) -> TaskResult:
                stop.set()
                raise ValueError(f"attempt {ctx.attempt}")

            agent.set_handler(fail, (Dispatch,))
            await bus.run(agent, stop=stop)
            restart(parts)
        error = await bounce(sent)
        async with open_operator(parts.url, fleet="default") as core:
            events = [it.event for it in await core.ledger.read_chain(sent.handoff_id)]
    assert error.receipt.reason == ("failed 3 of 3 attempts, the last with ValueError: attempt 3")
    assert error.receipt.attempt == 3
    attempts = [(it.kind, it.actor, it.attempt) for it in events[2:-1]]
    assert attempts == [
        (kind, f"worker-{number}", number)
        for number in (1, 2, 3)
        for kind in ("accepted", "failed")
    ]


async def test_takeovers_are_counted_across_restarts_of_agents_and_bus(
    open_parts: Any, quick: Settings, bounce: Any
) -> None:
    async with open_parts(settings=replace(quick, give_up_after=30.0)) as (parts, bus):
        sent = await bus.send("worker", "x")
        for number in range(6):
            agent, started = Agent("worker", id=f"worker-{number}"), anyio.Event()

            async def hang(task: Dispatch, ctx: Context, it: anyio.Event = started) -> TaskResult:
                it.set()
                await anyio.sleep_forever()

            agent.set_handler(hang, (Dispatch,))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.run, agent)
                await started.wait()
                tasks.cancel_scope.cancel()
            restart(parts)
        error = await bounce(sent)
        async with open_operator(parts.url, fleet="default") as core:
            events = [it.event for it in await core.ledger.read_chain(sent.handoff_id)]
    assert error.receipt.state == "dead"
    assert "changed hands 5 times, and its owner worker-5 is gone again" in error.receipt.reason
    accepted = [(it.lease, it.attempt) for it in events if it.kind == "accepted"]
    assert accepted == [(lease, 1) for lease in range(1, 7)]


async def test_without_a_window_manager_the_keeper_says_so_and_a_late_one_delivers(
    open_parts: Any, quick: Settings
) -> None:
    async with open_parts(*line_of_two(), settings=quick) as (parts, bus):
        await (await bus.send("first", "warm up")).result()
        parts.kill("manager")
        sent = await bus.send("first", "x")
        receipt = await sent.receipt()
        assert receipt.state == "overdue"
        assert "is one running?" in receipt.reason
        parts.start("manager", run_window_manager)
        assert (await sent.result()).summary == "x"


async def test_a_next_handoff_that_is_not_delivered_yet_can_be_cancelled(
    open_parts: Any, bounce: Any
) -> None:
    """The settled event alone opened it: cancelling waits until the window manager has it."""
    first, _ = line_of_two()
    async with open_parts(first) as (parts, bus):
        may_settle = anyio.Event()
        handler = first.handler

        async def begin(task: Dispatch, ctx: Context) -> Then:
            await may_settle.wait()
            return await handler(task, ctx)  # type: ignore[return-value]

        first.set_handler(begin, (Dispatch,))
        sent = await bus.send("first", "x")
        await sent.receipt()
        parts.kill("manager")
        may_settle.set()
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                assert await sent.cancel("no second step") is True

            while (await bus.client.ask(sent.handoff_id)).chain.stage != "settled":
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(cancel)
            parts.start("manager", run_window_manager)
        error = await bounce(sent)
        assert error.receipt.state == "cancelled"
        assert error.receipt.handoff_id != sent.handoff_id


async def test_a_server_that_is_killed_loses_nothing(open_bus: Any) -> None:
    """Handoffs are in flight, and one handler runs, all through the outage."""
    slow, started, may_end = Agent("slow", id="slow-1"), [], anyio.Event()

    @slow.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        started.append(ctx.attempt)
        await may_end.wait()
        return TaskResult.passed(what="slow")

    async with open_bus(*line_of_two(), slow, limit=40) as bus:
        held = await bus.send("slow", "x")
        await held.receipt()
        sent = [await bus.send("first", f"{number}") for number in range(20)]
        os.kill(bus.server.pid, signal.SIGKILL)
        sent += [await bus.send("first", f"{number}") for number in range(20, 30)]
        assert [it.summary for it in await gather(*sent)] == [str(it) for it in range(30)]
        assert bus.server.restarts == 1
        may_end.set()
        assert (await held.result()).summary == "slow"
        assert started == [1]
        async with open_operator(bus.server.url, fleet="default") as core:
            await check_ledger(core, [*sent, held])


async def test_a_server_that_was_away_longer_than_every_lease_takes_no_work_from_the_living(
    open_bus: Any, quick: Settings, read_events: Any
) -> None:
    """It hands every message out again at once, and its registry is empty, with all owners alive:
    whoever else gets one waits, and there is one result."""
    agents = [Agent("slow", id=f"slow-{number}", slots=2) for number in (1, 2)]
    may_end = anyio.Event()

    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        await may_end.wait()
        return TaskResult.passed(what=task.brief)

    for agent in agents:
        agent.handles(work)
    async with open_bus(*agents, settings=quick) as bus:
        sent = [await bus.send("slow", f"{number}") for number in range(2)]
        owners = [(await it.receipt()).by for it in sent]
        os.kill(bus.server.pid, signal.SIGSTOP)
        await anyio.sleep(3 * quick.ack_wait)  # the outage itself
        os.kill(bus.server.pid, signal.SIGCONT)
        late = await bus.send("nobody", "x")
        await late.receipt()
        may_end.set()
        assert [it.summary for it in await gather(*sent)] == ["0", "1"]
        for it, owner in zip(sent, owners, strict=True):
            events = await read_events(bus, it.handoff_id)
            accepted = [it for it in events if it.event.kind == "accepted"]
            assert [decode(it.payload, Receipt).by for it in accepted] == [owner]
            assert [it.event.kind for it in events].count("settled") == 1


async def test_everything_dies_at_once_and_the_ledger_is_enough(
    tmp_path: Path, quick: Settings
) -> None:
    """A second bus on the same folder goes on where the first one was cut off."""
    with anyio.fail_after(30):
        async with embedded_server(tmp_path) as server, anyio.create_task_group() as tasks:
            parts = Parts(tasks, server.url, quick)
            parts.start("manager", run_window_manager)
            parts.start("keeper", run_receipt_keeper)
            async with Bus(server.url, actor="test") as bus:
                sent = [await bus.send("first", f"{it}", key=f"{it}") for it in range(10)]
            os.kill(server.pid, signal.SIGKILL)
            tasks.cancel_scope.cancel()
        async with embedded_server(tmp_path) as server, anyio.create_task_group() as tasks:
            parts = Parts(tasks, server.url, quick)
            parts.start("manager", run_window_manager)
            parts.start("keeper", run_receipt_keeper)
            async with Bus(server.url, actor="test") as bus:
                for agent in line_of_two():
                    tasks.start_soon(bus.run, agent)
                again = [await bus.send("first", f"{it}", key=f"{it}") for it in range(10)]
                assert [it.handoff_id for it in again] == [it.handoff_id for it in sent]
                assert [it.summary for it in await gather(*again)] == [str(it) for it in range(10)]
            tasks.cancel_scope.cancel()


def test_a_test_bus_says_where_its_server_is() -> None:
    with pytest.raises(RuntimeError, match="async with TestBus"):
        _ = TestBus().server
