"""Who is closed: by its role's own numbers, and by what happened where nobody knows them."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from msgspec.structs import replace

from batonbus.rules.chain import Chain
from batonbus.rules.errors import CheckpointRefusedError
from batonbus.rules.gate import (
    MENDS,
    OPENS,
    STAYS,
    Facts,
    Level,
    fired,
    judge_card,
    level_of,
    was_interrupted,
    way_out,
    why_closed,
)
from batonbus.rules.policy import Checkpoints, Fallback, Policy
from batonbus.rules.receipts import why_all_closed
from batonbus_schemas import AgentCard, Checkpoint, CompactionHandoff, ContextUsage, Presence

POLICY = Policy()
BUILDER = POLICY.limits_of_role("builder").thresholds
CHECKPOINT = Checkpoint(
    agent="a",
    work="w",
    task="TASK-01",
    phase="implement",
    did="x",
    checks="x",
    next="x",
    context="x",
    written=datetime(2026, 1, 1, tzinfo=UTC),
)


def measured(percent: float) -> ContextUsage:
    return ContextUsage(source="measured", percent=percent)


@pytest.mark.parametrize(
    ("role", "soft", "hard", "emergency"),
    [
        ("scheduler", 50, 60, 80),
        ("builder", 55, 65, 80),
        ("verifier", 60, 70, 80),
        ("committer", 60, 70, 80),
        ("stranger", 60, 70, 80),
    ],
)
def test_each_role_goes_by_its_own_numbers(
    role: str, soft: float, hard: float, emergency: float
) -> None:
    thresholds = POLICY.limits_of(AgentCard(id="a", role=role)).thresholds
    expected: list[tuple[float, Level]] = [
        (0, "open"),
        (soft - 0.1, "open"),
        (soft, "soft"),
        (hard - 0.1, "soft"),
        (hard, "hard"),
        (emergency - 0.1, "hard"),
        (emergency, "emergency"),
        (100, "emergency"),
    ]
    for percent, level in expected:
        assert level_of(measured(percent), thresholds) == level
        closed = bool(why_closed(measured(percent), thresholds))
        assert closed == (level in {"hard", "emergency"})


def test_an_estimate_counts_as_much_as_a_measurement() -> None:
    usage = ContextUsage(source="estimated", percent=65)
    assert why_closed(usage, BUILDER) == "context usage 65 % (hard 65 %)"


@pytest.mark.parametrize(
    "usage", [ContextUsage(), ContextUsage(percent=0), ContextUsage(source="measured")]
)
def test_what_is_not_known_is_neither_zero_nor_fine(usage: ContextUsage) -> None:
    assert level_of(usage, BUILDER) == "unknown"
    assert why_closed(usage, BUILDER) == ""
    assert why_closed(usage, BUILDER, required="x") == "compaction required: x"


def test_a_required_compaction_closes_at_10_percent_too() -> None:
    assert why_closed(measured(10), BUILDER) == ""
    reason = why_closed(measured(10), BUILDER, required="two_fix_review_rounds")
    assert reason == "compaction required: two_fix_review_rounds"


def test_what_went_wrong_is_said_before_all_else() -> None:
    full = measured(66)
    assert why_closed(full, BUILDER, compacting=True, required="x") == "compacting"
    assert why_closed(full, BUILDER, stopped="no gain: 41 %", compacting=True) == "no gain: 41 %"
    assert why_closed(measured(81), BUILDER) == "context usage 81 % (emergency 80 %)"


TRIGGERS = {
    "user_interruption_resume": Facts(resumed=True, checkpoint=CHECKPOINT),
    "wrong_project_or_tool_target_confusion": Facts(confused=True),
    "two_fix_review_rounds": Facts(rounds=2),
    "before_new_roadmap_task_after_long_task": Facts(moves_on=True, busy_for=45 * 60 + 1),
}


@pytest.mark.parametrize(("trigger", "facts"), TRIGGERS.items())
def test_each_trigger_fires_on_its_facts_and_only_where_the_policy_has_it(
    trigger: str, facts: Facts
) -> None:
    assert fired(facts, POLICY) == trigger
    others = tuple(it for it in POLICY.fallback.triggers if it != trigger)
    assert fired(facts, Policy(fallback=Fallback(triggers=others))) is None


@pytest.mark.parametrize(
    "facts",
    [
        Facts(),
        Facts(rounds=1),
        Facts(moves_on=True, busy_for=45 * 60),
        Facts(moves_on=False, busy_for=1e9),
    ],
)
def test_no_trigger_fires_without_its_facts(facts: Facts) -> None:
    assert fired(facts, POLICY) is None


@pytest.mark.parametrize("checkpoint", [None, CHECKPOINT])
def test_after_a_resume_the_last_checkpoint_must_say_where_it_stands(
    checkpoint: Checkpoint | None,
) -> None:
    trigger = "cannot_state_project_task_phase_next"
    policy = Policy(fallback=Fallback(triggers=(trigger,)))
    expected = None if checkpoint else trigger
    assert fired(Facts(resumed=True, checkpoint=checkpoint), policy) == expected
    assert fired(Facts(resumed=False, checkpoint=checkpoint), policy) is None


@pytest.mark.parametrize("field", ["active_project", "active_task"])
@pytest.mark.parametrize("text", ["None", "none.", " n/a ", "unknown", ""])
def test_who_states_that_there_is_none_has_not_stated_where_it_stands(
    field: str, text: str
) -> None:
    trigger = "cannot_state_project_task_phase_next"
    policy = Policy(fallback=Fallback(triggers=(trigger,)))
    fields = dict.fromkeys(CompactionHandoff.__struct_fields__, "None")
    stated = CompactionHandoff(**fields | {"active_project": "p", "active_task": "t"})
    checkpoint = replace(CHECKPOINT, handoff=stated)
    assert fired(Facts(resumed=True, checkpoint=checkpoint), policy) is None
    checkpoint = replace(CHECKPOINT, handoff=replace(stated, **{field: text}))
    assert fired(Facts(resumed=True, checkpoint=checkpoint), policy) == trigger


def test_the_rounds_are_those_of_the_policy() -> None:
    policy = Policy(checkpoints=Checkpoints(after_fix_review_rounds=1))
    assert fired(Facts(rounds=1), policy) == "two_fix_review_rounds"


def test_what_was_begun_and_not_ended_is_an_interruption() -> None:
    chain = Chain(id=uuid4())
    assert not was_interrupted(chain)
    stages = [("accepted", False, True), ("failed", True, True), ("failed", False, False)]
    for stage, interrupted, expected in stages:
        begun = Chain(id=chain.id, stage=stage, interrupted=interrupted)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        assert was_interrupted(begun) == expected


def test_who_is_being_reset_opens_by_itself_and_who_could_not_be_must_be_started_again() -> None:
    reasons = [
        why_closed(measured(66), BUILDER),
        why_closed(measured(80), BUILDER),
        why_closed(measured(10), BUILDER, compacting=True),
        why_closed(measured(10), BUILDER, required="marked by its handler"),
    ]
    assert {way_out(it) for it in reasons} == {OPENS}
    assert way_out(why_closed(measured(10), BUILDER, stopped="no gain: 41 %")) == STAYS
    assert way_out(str(CheckpointRefusedError(["tree: changed"]))) == MENDS
    assert way_out("") == ""


def agent(id: str, closed: str = "", *, stopping: bool = False) -> Presence:
    return Presence(card=AgentCard(id=id, role="r"), closed=closed, stopping=stopping)


def test_an_addressee_is_closed_only_where_all_its_agents_are() -> None:
    assert why_all_closed([]) == ""
    assert why_all_closed([agent("a", "full"), agent("b")]) == ""
    assert why_all_closed([agent("a", "full")]) == "closed: full"
    both = [agent("a", "full"), agent("b", "compacting")]
    assert why_all_closed(both) == "all 2 agents are closed: compacting; full"
    assert why_all_closed([*both, agent("c", stopping=True)]) == why_all_closed(both)
    assert why_all_closed([agent("c", stopping=True)]) == ""


@pytest.mark.parametrize(
    ("percent", "said", "closed"),
    [
        (64.9, "", ""),
        (65.0, "", "context usage 65 % (hard 65 %)"),
        (70.0, "compacting", "compacting"),
        (None, "", ""),
    ],
)
def test_an_agent_is_closed_by_the_numbers_of_its_card_whatever_it_says(
    percent: float | None, said: str, closed: str
) -> None:
    usage = ContextUsage(source="unknown" if percent is None else "measured", percent=percent)
    card = AgentCard(id="go-1", role="builder", context_usage=usage)
    assert judge_card(Presence(card=card, closed=said), Policy()).closed == closed
