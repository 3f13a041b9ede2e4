"""Handlers that hand on and ask others: who is answered, and what each one sees of the others."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import anyio
import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from batonbus import Agent, Bounced, ConflictError, Context, Refuse, Sent, gather
from batonbus.rules.chain import child_id, keyed_id
from batonbus.run.core import open_operator
from batonbus.testing import FAST
from batonbus_schemas import (
    Delivery,
    Dispatch,
    Question,
    Receipt,
    TaskResult,
    Then,
    WindowEntry,
    decode,
    encode,
)

pytestmark = pytest.mark.anyio

Seen = dict[str, tuple[WindowEntry, ...]]


def levels(window: tuple[WindowEntry, ...]) -> list[tuple[str, str]]:
    return [(it.from_, it.level.value) for it in window]


def steps(seen: Seen, *roles: str) -> list[Agent]:
    """One agent a role: each notes its window and hands on to the next; the last one answers."""

    def step(role: str, to: str | None) -> Agent:
        agent = Agent(role)

        @agent.handles
        async def work(task: Dispatch, ctx: Context) -> TaskResult | Then:
            seen[role] = ctx.window
            result = TaskResult.passed(what=f"{role} did it", why="because", caution="mind it")
            return result.then(to, f"after {role}") if to else result

        return agent

    return [step(role, to) for role, to in zip(roles, [*roles[1:], None], strict=True)]


def recorder(role: str, seen: dict[str, Context], *, slots: int = 4) -> Agent:
    """An agent that notes how it was asked, by brief."""
    agent = Agent(role, slots=slots)

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        seen[task.brief] = ctx
        return TaskResult.passed(what=f"{role} did {task.brief}", why=f"why {task.brief}")

    return agent


async def test_then_answers_the_same_waiter_with_the_end_of_the_line(open_bus: Any) -> None:
    seen: Seen = {}
    async with open_bus(*steps(seen, "builder", "verifier", "committer")) as bus:
        sent = await bus.send("builder", "x")
        result = await sent.result()
        assert sent.settled_id == child_id(child_id(sent.handoff_id))
    assert result.summary == "committer did it"
    assert levels(seen["builder"]) == []
    assert levels(seen["verifier"]) == [("builder", "FULL")]
    assert levels(seen["committer"]) == [("verifier", "FULL"), ("builder", "SUMMARY")]


async def test_a_summary_has_what_alone_and_full_has_all_four_fields(open_bus: Any) -> None:
    seen: Seen = {}
    async with open_bus(*steps(seen, "builder", "verifier", "committer")) as bus:
        await (await bus.send("builder", "x")).result()
    full, summary = seen["committer"]
    assert (full.what, full.why) == ("verifier did it", "because")
    assert (full.caution, full.incomplete) == ("mind it", "None")
    assert (summary.what, summary.why) == ("builder did it", None)
    assert (summary.caution, summary.incomplete) == (None, None)


async def test_a_line_that_is_refused_on_its_way_bounces(open_bus: Any, bounce: Any) -> None:
    first, second = steps({}, "builder", "verifier")

    @second.handles
    async def refuse(task: Dispatch, ctx: Context) -> TaskResult:
        raise Refuse("not today")

    async with open_bus(first, second) as bus:
        sent = await bus.send("builder", "x")
        error = await bounce(sent)
        with pytest.raises(Bounced):
            _ = sent.settled_id
    assert error.receipt.handoff_id == child_id(sent.handoff_id)
    assert (error.receipt.by, error.receipt.reason) == (second.card.id, "not today")


async def test_then_to_a_name_that_is_none_is_a_failed_attempt_that_says_so(
    open_bus: Any, bounce: Any, read_events: Any
) -> None:
    agent = Agent("builder")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="done").then("no such.role", "x")

    async with open_bus(agent) as bus:
        sent = await bus.send("builder", "x")
        error = await bounce(sent)
        events = await read_events(bus, sent.handoff_id)
    assert error.receipt.state == "dead"
    failed = [decode(it.payload, Receipt).reason for it in events if it.event.kind == "failed"]
    assert len(failed) == 3
    assert all("$.next.to: `no such.role` is no name" in it for it in failed)


async def test_the_fiftieth_step_sees_and_costs_what_the_fourth_does(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step adds 3 KB; a window holds the last one in full and a summary of the one before.
    What grows is the trail alone, by a name and a digest a hop."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    hops = 50
    agents = [Agent("ping"), Agent("pong")]

    async def work(task: Dispatch, ctx: Context) -> TaskResult | Then:
        number = int(task.brief)
        lines = ("x" * 59 + "\n") * 50
        result = TaskResult.passed(what=f"step {number:02}\nmore\nlines\n{lines}")
        to = "pong" if ctx.envelope.to == "ping" else "ping"
        return result.then(to, f"{number + 1:02}") if number < hops else result

    for agent in agents:
        agent.handles(work)
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    async with open_bus(*agents, settings=replace(FAST, hop_limit=hops)) as bus:
        sent = await bus.send("ping", "01", work="long", task="TASK-07", deadline=deadline)
        assert (await sent.result()).summary.startswith(f"step {hops}")
        async with open_operator(bus.server.url, fleet="default") as core:
            chains, handoff_id = [], sent.handoff_id
            for _ in range(hops):
                chains.append(await core.ledger.read_chain(handoff_id))
                handoff_id = child_id(handoff_id)
    delivered = [next(it for it in chain if it.event.kind == "delivered") for chain in chains]
    sizes: list[int] = []
    for number, stored in enumerate(delivered, start=1):
        delivery = decode(stored.payload, Delivery)
        sizes.append(len(encode(replace(delivery, trail=()))))
        assert len(delivery.trail) == number
        assert len(stored.payload) - sizes[-1] <= 45 * number + 15
        envelope, window = delivery.envelope, delivery.window
        assert (envelope.work, envelope.task, envelope.reply_to) == ("long", "TASK-07", "test")
        assert (envelope.deadline, envelope.hops) == (deadline, number - 1)
        before = [f"step {it:02}" for it in (number - 1, number - 2) if it > 0]
        assert [it.what.splitlines()[0] for it in window] == before
        assert [it.level.value for it in window] == ["FULL", "SUMMARY"][: number - 1]
    sizes = sizes[3:]
    assert max(sizes) - min(sizes) <= 8  # the digits of hops and sequences
    assert max(sizes) < 4_500
    traces = {it.headers["traceparent"].split("-")[1] for chain in chains for it in chain}
    assert len(traces) == 1


async def test_a_handler_asks_others_and_its_keys_are_its_memory(open_bus: Any) -> None:
    asked: dict[str, Context] = {}
    scheduler, handled = Agent("scheduler"), []

    @scheduler.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        handled.append(ctx.envelope.id)
        sent = [await ctx.send("builder", f"part {it}", key=f"part-{it}") for it in range(3)]
        again = await ctx.send("builder", "part 1", key="part-1")
        assert again.handoff_id == sent[1].handoff_id
        with pytest.raises(ConflictError, match="another body"):
            await ctx.send("builder", "something else", key="part-1")
        results = await gather(*sent, again)
        return TaskResult.passed(what=", ".join(it.summary for it in results))

    async with open_bus(scheduler, recorder("builder", asked)) as bus:
        result = await (await bus.send("scheduler", "x", work="w")).result()
    assert result.summary == (
        "builder did part 0, builder did part 1, builder did part 2, builder did part 1"
    )
    assert sorted(asked) == ["part 0", "part 1", "part 2"]
    envelope = asked["part 2"].envelope
    assert envelope.id == keyed_id(handled[0], "part-2")
    assert (envelope.within, envelope.work, envelope.hops) == (handled[0], "w", 1)
    assert (envelope.sender, envelope.reply_to) == (scheduler.card.id, scheduler.card.id)


async def test_a_handler_that_runs_again_finds_what_it_asked_before(open_bus: Any) -> None:
    asked: list[str] = []
    scheduler, builder = Agent("scheduler"), Agent("builder")

    @scheduler.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        first = await (await ctx.send("builder", "first", key="first")).result()
        if ctx.attempt == 1:
            raise RuntimeError("lost its memory")
        second = await (await ctx.send("builder", "second", key="second")).result()
        return TaskResult.passed(what=f"{first.summary}, {second.summary}")

    @builder.handles
    async def build(task: Dispatch, ctx: Context) -> TaskResult:
        asked.append(task.brief)
        return TaskResult.passed(what=f"built {task.brief}")

    async with open_bus(scheduler, builder) as bus:
        result = await (await bus.send("scheduler", "x")).result()
    assert result.summary == "built first, built second"
    assert asked == ["first", "second"]


async def test_the_key_of_a_send_is_its_addressee_unless_said_otherwise(open_bus: Any) -> None:
    scheduler, ids = Agent("scheduler"), []

    @scheduler.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        sent = await ctx.send("builder", "once")
        ids.extend([sent.handoff_id, keyed_id(ctx.envelope.id, "builder")])
        with pytest.raises(ConflictError, match="use another id or key"):
            await ctx.send("builder", "twice")
        return await sent.result()

    async with open_bus(scheduler, recorder("builder", {})) as bus:
        await (await bus.send("scheduler", "x")).result()
    assert ids[0] == ids[1]


async def test_the_joint_of_a_diamond_sees_both_sides_in_full_and_the_root_once(
    open_bus: Any,
) -> None:
    seen: dict[str, Context] = {}
    async with open_bus(*(recorder(role, seen) for role in ("top", "left", "right", "joint"))) as (
        bus
    ):
        top = await bus.send("top", "t")
        await top.result()
        sides = [await bus.send(role, role[0], after=[top]) for role in ("left", "right")]
        await gather(*sides)
        joint = await bus.send("joint", "j", after=sides)
        await joint.result()
    assert levels(seen["l"].window) == levels(seen["r"].window) == [("top", "FULL")]
    window = levels(seen["j"].window)
    assert sorted(window) == [("left", "FULL"), ("right", "FULL"), ("top", "SUMMARY")]
    assert window[-1] == ("top", "SUMMARY")


async def test_a_handoff_that_has_no_result_yet_cannot_be_named_in_after(
    open_bus: Any,
) -> None:
    async with open_bus() as bus:
        sent = await bus.send("nobody", "x")
        with pytest.raises(RuntimeError, match="has no result yet: await it first"):
            await bus.send("nobody", "y", after=[sent])


async def test_a_scheduler_is_transparent_unless_it_says_after(open_bus: Any) -> None:
    """What it asks for without `after` sees what it sees itself; an empty `after` sees nothing."""
    seen: dict[str, Context] = {}
    starter, scheduler = Agent("starter"), Agent("scheduler")

    @starter.handles
    async def start(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="started").then("scheduler", "go on")

    @scheduler.handles
    async def schedule(task: Dispatch, ctx: Context) -> TaskResult:
        seen["scheduler"] = ctx
        inherits = await ctx.send("builder", "inherits", key="1")
        await inherits.result()
        nothing = await ctx.send("builder", "nothing", key="2", after=[])
        after = await ctx.send("builder", "after", key="3", after=[inherits])
        await gather(nothing, after)
        return TaskResult.passed(what="all done")

    async with open_bus(starter, scheduler, recorder("builder", seen)) as bus:
        await (await bus.send("starter", "x")).result()
    assert levels(seen["scheduler"].window) == [("starter", "FULL")]
    assert seen["inherits"].window == seen["scheduler"].window
    assert seen["nothing"].window == ()
    assert levels(seen["after"].window) == [("builder", "FULL"), ("starter", "SUMMARY")]


async def test_a_pipeline_of_tasks_gives_the_three_windows_of_the_sliding_window_page(
    open_bus: Any,
) -> None:
    """Verifier: builder FULL. Committer: verifier FULL, builder SUMMARY. Next task's builder: the
    task it needs FULL, the one before SUMMARY. A rebuild sees its stages and its tasks."""
    seen: dict[str, Context] = {}
    scheduler = Agent("scheduler")

    @scheduler.handles
    async def schedule(task: Dispatch, ctx: Context) -> TaskResult:
        async def ask(role: str, task_id: str, after: list[Sent], key: str = "") -> Sent:
            key = f"{task_id} {role}{key}"
            sent = await ctx.send(role, key, key=key, task=task_id, after=after)
            await sent.result()
            return sent

        committed: list[Sent] = []
        for task_id in ("TASK-01", "TASK-02", "TASK-03"):
            built = await ask("builder", task_id, committed)
            verified = await ask("verifier", task_id, [built])
            if task_id == "TASK-03":
                built = await ask("builder", task_id, [verified], " again")
                verified = await ask("verifier", task_id, [built], " again")
            committed = [await ask("committer", task_id, [verified])]
        return TaskResult.passed(what="three tasks")

    async with open_bus(
        scheduler, *(recorder(role, seen) for role in ("builder", "verifier", "committer"))
    ) as bus:
        await (await bus.send("scheduler", "plan", work="WORK-01")).result()

    def window(key: str) -> list[tuple[str | None, str, str]]:
        return [(it.task, it.from_, it.level.value) for it in seen[key].window]

    assert window("TASK-01 builder") == []
    for task_id in ("TASK-01", "TASK-02"):
        assert window(f"{task_id} verifier") == [(task_id, "builder", "FULL")]
        assert window(f"{task_id} committer") == [
            (task_id, "verifier", "FULL"),
            (task_id, "builder", "SUMMARY"),
        ]
    assert window("TASK-02 builder") == [("TASK-01", "committer", "FULL")]
    assert window("TASK-03 builder") == [
        ("TASK-02", "committer", "FULL"),
        ("TASK-01", "committer", "SUMMARY"),
    ]
    assert window("TASK-03 builder again") == [
        ("TASK-03", "verifier", "FULL"),
        ("TASK-03", "builder", "SUMMARY"),
        ("TASK-02", "committer", "FULL"),
        ("TASK-01", "committer", "SUMMARY"),
    ]


async def test_the_text_of_the_assignment_has_the_brief_and_the_window(open_bus: Any) -> None:
    seen: dict[str, Context] = {}
    (first,) = steps({}, "builder")
    first.handles(_to_reviewer)
    async with open_bus(first, recorder("reviewer", seen)) as bus:
        await (await bus.send("builder", "x", work="w")).result()
    text = seen["read it"].text
    assert "read it" in text
    assert "built it" in text
    assert "reviewer" in text


async def _to_reviewer(task: Dispatch, ctx: Context) -> Then:
    return TaskResult.passed(what="built it").then("reviewer", "read it")


async def test_what_was_asked_for_and_refused_bounces_in_the_handler(open_bus: Any) -> None:
    scheduler, picky = Agent("scheduler"), Agent("picky")

    @scheduler.handles
    async def schedule(task: Dispatch, ctx: Context) -> TaskResult:
        try:
            await (await ctx.send("picky", Question(text="may I?"))).result()
        except Bounced as error:
            return TaskResult.failed(what=error.receipt.reason)
        raise AssertionError("was not refused")

    @picky.handles
    async def never(task: Dispatch, ctx: Context) -> TaskResult:
        raise AssertionError("is not called")

    async with open_bus(scheduler, picky) as bus:
        result = await (await bus.send("scheduler", "x")).result()
    assert result.summary == "takes Dispatch, not Question"


async def test_a_bounce_inside_a_handlers_task_group_is_told_by_its_own_words(
    open_bus: Any, bounce: Any
) -> None:
    scheduler = Agent("scheduler")

    @scheduler.handles
    async def schedule(task: Dispatch, ctx: Context) -> TaskResult:
        async def part() -> None:
            raise Refuse("no part of that")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(part)
        raise AssertionError("was not raised")

    async with open_bus(scheduler) as bus:
        error = await bounce(await bus.send("scheduler", "x"))
    assert (error.receipt.state, error.receipt.reason) == ("refused", "no part of that")


def test_keys_of_two_handoffs_are_apart() -> None:
    one, two = UUID(int=1), UUID(int=2)
    assert keyed_id(one, "a") != keyed_id(two, "a")
    assert keyed_id(one, "then") != child_id(one)
