"""Where nobody knows how full a context is, what happened in the session forces a compaction: each
trigger of the policy does, and none that the policy leaves out."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from gate_bench import TEN_FIELDS, Builder, journal, until, with_session
from msgspec.structs import replace

from batonbus import Bus, Context, TestBus
from batonbus.rules.policy import TRIGGERS, ContextManagement, Fallback, Policy, Trigger
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_operator
from batonbus.run.gate import Gate
from batonbus.testing import FAST
from batonbus.wire.agreed import store_policy
from batonbus_schemas import Checkpoint, ContextUsage, Dispatch, ResetJournal, TaskResult

pytestmark = pytest.mark.anyio

AGENT = "builder-1"
STOPS_SOON = replace(FAST, stop_grace=0.05)
CHECKPOINT = Checkpoint(
    agent=AGENT,
    work="demo",
    task="TASK-01",
    phase="implement",
    did="The parser.",
    checks="make test",
    next="Write the printer.",
    context="compact: by hand",
    written=datetime(2026, 1, 1, tzinfo=UTC),
    handoff=TEN_FIELDS,
)

Scenario = Callable[[TestBus, Builder], Awaitable[None]]


def without(*left_out: Trigger) -> tuple[Trigger, ...]:
    return tuple(it for it in TRIGGERS if it not in left_out)


async def set_triggers(bus: TestBus, triggers: tuple[Trigger, ...]) -> None:
    """Before an agent joins: it begins with them. A task's end alone resets nothing here."""
    policy = Policy(
        fallback=Fallback(triggers=triggers),
        context_management=ContextManagement(task_boundary="off"),
    )
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        await store_policy(core.connection, DEFAULT_FLEET, policy)


@asynccontextmanager
async def running(bus: TestBus, builder: Builder) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.run, builder.agent)
        yield
        tasks.cancel_scope.cancel()


async def interrupted(bus: TestBus, builder: Builder) -> None:
    """What one life of the agent was stopped in the middle of comes to the next."""
    before, stop = Builder(id=AGENT), anyio.Event()

    @before.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        before.handled.append(task.brief)
        await anyio.sleep_forever()
        raise AssertionError

    async with Bus(bus.server.url, actor="sender") as sender:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bus.run(before.agent, stop=stop))
            sent = await sender.send("builder", "one", work="demo", task="TASK-01")
            await until(lambda: before.handled)
            stop.set()
        async with running(bus, builder):
            await sent.result()


async def interrupted_behind_a_checkpoint(bus: TestBus, builder: Builder) -> None:
    ago = datetime.now(UTC) - timedelta(hours=1)
    done = ResetJournal(
        agent=AGENT,
        step="done",
        verb="compact",
        reason="by hand",
        began=ago,
        usage=ContextUsage(),
        work="demo",
        checkpoint=CHECKPOINT,
    )
    async with Bus(bus.server.url, actor=AGENT) as agent:
        await agent.client.checkpoints.put(done)
    await interrupted(bus, builder)


async def mended_twice(bus: TestBus, builder: Builder) -> None:
    @builder.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return TaskResult.passed(what="done")

    async with running(bus, builder):
        await (await bus.send("builder", "one")).result()


async def mistook_the_task(bus: TestBus, builder: Builder) -> None:
    @builder.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        return replace(TaskResult.passed(what="done"), task=task.brief)

    async with running(bus, builder):
        for told in ("TASK-07", "TASK-01"):
            await (await bus.send("builder", told, work="demo", task="TASK-01")).result()


async def moved_on_after_an_hour(bus: TestBus, builder: Builder) -> None:
    async with running(bus, builder):
        for task in ("TASK-01", "TASK-02"):
            await (await bus.send("builder", "one", work="demo", task=task)).result()


@pytest.mark.parametrize(
    ("scenario", "triggers", "reason"),
    [
        (
            interrupted_behind_a_checkpoint,
            ("user_interruption_resume",),
            "user_interruption_resume",
        ),
        (interrupted_behind_a_checkpoint, without("user_interruption_resume"), ""),
        (
            interrupted,
            without("user_interruption_resume"),
            "cannot_state_project_task_phase_next",
        ),
        (
            interrupted,
            without("user_interruption_resume", "cannot_state_project_task_phase_next"),
            "",
        ),
        (mended_twice, ("two_fix_review_rounds",), "two_fix_review_rounds"),
        (mended_twice, without("two_fix_review_rounds"), ""),
        (
            mistook_the_task,
            ("wrong_project_or_tool_target_confusion",),
            "wrong_project_or_tool_target_confusion",
        ),
        (mistook_the_task, without("wrong_project_or_tool_target_confusion"), ""),
        (
            moved_on_after_an_hour,
            ("before_new_roadmap_task_after_long_task",),
            "before_new_roadmap_task_after_long_task",
        ),
        (moved_on_after_an_hour, without("before_new_roadmap_task_after_long_task"), ""),
    ],
)
async def test_a_trigger_forces_a_compaction_where_the_policy_has_it(
    open_bus: Any,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Scenario,
    triggers: tuple[Trigger, ...],
    reason: str,
) -> None:
    builder = with_session(None, id=AGENT)
    if scenario is moved_on_after_an_hour:
        note = Gate.note_worked
        monkeypatch.setattr(
            Gate, "note_worked", lambda self, it, _, result: note(self, it, 3600.0, result)
        )
    async with open_bus(settings=STOPS_SOON) as bus:
        await set_triggers(bus, triggers)
        await scenario(bus, builder)
        stored = await journal(bus, builder.agent) if reason else None
    assert [it.step for it in builder.requests] == (["handoff", "reset"] if reason else [])
    if stored is not None:
        assert (stored.step, stored.reason) == ("done", f"compaction required: {reason}")
        checkpoint = stored.checkpoint
        assert checkpoint is not None
        assert checkpoint.handoff is not None
        known = (
            checkpoint.handoff.active_project,
            checkpoint.handoff.active_task,
            checkpoint.phase,
            checkpoint.next,
        )
        assert all(it.strip() for it in known)
