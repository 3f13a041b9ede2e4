"""When a session is reset, by which verb, and what a Checkpoint must say before."""

from datetime import UTC, datetime
from typing import Any, get_args, get_type_hints
from uuid import uuid4

import pytest
from msgspec.structs import replace

from batonbus.rules.compaction import (
    FIELDS,
    Due,
    Evidence,
    Progress,
    compose_handoff,
    due,
    missing_fields,
    no_gain,
    phase_of,
    refusals,
    verb_in_task,
)
from batonbus.rules.policy import Compaction, ContextManagement, Policy
from batonbus_schemas import (
    AgentCard,
    Checkpoint,
    CompactionHandoff,
    ContextUsage,
    Dispatch,
    Envelope,
    TaskResult,
)

POLICY = Policy()
HANDOFF = CompactionHandoff(**dict.fromkeys(FIELDS, "x"))
CHECKPOINT = Checkpoint(
    agent="a",
    work="w",
    phase="implement",
    did="Wrote it.",
    checks="3 tests passed",
    next="Write the rest.",
    context="compact: context usage 66 %",
    written=datetime(2026, 1, 1, tzinfo=UTC),
    changed_files=("a.py",),
)


def managed(**settings: Any) -> Policy:
    return Policy(context_management=ContextManagement(**settings))


HERE = ("w", "TASK-01", "implement")


@pytest.mark.parametrize(
    ("then", "policy", "expected"),
    [
        (HERE, POLICY, None),
        (("w", "TASK-02", "implement"), POLICY, Due(why="task boundary", verb="compact")),
        (("v", "TASK-01", "implement"), POLICY, Due(why="task boundary", verb="compact")),
        (("w", "TASK-01", "close"), POLICY, Due(why="phase boundary", verb="clear")),
        (
            ("w", "TASK-02", "implement"),
            managed(task_boundary="clear"),
            Due(why="task boundary", verb="clear"),
        ),
        (("w", "TASK-02", "implement"), managed(task_boundary="off"), None),
        (
            ("w", "TASK-02", "close"),
            managed(phase_boundary="compact"),
            Due(why="phase boundary", verb="compact"),
        ),
        (("w", "TASK-02", "close"), managed(phase_boundary="off"), Due(why="phase boundary")),
    ],
)
def test_a_boundary_resets_as_the_policy_says(
    then: Any, policy: Policy, expected: Due | None
) -> None:
    assert due(Progress(last=HERE, next=then), policy) == expected
    assert due(Progress(last=None, next=then), policy) is None


def test_a_checkpoint_comes_every_45_minutes_and_after_two_rounds() -> None:
    assert due(Progress(last=HERE, next=HERE, minutes=44.9), POLICY) is None
    assert due(Progress(last=HERE, next=HERE, minutes=45), POLICY) == Due(why="interval")
    assert due(Progress(last=HERE, next=HERE, rounds=1), POLICY) is None
    assert due(Progress(last=HERE, next=HERE, rounds=2), POLICY) == Due(why="fix and review rounds")


def test_in_the_middle_of_a_task_nothing_can_be_cleared() -> None:
    assert verb_in_task(POLICY) == "compact"
    assert verb_in_task(managed(mid_task="off")) is None
    assert "clear" not in get_args(get_type_hints(ContextManagement)["mid_task"])


@pytest.mark.parametrize("field", FIELDS)
def test_a_handoff_counts_only_with_all_ten_fields(field: str) -> None:
    assert len(FIELDS) == 10
    assert missing_fields(HANDOFF) == ()
    assert missing_fields(None) == FIELDS
    assert missing_fields(replace(HANDOFF, **{field: " \n"})) == (field,)


@pytest.mark.parametrize(
    ("change", "evidence", "named"),
    [
        ({}, Evidence(done=frozenset({"TASK-01"}), marked=frozenset()), "progress marks"),
        ({"next": " "}, Evidence(), "execution log"),
        ({"did": ""}, Evidence(), "execution log"),
        ({"checks": ""}, Evidence(), "execution log"),
        ({"context": ""}, Evidence(), "execution log"),
        ({}, Evidence(phase="close"), "phase"),
        ({}, Evidence(changed_files=("a.py", "b.py")), "tree"),
    ],
)
def test_a_checkpoint_that_fails_a_condition_is_refused_by_its_name(
    change: dict[str, str], evidence: Evidence, named: str
) -> None:
    agrees = Evidence(
        phase="implement",
        done=frozenset({"TASK-01"}),
        marked=frozenset({"TASK-01"}),
        changed_files=("a.py",),
    )
    assert refusals(CHECKPOINT, agrees) == ()
    (problem,) = refusals(replace(CHECKPOINT, **change), evidence)
    assert problem.startswith(f"{named}: ")


def test_every_condition_that_fails_is_named() -> None:
    wrong = Evidence(phase="plan", done=frozenset({"A"}), marked=frozenset(), changed_files=("b",))
    assert len(refusals(replace(CHECKPOINT, next=""), wrong)) == 4


@pytest.mark.parametrize(
    ("verb", "before", "after", "gained"),
    [
        ("compact", 66, 25, True),
        ("compact", 66, 10, True),
        ("compact", 66, 25.1, False),
        ("clear", 66, 41, False),
        ("clear", 66, None, True),
        ("compact", 66, None, False),
        ("compact", None, None, True),
    ],
)
def test_the_usage_must_come_down_to_the_target(
    verb: Any, before: float | None, after: float | None, gained: bool
) -> None:
    problem = no_gain(verb, usage(before), usage(after), Compaction())
    assert (problem == "") == gained
    assert gained or "target 15–25 %" in problem


def usage(percent: float | None) -> ContextUsage:
    return ContextUsage(source="unknown" if percent is None else "measured", percent=percent)


def test_ten_fields_can_be_made_of_what_the_ledger_knows() -> None:
    card = AgentCard(id="a", role="committer")
    envelope = Envelope(
        id=uuid4(), sender="s", to="committer", work="w", task="TASK-01", body=Dispatch(brief="b")
    )
    for asked in (None, envelope):
        for result in (None, TaskResult.passed("Done.", incomplete="The docs.")):
            assert missing_fields(compose_handoff(card, asked, result)) == ()
    made = compose_handoff(card, envelope, TaskResult.passed("Done.", incomplete="The docs."))
    assert (made.completed, made.not_completed) == ("Done.", "The docs.")
    assert (made.active_project, made.active_task) == ("w", "TASK-01")
    assert made.current_phase == phase_of("committer") == "close"
