"""The context gate at work: an agent whose context is full is given nothing new."""

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from gate_bench import TEN_FIELDS, Builder, closed_for, journal, presence, until, with_session
from msgspec.structs import replace

from batonbus import Agent, Bus, Context, ContextFullError, ResetDone, ResetRequest, Settings
from batonbus.testing import FAST
from batonbus.wire.ledger import Draft, Ledger
from batonbus.wire.registry import Registry
from batonbus_schemas import (
    CompactionHandoff,
    ContextUsage,
    Dispatch,
    Presence,
    ResetJournal,
    TaskResult,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("role", "percent", "level", "resets"),
    [
        ("scheduler", 59.9, "soft", 0),
        ("scheduler", 60.0, "hard", 2),
        ("builder", 64.9, "soft", 0),
        ("builder", 65.0, "hard", 2),
        ("verifier", 69.9, "soft", 0),
        ("verifier", 70.0, "hard", 2),
        ("stranger", 69.9, "soft", 0),
        ("stranger", 70.0, "hard", 2),
    ],
)
async def test_each_role_is_given_more_below_its_own_line_and_nothing_at_it(
    open_bus: Any, role: str, percent: float, level: str, resets: int
) -> None:
    agent = with_session(20.0, role=role)
    async with open_bus(agent.agent) as bus:
        await (await bus.send(role, f"one {percent}")).result()
        await (await bus.send(role, "two")).result()
    assert agent.levels == [level]
    assert agent.handled == ["one", "two"]
    assert len(agent.requests) == resets


async def test_a_session_that_is_marked_is_closed_at_10_percent_until_it_was_compacted(
    open_bus: Any,
) -> None:
    builder, levels = with_session(8.0), list[str]()
    builder.may_reset = anyio.Event()

    @builder.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        if task.brief == "one":
            levels.append(await ctx.usage(percent=10, compression_required=True))
        return TaskResult.passed(what="done")

    async with open_bus(builder.agent) as bus:
        await (await bus.send("builder", "one")).result()
        await until(lambda: builder.requests[1:])
        sent = await bus.send("builder", "two")
        receipt = await sent.receipt()
        builder.may_reset.set()
        await sent.result()
        stored = await journal(bus, builder.agent)
    assert levels == ["open"]
    assert (receipt.state, receipt.reason) == ("held", "closed: compacting")
    assert (stored.step, stored.usage.percent) == ("done", 10.0)
    assert stored.reason == "compaction required: marked by its handler"


async def test_a_full_agent_is_held_for_at_once_and_what_waits_flows_in_order(
    open_bus: Any, read_events: Any
) -> None:
    builder = with_session(20.0)
    builder.may_reset = anyio.Event()
    async with open_bus(builder.agent, settings=Settings(heartbeat=0.2, ack_wait=1.0)) as bus:
        await (await bus.send("builder", "full 66")).result()
        await until(lambda: builder.requests[1:])
        waiting = [await bus.send("builder", f"{number}") for number in range(30)]
        with anyio.fail_after(5):
            receipts = [await it.receipt() for it in waiting]
        assert {(it.state, it.by, it.reason) for it in receipts} == {
            ("held", "window-manager", "closed: compacting")
        }
        there = await presence(bus, builder.agent)
        assert (there.closed, there.card.context_usage.percent) == ("compacting", 66.0)
        builder.may_reset.set()
        for it in waiting:
            await it.result()
        delivered = [
            event.event.sequence
            for it in waiting
            for event in await read_events(bus, it.handoff_id)
            if event.event.kind == "delivered"
        ]
        stored = await journal(bus, builder.agent)
    assert delivered == sorted(delivered)
    assert builder.handled == ["full", *(str(number) for number in range(30))]
    assert [it.step for it in builder.requests] == ["handoff", "reset"]
    assert builder.requests[1].checkpoint == stored.checkpoint
    assert (stored.step, stored.handoff, stored.usage.percent) == ("done", TEN_FIELDS, 66.0)
    assert stored.checkpoint is not None
    assert stored.checkpoint.next == "Write the printer."


async def test_a_role_waits_only_while_every_agent_of_it_is_closed(open_bus: Any) -> None:
    full = with_session(20.0, id="full")
    full.may_reset = anyio.Event()
    free = Builder(id="free")
    async with open_bus(full.agent, free.agent) as bus:
        await (await bus.send("full", "one 70")).result()
        for number in range(5):
            await (await bus.send("builder", f"{number}")).result()
        assert free.handled == ["0", "1", "2", "3", "4"]
        held = await (await bus.send("full", "two")).receipt()
        full.may_reset.set()
    assert (held.state, held.reason[:7]) == ("held", "closed:")


