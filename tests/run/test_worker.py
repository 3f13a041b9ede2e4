"""The runtime of an agent: slots, lease, cancelling, stopping, and taking over from the dead."""

import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from gate_bench import until

from batonbus import Agent, Bus, Context, Refuse, Settings, TestBus, gather, testing
from batonbus.rules.chain import OPERATOR, Chain
from batonbus.run.client import open_client
from batonbus.run.core import open_core, open_operator
from batonbus.wire.feed import Received
from batonbus.wire.ledger import Draft
from batonbus.wire.registry import Registry
from batonbus.wire.subjects import Subject
from batonbus_schemas import Dispatch, Presence, Receipt, TaskResult, Then, encode

pytestmark = pytest.mark.anyio

PATIENT = Settings(
    receipt_timeout=0.7,
    ack_wait=30.0,
    heartbeat=0.1,
    give_up_after=30.0,
    retry_delay=0.02,
    stop_grace=0.2,
)
"""What comes back soon here was handed back: a lease would end after half a minute only."""


class Blocker:
    """An agent whose handlers wait until they may end, and say what became of them."""

    def __init__(self, role: str = "worker", *, id: str = "worker-1", slots: int = 1) -> None:
        self.agent = Agent(role, id=id, slots=slots)
        self.started = anyio.Event()
        self.may_end = anyio.Event()
        self.cancelled = anyio.Event()
        self.attempts: list[tuple[str, int]] = []
        self.agent.handles(self._work)

    async def _work(self, task: Dispatch, ctx: Context) -> TaskResult:
        self.attempts.append((task.brief, ctx.attempt))
        self.started.set()
        try:
            await self.may_end.wait()
        except BaseException:
            self.cancelled.set()
            raise
        return TaskResult.passed(what=f"{self.agent.card.id} did {task.brief}")


async def read_agents(bus: TestBus) -> dict[str, Presence]:
    async with open_operator(bus.server.url, fleet="default") as core:
        return {it.card.id: it for it in await core.registry.list()}


@asynccontextmanager
async def running(bus: Bus, agent: Agent) -> AsyncGenerator[anyio.Event]:
    """The agent beside the block; the event stops it, and it has ended behind the block."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: bus.run(agent, stop=stop))
        yield stop
        stop.set()


async def test_no_more_handlers_run_than_there_are_slots(open_bus: Any) -> None:
    """Both of an agent's feeds share its slots: that of its role, and that of its own id."""
    for slots in (1, 3):
        agent, running_now, most = Agent("worker", id="worker-1", slots=slots), set(), [0]

        async def work(task: Dispatch, ctx: Context) -> TaskResult:
            running_now.add(task.brief)  # noqa: B023 - awaited before the next round
            most[0] = max(most[0], len(running_now))  # noqa: B023
            await anyio.lowlevel.checkpoint()
            await (await ctx.send("echo", task.brief)).receipt()
            running_now.discard(task.brief)  # noqa: B023
            return TaskResult.passed(what=task.brief)

        agent.handles(work)
        echo = Agent("echo", slots=8)
        echo.handles(_echo)
        async with open_bus(agent, echo) as bus:
            to = ["worker", "worker-1"] * 3
            sent = [await bus.send(it, f"{number}") for number, it in enumerate(to)]
            assert [it.summary for it in await gather(*sent)] == [str(it) for it in range(6)]
        assert most == [slots]


async def _echo(task: Dispatch, ctx: Context) -> TaskResult:
    return TaskResult.passed(what=task.brief)


async def test_a_busy_agent_does_not_ask_for_what_it_cannot_take(
    open_bus: Any, unhurried: Settings
) -> None:
    """What waits for the agent alone waits there, and goes first when the slot is free."""
    settings = msgspec.structs.replace(unhurried, receipt_timeout=0.7)
    blocker = Blocker()
    async with open_bus(blocker.agent, settings=settings) as bus:
        sent = [await bus.send("worker", "first")]
        await blocker.started.wait()
        sent += [await bus.send(to, to) for to in ("worker-1", "worker", "worker") * 3]
        assert (await sent[-1].receipt()).state == "held"
        async with open_operator(bus.server.url, fleet="default") as core:
            for consumer in ("to-worker", "to-worker-1"):
                info = await core.connection.api(f"CONSUMER.INFO.BATONBUS_default.{consumer}")
                assert msgspec.json.decode(info)["delivered"]["consumer_seq"] <= 3
        blocker.may_end.set()
        await gather(*sent)
    assert blocker.attempts[1] == ("worker-1", 1)


