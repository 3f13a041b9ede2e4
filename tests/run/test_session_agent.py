"""Agents that are programs with a session: what they say of their context, and how it is reset."""

from datetime import UTC, datetime
from typing import Any, Literal

import anyio
import pytest
from gate_bench import closed_for, journal, presence, until
from msgspec.structs import replace
from stand_ins import CLAUDE, COMPACTED, LOST, Play, claude, claude_failed, lines, session_of

from batonbus import Agent, Bus
from batonbus.rules.compaction import ResetRequest
from batonbus.run.session import Session, find_command_line
from batonbus.run.session_agent import MEASURE, question, session_agent
from batonbus_schemas import Checkpoint, CompactionHandoff, ContextUsage, ResetJournal
from batonbus_schemas.compaction import LABELS, write_compaction

pytestmark = pytest.mark.anyio

TOLD = CompactionHandoff(
    **{
        field: {"current_phase": "implement", "next_safe_action": "Write the printer."}.get(
            field, f"the {label.lower()}"
        )
        for field, label in LABELS.items()
    }
)
SAID = write_compaction(TOLD)
CHECKPOINT = Checkpoint(
    agent="builder-1",
    work="WORK-01",
    task="TASK-01",
    phase="implement",
    did=TOLD.completed,
    checks=TOLD.evidence_paths,
    next=TOLD.next_safe_action,
    context="compact: context usage 66 %",
    written=datetime.now(UTC),
    handoff=TOLD,
)
AFTER = lines(COMPACTED) + claude("", session="s-2").splitlines()[-1]
"""What claude prints for a compaction: 40,000 of 200,000 tokens are left."""


async def work(bus: Any, *briefs: str, **options: Any) -> list[str]:
    results = [await (await bus.send("builder", it, **options)).result() for it in briefs]
    return [it.summary for it in results]


async def usage_is_unknown(bus: Any, agent: Agent) -> None:
    while True:
        if (await presence(bus, agent)).card.context_usage == ContextUsage():
            return
        await anyio.sleep(0.02)


async def test_an_agent_gives_all_its_handoffs_to_one_session(play: Play, open_bus: Any) -> None:
    program = play("claude", claude("One."), ("", 1, LOST), claude("Two.", session="s-2"))
    agent = session_agent("builder", session_of("claude"))
    assert agent.card.runtime == "claude"
    async with open_bus(agent) as bus:
        assert await work(bus, "say One.", "say Two.") == ["One.", "Two."]
    assert program.calls == 3
    assert "say Two." in program.asked(3)