async def test_without_a_gain_the_agent_stays_closed_and_says_the_numbers(
    open_bus: Any, caplog: pytest.LogCaptureFixture
) -> None:
    builder = with_session(41.0)
    async with open_bus(builder.agent) as bus:
        await (await bus.send("builder", "one 66")).result()
        await closed_for(bus, builder.agent, "no gain")
        receipt = await (await bus.send("builder", "two")).receipt()
        stored = await journal(bus, builder.agent)
    assert receipt.reason == "closed: no gain: 41 % after compaction, target 15–25 %"
    assert stored.step == "no_gain"
    assert builder.handled == ["one"]
    assert any(it.levelname == "ERROR" and "no gain" in it.getMessage() for it in caplog.records)


async def test_a_compaction_below_its_target_opens_and_is_logged(
    open_bus: Any, caplog: pytest.LogCaptureFixture
) -> None:
    builder = with_session(4.0)
    async with open_bus(builder.agent) as bus:
        await (await bus.send("builder", "one 66")).result()
        await (await bus.send("builder", "two")).result()
    warned = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert any("4 % after compaction, target 15–25 %" in it for it in warned)


async def test_a_source_of_usage_that_nobody_knows_is_an_error(open_bus: Any) -> None:
    agent = Agent("builder")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        with pytest.raises(ValueError, match="measured, estimated, unknown, not 'guessed'"):
            await ctx.usage(percent=90, source="guessed")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - theirs
        return TaskResult.passed(what=await ctx.usage())

    async with open_bus(agent) as bus:
        assert (await (await bus.send("builder", "x")).result()).summary == "unknown"


async def test_an_agent_without_resets_gets_the_headless_rule(open_bus: Any) -> None:
    builder = Builder()
    async with open_bus(builder.agent) as bus:
        first = await bus.send("builder", "one 66", work="w", task="TASK-01")
        await first.result()
        await (await bus.send("builder", "two")).result()
        stored = await journal(bus, builder.agent)
        there = await presence(bus, builder.agent)
    assert (stored.step, stored.verb, stored.work) == ("done", "clear", "w")
    assert stored.checkpoint is not None
    assert stored.checkpoint.handoff is not None
    assert stored.checkpoint.handoff.completed == "one"
    assert stored.checkpoint.handoff.active_task == "TASK-01"
    assert stored.checkpoint.next == "take the next handoff"
    assert (there.closed, there.card.context_usage) == ("", ContextUsage())


async def test_fields_that_are_left_out_are_asked_for_once_more_and_then_it_fails(
    open_bus: Any,
) -> None:
    agent, requests = Builder().agent, list[ResetRequest]()

    @agent.resets
    async def reset(request: ResetRequest) -> ResetDone:
        requests.append(request)
        fields = dict.fromkeys(CompactionHandoff.__struct_fields__, "x") | {"completed": " "}
        return ResetDone(handoff=CompactionHandoff(**fields))

    async with open_bus(agent) as bus:
        await (await bus.send("builder", "one 66")).result()
        closed = await closed_for(bus, agent, "incomplete")
        stored = await journal(bus, agent)
    assert closed == "compaction handoff incomplete: no completed"
    assert [(it.step, it.missing) for it in requests] == [
        ("handoff", ()),
        ("handoff", ("completed",)),
    ]
    assert (stored.step, stored.checkpoint) == ("began", None)


async def test_at_hard_a_handler_sends_nothing_until_it_has_compacted(open_bus: Any) -> None:
    builder, other, seen = with_session(20.0), Builder(role="other"), dict[str, Any]()

    @builder.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        assert await ctx.usage() == "unknown"
        assert await ctx.usage(percent=66, source="estimated") == "hard"
        with pytest.raises(ContextFullError) as caught:
            await ctx.send("other", "x")
        seen["error"] = str(caught.value)
        seen["usage"] = await ctx.compact()
        seen["level"] = await ctx.usage()
        return await (await ctx.send("other", "x")).result()

    async with open_bus(builder.agent, other.agent) as bus:
        assert (await (await bus.send("builder", "one")).result()).status == "PASS"
    assert "66 %, and from 65 % on nothing is sent" in seen["error"]
    assert (seen["usage"].percent, seen["level"]) == (20.0, "open")
    assert {it.verb for it in builder.requests} == {"compact"}


async def test_at_emergency_no_command_starts_and_the_result_waits_for_a_compaction(
    open_bus: Any,
) -> None:
    builder, order = with_session(20.0), list[str]()
    builder.may_reset = anyio.Event()

    @builder.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        assert await ctx.usage(percent=80) == "emergency"
        with pytest.raises(ContextFullError, match="from 80 % on no command is started"):
            ctx.check_command()
        return TaskResult.passed(what="done")

    async with open_bus(builder.agent) as bus:
        sent = await bus.send("builder", "one")
        await until(lambda: builder.requests[1:])
        with anyio.move_on_after(0.3) as waited:
            await sent.result()
        order.append("waited" if waited.cancelled_caught else "answered")
        builder.may_reset.set()
        assert (await sent.result()).status == "PASS"
    assert order == ["waited"]