async def test_a_cancelled_handler_is_stopped_and_its_sender_told(
    open_bus: Any, bounce: Any, read_kinds: Any
) -> None:
    blocker = Blocker()
    async with open_bus(blocker.agent) as bus:
        sent = await bus.send("worker", "x")
        await blocker.started.wait()
        assert await sent.cancel("not needed any more") is True
        await blocker.cancelled.wait()
        error = await bounce(sent)
        assert (error.receipt.state, error.receipt.by) == ("cancelled", "test")
        assert error.receipt.reason == "not needed any more"
        assert await sent.cancel("again") is False
        assert await read_kinds(bus, sent) == ["sent", "delivered", "accepted", "cancelled"]
        blocker.may_end.set()
        assert (await (await bus.send("worker", "next")).result()).status == "PASS"


async def test_a_handler_that_swallows_its_cancellation_settles_nothing(
    open_bus: Any, bounce: Any, read_kinds: Any
) -> None:
    agent, started, ended = Agent("stubborn"), anyio.Event(), anyio.Event()

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        if task.brief == "next":
            return TaskResult.passed(what="next")
        started.set()
        try:
            await anyio.sleep_forever()
        except BaseException:  # noqa: BLE001 - just what a handler should not do
            ended.set()
        return TaskResult.passed(what="I do not care")

    async with open_bus(agent) as bus:
        sent = await bus.send("stubborn", "x")
        await started.wait()
        await sent.cancel("stop it")
        await ended.wait()
        assert (await bounce(sent)).receipt.state == "cancelled"
        assert (await (await bus.send("stubborn", "next")).result()).summary == "next"
        assert await read_kinds(bus, sent) == ["sent", "delivered", "accepted", "cancelled"]


async def test_a_handoff_that_nobody_has_taken_can_be_cancelled(open_bus: Any, bounce: Any) -> None:
    async with open_bus() as bus:
        sent = await bus.send("nobody", "x")
        assert await sent.cancel("changed my mind") is True
        assert (await bounce(sent)).receipt.state == "cancelled"


async def test_cancelling_what_has_ended_changes_nothing(open_bus: Any, echo: Any) -> None:
    async with open_bus(echo()) as bus:
        sent = await bus.send("echo", "x")
        assert (await sent.result()).summary == "x"
        assert await sent.cancel("too late") is False
        unwatched = await bus.send("echo", "y", key="y")
        await (await bus.send("echo", "y", key="y")).result()
        assert await unwatched.cancel("too late") is False
        assert (await unwatched.result()).summary == "y"


async def test_a_line_is_cancelled_where_it_stands(open_bus: Any, bounce: Any) -> None:
    first, blocker = Agent("builder"), Blocker("verifier")

    @first.handles
    async def build(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="built").then("verifier", "check it")

    async with open_bus(first, blocker.agent) as bus:
        sent = await bus.send("builder", "x")
        await blocker.started.wait()
        assert await sent.cancel("stop the line") is True
        await blocker.cancelled.wait()
        error = await bounce(sent)
    assert error.receipt.state == "cancelled"
    assert error.receipt.handoff_id != sent.handoff_id


async def test_a_strangers_cancelling_stops_nobody(open_bus: Any) -> None:
    blocker = Blocker()
    async with (
        open_bus(blocker.agent) as bus,
        open_client(bus.server.url, "stranger", fleet="default") as stranger,
    ):
        sent = await bus.send("worker", "x")
        await blocker.started.wait()
        receipt = Receipt(handoff_id=sent.handoff_id, state="cancelled", by="stranger")
        draft = Draft(
            subject=stranger.subject(sent.handoff_id, "cancelled", "adhoc", "worker-1"),
            payload=encode(receipt),
        )
        tail = (await bus.client.ask(sent.handoff_id)).chain.tail
        await stranger.ledger.append(draft, tail=tail)
        blocker.may_end.set()
        assert (await sent.result()).status == "PASS"
    assert not blocker.cancelled.is_set()


async def test_a_stopped_agent_finishes_what_runs_and_takes_nothing_new(
    open_bus: Any, quick: Settings
) -> None:
    one, two = Blocker(id="worker-1"), Blocker(id="worker-2")
    two.may_end.set()
    async with open_bus(settings=quick) as bus, running(bus, one.agent) as stop:
        first = await bus.send("worker", "first")
        await one.started.wait()
        second = await bus.send("worker", "second")
        stop.set()
        async with running(bus, two.agent):
            assert (await second.result()).summary == "worker-2 did second"
            assert (await read_agents(bus))["worker-1"].stopping
            one.may_end.set()
            assert (await first.result()).summary == "worker-1 did first"
    assert one.attempts == [("first", 1)]