async def test_a_session_that_fills_up_is_compacted_and_its_flow_goes_on_in_order(
    play: Play, open_bus: Any, read_events: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    program = play(
        "claude",
        claude("One.", tokens=80_000),
        claude("Two.", tokens=116_000),
        claude("Three.", tokens=140_000),
        claude(SAID, tokens=142_000),
        AFTER,
        claude("Four.", tokens=50_000),
        claude("Five.", tokens=60_000),
    )
    program.hold(4)
    agent = session_agent("builder", session_of("claude"))
    percents: list[float | None] = []
    async with open_bus(agent) as bus:
        for brief in ("do one", "do two", "do three"):
            await work(bus, brief, work="WORK-01", task="TASK-01")
            percents.append((await presence(bus, agent)).card.context_usage.percent)
        await closed_for(bus, agent, "compacting")
        following = [
            await bus.send("builder", it, work="WORK-01", task="TASK-01")
            for it in ("do four", "do five")
        ]
        receipts = [await it.receipt() for it in following]
        program.release(4)
        results = [(await it.result()).summary for it in following]
        delivered = [
            event.event.sequence
            for it in following
            for event in await read_events(bus, it.handoff_id)
            if event.event.kind == "delivered"
        ]
        stored = await journal(bus, agent)
        usage = (await presence(bus, agent)).card.context_usage
    assert percents == [40.0, 58.0, 70.0]
    levels = [it.getMessage() for it in caplog.records if "level_changed" in it.getMessage()]
    assert ["soft" in levels[1], "hard" in levels[2]] == [True, True], levels
    assert [(it.state, it.reason) for it in receipts] == [("held", "closed: compacting")] * 2
    assert results == ["Four.", "Five."]
    assert delivered == sorted(delivered)
    assert usage == ContextUsage(source="measured", percent=30.0)
    assert (stored.step, stored.verb, stored.handoff) == ("done", "compact", TOLD)
    assert stored.reason == "context usage 70 % (hard 65 %)"
    assert stored.usage_after == ContextUsage(source="estimated", percent=20.0)
    asked = [program.asked(call) for call in range(1, 8)]
    assert "context usage 70 %" in asked[3]
    assert "Next safe action:" in asked[3]
    assert asked[4] == "/compact"
    assert asked[5].startswith(SAID)
    assert "do four" in asked[5]
    assert SAID not in asked[6]
    assert program.words(6)[: len(CLAUDE) + 2] == [*CLAUDE, "--resume", "s-2"]


async def test_without_a_gain_it_stays_closed(play: Play, open_bus: Any) -> None:
    little = lines(COMPACTED | {"compact_metadata": {"post_tokens": 130_000}})
    play(
        "claude",
        claude("One.", tokens=140_000),
        claude(SAID),
        little + claude("", session="s-2").splitlines()[-1],
    )
    agent = session_agent("builder", session_of("claude"))
    async with open_bus(agent) as bus:
        await work(bus, "do one")
        closed = await closed_for(bus, agent, "no gain")
    assert closed == "no gain: 65 % after compaction, target 15–25 %"


async def test_a_compaction_that_does_not_say_what_is_left_is_measured_by_a_question(
    play: Play, open_bus: Any
) -> None:
    silent = lines({**COMPACTED, "compact_metadata": {}}) + claude("").splitlines()[-1]
    program = play(
        "claude",
        claude("One.", tokens=140_000),
        claude(SAID),
        silent,
        claude("The printer.", tokens=40_000),
        claude("Two."),
    )
    agent = session_agent("builder", session_of("claude"))
    async with open_bus(agent) as bus:
        assert await work(bus, "do one", "do two") == ["One.", "Two."]
        stored = await journal(bus, agent)
    assert program.asked(4) == MEASURE
    assert (stored.verb, stored.usage_after.percent) == ("compact", 20.0)


@pytest.mark.parametrize("compacted", [claude_failed("overloaded"), ("", 1, LOST)])
async def test_a_program_that_cannot_compact_begins_afresh_from_the_checkpoint(
    play: Play, open_bus: Any, compacted: Any
) -> None:
    program = play(
        "claude", claude("One.", tokens=140_000), claude(SAID), compacted, claude("Two.")
    )
    agent = session_agent("builder", session_of("claude"))
    async with open_bus(agent) as bus:
        assert await work(bus, "do one", "do two", work="WORK-01", task="TASK-01") == [
            "One.",
            "Two.",
        ]
        stored = await journal(bus, agent)
    assert (stored.verb, stored.usage_after) == ("clear", ContextUsage())
    assert program.words(4)[: len(CLAUDE)] == CLAUDE
    assert "--resume" not in program.words(4)
    assert program.asked(4).startswith(SAID)


async def test_a_program_without_a_compaction_begins_afresh(play: Play, open_bus: Any) -> None:
    program = play("claude", claude("One.", tokens=140_000), claude(SAID), claude("Two."))
    line = replace(find_command_line("claude"), compact="")
    agent = session_agent("builder", Session(line, time_limit=10.0))
    async with open_bus(agent) as bus:
        await work(bus, "do one", "do two", work="WORK-01", task="TASK-01")
        stored = await journal(bus, agent)
    assert (stored.step, stored.verb, stored.usage_after) == ("done", "clear", ContextUsage())
    assert program.calls == 3
    assert program.asked(3).startswith(SAID)


async def test_a_checkpoint_of_another_work_is_told_nobody(play: Play, open_bus: Any) -> None:
    program = play("claude", claude("One."), claude(SAID), claude("Two."))
    agent = session_agent("builder", session_of("claude"))
    async with open_bus(agent) as bus:
        await work(bus, "do one", work="WORK-01", task="TASK-01")
        await work(bus, "do two", work="WORK-02", task="TASK-01")
        stored = await journal(bus, agent)
    assert (stored.reason, stored.verb) == ("compaction required: phase boundary", "clear")
    assert SAID not in program.asked(3)
    assert "--resume" not in program.words(3)


async def test_what_it_leaves_out_is_asked_for_again_and_then_taken_from_the_ledger(
    play: Play, open_bus: Any
) -> None:
    part = "\n".join(SAID.splitlines()[:5])
    program = play(
        "claude",
        claude("One.", tokens=140_000),
        claude(part),
        claude("**Completed:** all of it\n"),
        AFTER,
        claude("Two."),
    )
    agent = session_agent("builder", session_of("claude"))
    async with open_bus(agent) as bus:
        await work(bus, "do one", "do two")
        stored = await journal(bus, agent)
    assert "Active project:" not in program.asked(3)
    assert "Not completed:" in program.asked(3)
    assert stored.handoff is not None
    assert stored.handoff.active_project == TOLD.active_project
    assert stored.handoff.completed == "all of it"
    assert stored.handoff.next_safe_action == "take the next handoff"


async def test_an_unknown_usage_is_no_low_one_two_rounds_of_fixes_reset_it(
    play: Play, open_bus: Any
) -> None:
    unreadable = claude('{"status": "BUILT"}').replace('"modelUsage"', '"other"')
    program = play("claude", unreadable, unreadable, claude(SAID), AFTER, claude("Built."))
    agent = session_agent("builder", session_of("claude"))
    async with open_bus(agent) as bus:
        assert await work(bus, "build") == ["Built."]
        stored = await journal(bus, agent)
    assert stored.reason == "compaction required: two_fix_review_rounds"
    assert (stored.usage, stored.verb) == (ContextUsage(), "compact")
    assert program.calls == 5


async def test_a_session_that_was_lost_is_not_as_full_as_it_was(play: Play, open_bus: Any) -> None:
    play("claude", claude("One.", tokens=116_000), claude_failed("overloaded"), claude("Two."))
    agent = session_agent("builder", session_of("claude"))
    async with open_bus(agent) as bus:
        assert await work(bus, "do one", "do two") == ["One.", "Two."]
        assert (await presence(bus, agent)).card.context_usage.percent == 25.0


async def test_of_a_session_that_was_cancelled_nobody_knows_how_full_it_is(
    play: Play, open_bus: Any
) -> None:
    program = play("claude", claude("One.", tokens=116_000), claude("Two."))
    program.hold(2)
    agent = session_agent("builder", session_of("claude"))
    async with open_bus(agent) as bus:
        await work(bus, "do one")
        assert (await presence(bus, agent)).card.context_usage.percent == 58.0
        sent = await bus.send("builder", "do two")
        await until(lambda: program.calls == 2)
        await sent.cancel("not needed")
        await usage_is_unknown(bus, agent)
    assert program.calls == 2


async def test_of_a_program_that_keeps_no_session_nothing_is_in_use_behind_its_answer(
    play: Play, open_bus: Any
) -> None:
    program = play("claude", claude("One.", tokens=140_000), claude("Two.", tokens=140_000))
    line = replace(find_command_line("claude"), resume=())
    agent = session_agent("builder", Session(line, time_limit=10.0))
    async with open_bus(agent) as bus:
        assert await work(bus, "do one", "do two") == ["One.", "Two."]
        assert (await presence(bus, agent)).card.context_usage == ContextUsage()
    assert program.calls == 2


@pytest.mark.parametrize("step", ["began", "handoff"])
async def test_after_a_restart_its_fresh_session_goes_on_from_the_checkpoint(
    play: Play, open_bus: Any, step: Literal["began", "handoff"]
) -> None:
    """It was killed before its ten fields were stored, or behind that: a session that is gone is
    not asked for them, and the last ones still hold."""
    program = play("claude", claude("Two."))
    agent = session_agent("builder", session_of("claude"), id="builder-1")
    began = ResetJournal(
        agent="builder-1",
        step=step,
        verb="compact",
        reason="context usage 66 %",
        began=datetime.now(UTC),
        usage=ContextUsage(source="measured", percent=66),
        work="WORK-01",
        task="TASK-01",
        handoff=TOLD if step == "handoff" else None,
        checkpoint=CHECKPOINT if step == "began" else None,
    )
    async with open_bus() as bus:
        async with Bus(bus.server.url, actor="builder-1") as before:
            await before.client.checkpoints.put(began)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, agent)
            assert await work(bus, "do two", work="WORK-01", task="TASK-01") == ["Two."]
            stored = await journal(bus, agent)
            tasks.cancel_scope.cancel()
    assert (stored.step, stored.verb, stored.handoff) == ("done", "clear", TOLD)
    assert program.calls == 1
    assert program.asked(1).startswith(SAID)


def test_the_question_says_what_to_keep_and_asks_for_what_is_missing() -> None:
    request = ResetRequest(step="handoff", verb="compact", reason="task boundary")
    text = question(request)
    assert all(f"\n{label}:" in text for label in LABELS.values())
    assert "Keep: constraints of the design" in text
    assert "Leave out: errors that are resolved" in text
    request = ResetRequest(
        step="handoff", verb="clear", reason="phase boundary", missing=("my_role",)
    )
    assert question(request).endswith("## Context Compression\n\nMy role:")