async def test_a_kept_back_result_of_a_session_that_cannot_compact_is_made_by_another(
    open_bus: Any, read_kinds: Any
) -> None:
    full, free = with_session(79.0, id="a"), Builder(id="b")

    @full.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        await ctx.usage(percent=85)
        return TaskResult.passed(what="never said")

    async with open_bus(full.agent) as bus:
        sent = await bus.send("builder", "one")
        await closed_for(bus, full.agent, "no gain")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, free.agent)
            assert (await sent.result()).summary == "one"
            tasks.cancel_scope.cancel()
        attempts = await read_kinds(bus, sent)
    assert attempts.count("accepted") == 2


async def test_no_handoff_is_accepted_after_a_report_is_stored(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand handoffs race one report."""
    agent, steps = Agent("builder", slots=50), list[str]()
    append, put = Ledger.append, Registry.put

    async def noted_append(ledger: Ledger, draft: Draft, *, tail: int) -> int:
        # What is written first on one connection reaches the server first; answers may overtake.
        steps.append(draft.subject.kind)
        return await append(ledger, draft, tail=tail)

    async def noted_put(registry: Registry, presence: Presence) -> None:
        await put(registry, presence)
        if presence.card.context_usage.percent == 66:
            steps.append("stored")

    monkeypatch.setattr(Ledger, "append", noted_append)
    monkeypatch.setattr(Registry, "put", noted_put)

    @agent.resets
    async def reset(request: ResetRequest) -> ResetDone:
        steps.append(request.step)
        return ResetDone(handoff=TEN_FIELDS, usage=ContextUsage(source="measured", percent=20))

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        if task.brief == "300":
            await ctx.usage(percent=66)
            assert "stored" in steps
        return TaskResult.passed(what="done")

    # A busy machine may take its time with a thousand.
    patient = replace(FAST, receipt_timeout=30.0, give_up_after=60.0)
    async with open_bus(agent, settings=patient, limit=60) as bus:
        results = 0

        async def send(number: int) -> None:
            nonlocal results
            await (await bus.send("builder", f"{number}")).result()
            results += 1

        async with anyio.create_task_group() as tasks:
            for number in range(1000):
                tasks.start_soon(send, number)
    stored, reset_at = steps.index("stored"), steps.index("reset")
    assert "accepted" in steps[:stored]
    assert "accepted" not in steps[stored:reset_at]
    assert results == 1000


async def test_where_the_usage_is_unknown_two_rounds_of_fixing_force_a_compaction(
    open_bus: Any, read_kinds: Any
) -> None:
    """The third attempt begins in a session that was compacted."""
    builder, attempts = with_session(None), list[tuple[int, int]]()

    @builder.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        attempts.append((ctx.attempt, len(builder.requests)))
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return TaskResult.passed(what="done")

    async with open_bus(builder.agent) as bus:
        sent = await bus.send("builder", "x")
        await sent.result()
        stored = await journal(bus, builder.agent)
        kinds = await read_kinds(bus, sent)
    assert attempts == [(1, 0), (2, 0), (3, 2)]
    assert stored.reason == "compaction required: two_fix_review_rounds"
    assert kinds.count("accepted") == 3


async def test_between_two_tasks_a_session_is_compacted_and_within_one_it_is_not(
    open_bus: Any,
) -> None:
    builder, seen = with_session(20.0, 20.0), list[int]()
    async with open_bus(builder.agent) as bus:
        for task in ("TASK-01", "TASK-01", "TASK-02", "TASK-02"):
            await (await bus.send("builder", f"{task} 30", work="w", task=task)).result()
            seen.append(len(builder.requests))
    assert seen == [0, 0, 2, 2]
    assert {(it.verb, it.reason) for it in builder.requests} == {
        ("compact", "compaction required: task boundary")
    }


async def test_a_restart_goes_on_with_a_reset_that_was_not_done(open_bus: Any) -> None:
    builder = with_session(20.0)
    began = ResetJournal(
        agent="builder-1",
        step="handoff",
        verb="compact",
        reason="context usage 66 %",
        began=datetime.now(UTC),
        usage=ContextUsage(source="measured", percent=66),
        work="w",
        handoff=TEN_FIELDS,
    )
    agent = Agent("builder", id="builder-1")
    agent.handles(builder.work)
    agent.resets(builder.reset)
    async with open_bus() as bus:
        async with Bus(bus.server.url, actor="builder-1") as before:
            await before.client.checkpoints.put(began)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, agent)
            await (await bus.send("builder", "one")).result()
            stored = await journal(bus, agent)
            tasks.cancel_scope.cancel()
    assert [it.step for it in builder.requests] == ["reset"]
    assert stored.step == "done"
    assert stored.checkpoint is not None
    assert (stored.checkpoint.work, stored.checkpoint.next) == ("w", "Write the printer.")