async def test_a_stopped_agent_is_gone_from_the_registry(open_bus: Any) -> None:
    blocker = Blocker()
    async with open_bus(settings=PATIENT) as bus:
        async with running(bus, blocker.agent):
            await (await bus.send("worker", "x")).receipt()
            assert set(await read_agents(bus)) == {"worker-1"}
            blocker.may_end.set()
        assert await read_agents(bus) == {}


async def test_what_outlasts_the_grace_is_handed_back_and_taken_over(
    open_bus: Any, read_events: Any
) -> None:
    one, two = Blocker(id="worker-1"), Blocker(id="worker-2")
    two.may_end.set()
    async with open_bus(settings=PATIENT) as bus:
        async with running(bus, one.agent):
            sent = await bus.send("worker", "x")
            await one.started.wait()
        assert one.cancelled.is_set()
        async with running(bus, two.agent):
            assert (await sent.result()).summary == "worker-2 did x"
        accepted = [it.event for it in await read_events(bus, sent.handoff_id)][2:]
    assert [(it.kind, it.attempt, it.lease) for it in accepted] == [
        ("accepted", 1, 1),
        ("failed", 1, None),
        ("accepted", 1, 2),
        ("settled", 1, None),
    ]
    assert accepted[1].interrupted


async def test_a_stop_in_order_spends_neither_attempt_nor_takeover(
    open_bus: Any, read_events: Any
) -> None:
    """More stops than takeovers are allowed."""
    async with open_bus(settings=PATIENT) as bus:
        sent = await bus.send("worker", "x")
        for number in range(7):
            blocker = Blocker(id=f"worker-{number}")
            async with running(bus, blocker.agent):
                await blocker.started.wait()
        last = Blocker(id="worker-last")
        last.may_end.set()
        async with running(bus, last.agent):
            assert (await sent.result()).summary == "worker-last did x"
        events = [it.event for it in await read_events(bus, sent.handoff_id)]
    assert {it.attempt for it in events if it.kind == "accepted"} == {1}


async def test_a_rebuild_goes_on_counting_from_the_attempt_that_then_names(
    open_bus: Any, read_events: Any
) -> None:
    verifier, builder = Agent("verifier"), Agent("builder")
    seen: list[int] = []

    @verifier.handles
    async def verify(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.failed(what="red").then("builder", "again", attempt=2)

    @builder.handles
    async def build(task: Dispatch, ctx: Context) -> TaskResult:
        seen.append(ctx.attempt)
        if ctx.attempt == 2:
            raise ValueError("once more")
        return TaskResult.passed(what="built")

    async with open_bus(verifier, builder) as bus:
        sent = await bus.send("verifier", "x")
        assert (await sent.result()).status == "PASS"
    assert seen == [2, 3]


async def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next(open_bus: Any) -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")
    agent, seen = Agent("worker"), []

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        seen.append(user.get())
        user.set(task.brief)
        return TaskResult.passed(what="done")

    async with open_bus(agent) as bus:
        for name in ("alice", "bob"):
            await (await bus.send("worker", name)).result()
    assert seen == ["nobody", "nobody"]


async def test_a_former_owner_stops_working_when_its_lease_is_taken(open_bus: Any) -> None:
    """Nothing but the next look at its lease tells it: nobody writes to it."""
    blocker = Blocker(id="worker-1")
    async with open_bus(blocker.agent) as bus:
        sent = await bus.send("worker", "x")
        await blocker.started.wait()
        async with open_core(bus._url, OPERATOR, fleet="default") as core:
            chain = await core.ledger.read_folded(Chain(id=sent.handoff_id))
            subject = Subject("default", chain.id, "cancelled", chain.work, OPERATOR, "_")
            receipt = Receipt(handoff_id=chain.id, state="cancelled", by=OPERATOR)
            await core.ledger.append(
                Draft(subject=subject, payload=encode(receipt)), tail=chain.tail
            )
        with anyio.fail_after(10):
            await blocker.cancelled.wait()


async def test_a_cancelled_agent_hands_back_at_once(open_bus: Any) -> None:
    one, two = Blocker(id="worker-1"), Blocker(id="worker-2")
    two.may_end.set()
    async with open_bus(settings=PATIENT) as bus:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, one.agent)
            sent = await bus.send("worker", "x")
            await one.started.wait()
            tasks.cancel_scope.cancel()
        async with running(bus, two.agent):
            assert (await sent.result()).summary == "worker-2 did x"


async def test_the_registry_lists_a_handoff_that_is_accepted_while_an_entry_is_on_its_way(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon after, not only at the next heartbeat: till then its owner would pass for dead."""
    settings = Settings(receipt_timeout=5.0, heartbeat=5.0)
    blocker, put = Blocker(slots=2), Registry.put
    on_its_way, may_arrive = anyio.Event(), anyio.Event()

    async def slow_put(self: Registry, presence: Presence) -> None:
        if len(presence.working) == 1:
            on_its_way.set()
            await may_arrive.wait()
        await put(self, presence)

    monkeypatch.setattr(Registry, "put", slow_put)
    async with open_bus(blocker.agent, settings=settings) as bus:
        await bus.send("worker", "first")
        await on_its_way.wait()
        await (await bus.send("worker", "second")).receipt()
        may_arrive.set()
        with anyio.fail_after(settings.heartbeat / 2):
            while len((await read_agents(bus))["worker-1"].working) < 2:
                await anyio.lowlevel.checkpoint()
        blocker.may_end.set()
        with anyio.fail_after(settings.heartbeat / 2):
            while (await read_agents(bus))["worker-1"].working:
                await anyio.lowlevel.checkpoint()


async def test_one_missed_beat_takes_nothing_away(
    open_bus: Any, quick: Settings, read_kinds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one to the registry nor one to the server, with a rival that waits for both."""
    one, two = Blocker(id="worker-1"), Blocker(id="worker-2")
    put, in_progress = Registry.put, Received.in_progress
    beats: list[Presence] = []
    progress: list[Received] = []

    async def put_but_one(self: Registry, presence: Presence) -> None:
        if presence.working:
            beats.append(presence)
        if len(beats) != 2 or not presence.working:
            await put(self, presence)

    async def in_progress_but_one(self: Received) -> None:
        progress.append(self)
        if len(progress) != 2:
            await in_progress(self)

    monkeypatch.setattr(Registry, "put", put_but_one)
    monkeypatch.setattr(Received, "in_progress", in_progress_but_one)
    async with open_bus(one.agent, two.agent, settings=quick) as bus:
        sent = await bus.send("worker", "x")
        await sent.receipt()
        # Longer than a presence, and than a lease on the message.
        while len(beats) < 4 * quick.missed_beats or len(progress) < 6:
            assert (await bus.client.ask(sent.handoff_id)).owner_alive is not False
        one.may_end.set()
        two.may_end.set()
        assert (await sent.result()).status == "PASS"
        assert await read_kinds(bus, sent) == ["sent", "delivered", "accepted", "settled"]
    assert len(one.attempts + two.attempts) == 1


async def test_every_message_is_acked_when_its_handoff_is_over(
    open_bus: Any, quick: Settings
) -> None:
    """Whichever way it ended; so nothing comes again, and nothing waits in the server."""
    agent, started = Agent("worker", slots=5), anyio.Event()

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        if task.brief == "fail":
            raise ValueError(task.brief)
        if task.brief == "refuse":
            raise Refuse(task.brief)
        if task.brief == "block":
            started.set()
            await anyio.sleep_forever()
        return TaskResult.passed(what=task.brief)

    async with open_bus(agent, settings=quick) as bus:
        sent = [await bus.send("worker", it) for it in ("pass", "fail", "refuse", "block")]
        await started.wait()
        await sent[-1].cancel("enough")
        with pytest.raises(ExceptionGroup, match="3 of 4"):
            await gather(*sent)
        async with open_operator(bus.server.url, fleet="default") as core:
            for consumer in ("to-worker", "window-manager"):
                left = (1, 1)
                while left != (0, 0):
                    data = await core.connection.api(
                        f"CONSUMER.INFO.{core.ledger.stream}.{consumer}"
                    )
                    info = msgspec.json.decode(data)
                    left = (info["num_ack_pending"], info["num_pending"])


async def test_a_handoff_whose_owner_is_gone_and_nobody_follows_is_given_up(
    open_bus: Any, quick: Settings, bounce: Any
) -> None:
    blocker = Blocker()
    async with open_bus(settings=quick) as bus:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, blocker.agent)
            sent = await bus.send("worker", "x")
            await blocker.started.wait()
            tasks.cancel_scope.cancel()
        error = await bounce(sent)
    assert error.receipt.state == "dead"
    assert "its owner worker-1 is gone for 1 s, nobody took over" in error.receipt.reason


async def test_an_agent_without_a_handler_does_not_run() -> None:
    with pytest.raises(TypeError, match=r"agent worker-1 has no handler: .*@agent.handles"):
        await Bus("nats://127.0.0.1:1").run(Agent("worker", id="worker-1"))


PROGRAM = """
import sys, anyio
from batonbus import Agent, Bus, Context
from batonbus.run.worker import Worker
from batonbus_schemas import Dispatch, TaskResult

agent = Agent("worker", id=sys.argv[2])

async def unaware(self, running):
    "As if it came back in the very moment of its answer: before its next look at its lease."

if sys.argv[3] == "unaware":
    Worker._check_lease = unaware

@agent.handles
async def work(task: Dispatch, ctx: Context) -> TaskResult:
    print("started", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if task.brief == "ask":
        await (await ctx.send("echo", "asked", key="question")).result()
        print("answered", flush=True)
    return TaskResult.passed(what=f"{sys.argv[2]} did {task.brief}")

anyio.run(Bus(sys.argv[1]).run, agent)
"""


class Elsewhere:
    """An agent in a process of its own; its handlers end when they are told."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._said = {
            "stdout": TextReceiveStream(process.stdout),  # type: ignore[arg-type]
            "stderr": TextReceiveStream(process.stderr),  # type: ignore[arg-type]
        }

    async def says(self, text: str, where: str = "stdout") -> None:
        heard = ""
        while text not in heard:
            heard += await self._said[where].receive()

    async def end_handler(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(b"go on\n")


@pytest.fixture
def unhurried(quick: Settings) -> Settings:
    """Nobody is given up on while a process of Python starts."""
    return msgspec.structs.replace(quick, receipt_timeout=10.0, give_up_after=10.0)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Elsewhere]]:
    @asynccontextmanager
    async def start(bus: TestBus, id: str, mind: str = "aware") -> AsyncGenerator[Elsewhere]:
        program = tmp_path / "agent.py"
        program.write_text(PROGRAM)
        command = [sys.executable, program, bus.server.url, id, mind]
        async with await anyio.open_process(command) as it:
            try:
                yield Elsewhere(it)
            finally:
                if it.returncode is None:
                    it.kill()

    return start


async def test_an_agent_that_is_killed_is_taken_over_from(
    open_bus: Any, unhurried: Settings, elsewhere: Any, read_events: Any
) -> None:
    two = Blocker(id="worker-2")
    two.may_end.set()
    async with open_bus(settings=unhurried) as bus, elsewhere(bus, "worker-1") as one:
        sent = await bus.send("worker", "x")
        await one.says("started")
        async with running(bus, two.agent):
            one.process.kill()
            assert (await sent.result()).summary == "worker-2 did x"
        events = [it.event for it in await read_events(bus, sent.handoff_id)]
    assert [(it.actor, it.attempt, it.lease) for it in events if it.kind == "accepted"] == [
        ("worker-1", 1, 1),
        ("worker-2", 1, 2),
    ]
    assert [it.kind for it in events].count("settled") == 1


async def test_a_send_of_an_owner_that_was_away_takes_no_key_from_the_one_that_took_over(
    open_bus: Any, unhurried: Settings, elsewhere: Any
) -> None:
    """It sent in the name of a handler that another runs by now: both mean the same handoff."""
    two, may_send = Agent("worker", id="worker-2"), anyio.Event()
    started = anyio.Event()

    @two.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        started.set()
        await may_send.wait()
        return await (await ctx.send("echo", "asked", key="question")).result()

    echo = Agent("echo")
    echo.handles(_echo)
    async with (
        open_bus(echo, settings=unhurried) as bus,
        elsewhere(bus, "worker-1", "unaware") as one,
    ):
        sent = await bus.send("worker", "ask")
        await one.says("started")
        one.process.send_signal(signal.SIGSTOP)
        async with running(bus, two):
            await started.wait()
            one.process.send_signal(signal.SIGCONT)
            await one.end_handler()
            await one.says("answered")
            may_send.set()
            assert (await sent.result()).summary == "asked"
            assert (await sent.receipt()).by == "worker-1"


async def test_an_agent_that_comes_back_under_its_id_takes_up_what_it_had(
    open_bus: Any, unhurried: Settings, elsewhere: Any, read_events: Any
) -> None:
    again = Blocker(id="worker-1")
    again.may_end.set()
    async with open_bus(settings=unhurried) as bus:
        async with elsewhere(bus, "worker-1") as one:
            sent = await bus.send("worker", "x")
            await one.says("started")
            one.process.kill()
        async with running(bus, again.agent):
            assert (await sent.result()).summary == "worker-1 did x"
        events = [it.event for it in await read_events(bus, sent.handoff_id)]
    assert [(it.attempt, it.lease) for it in events if it.kind == "accepted"] == [(1, 1), (1, 2)]


async def test_an_owner_that_was_away_changes_nothing_when_it_comes_back(
    open_bus: Any, unhurried: Settings, elsewhere: Any, read_events: Any
) -> None:
    """Its answer is not stored, and it does not ack the message that another works on: when that
    one hands back, a third one still gets it."""
    two, three = Blocker(id="worker-2"), Blocker(id="worker-3")
    three.may_end.set()
    async with (
        open_bus(settings=unhurried) as bus,
        elsewhere(bus, "worker-1", "unaware") as one,
    ):
        sent = await bus.send("worker", "x")
        await one.says("started")
        one.process.send_signal(signal.SIGSTOP)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, two.agent)
            await two.started.wait()
            one.process.send_signal(signal.SIGCONT)
            await one.end_handler()
            await one.says("answer.stale", "stderr")
            tasks.cancel_scope.cancel()
        async with running(bus, three.agent):
            one.process.kill()
            assert (await sent.result()).summary == "worker-3 did x"
        events = [it.event for it in await read_events(bus, sent.handoff_id)]
    assert [it.actor for it in events if it.kind == "settled"] == ["worker-3"]
    assert [it.lease for it in events if it.kind == "accepted"] == [1, 2, 3]
    assert {it.attempt for it in events if it.kind == "accepted"} == {1}


async def test_an_owner_that_was_away_stops_working_when_it_comes_back(
    open_bus: Any, unhurried: Settings, elsewhere: Any
) -> None:
    two = Blocker(id="worker-2")
    async with open_bus(settings=unhurried) as bus, elsewhere(bus, "worker-1") as one:
        sent = await bus.send("worker", "x")
        await one.says("started")
        one.process.send_signal(signal.SIGSTOP)
        async with running(bus, two.agent):
            await two.started.wait()
            one.process.send_signal(signal.SIGCONT)
            await one.says("lease.lost", "stderr")
            two.may_end.set()
            assert (await sent.result()).summary == "worker-2 did x"


async def test_a_handoff_that_kills_its_agents_is_given_up(
    open_bus: Any, quick: Settings, bounce: Any, read_events: Any
) -> None:
    """Each takeover spends no attempt, but there are only so many."""
    async with open_bus(settings=quick, limit=30) as bus:
        sent = await bus.send("worker", "x")
        for number in range(6):
            blocker = Blocker(id=f"worker-{number}")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.run, blocker.agent)
                await blocker.started.wait()
                tasks.cancel_scope.cancel()
        error = await bounce(sent)
        events = [it.event for it in await read_events(bus, sent.handoff_id)]
    assert error.receipt.state == "dead"
    assert "changed hands 5 times" in error.receipt.reason
    assert [it.lease for it in events if it.kind == "accepted"] == [1, 2, 3, 4, 5, 6]


async def test_a_lease_is_kept_while_no_keeper_answers(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping, may_end, kept = anyio.CancelScope(), anyio.Event(), [0]
    keep, in_progress = testing.run_receipt_keeper, Received.in_progress

    async def run_receipt_keeper(*arguments: Any) -> None:
        with keeping:
            await keep(*arguments)

    async def count(received: Received) -> None:
        kept[0] += 1
        await in_progress(received)

    monkeypatch.setattr(testing, "run_receipt_keeper", run_receipt_keeper)
    monkeypatch.setattr(Received, "in_progress", count)
    agent = Agent("patient")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        await may_end.wait()
        return TaskResult.passed("done")

    async with open_bus(agent) as bus:
        sent = await bus.send("patient", "x")
        await sent.receipt()
        keeping.cancel()
        before = kept[0]
        await until(lambda: kept[0] >= before + 6)
        may_end.set()
