"""When a session is reset, by which verb, and what a Checkpoint must say before."""

from datetime import UTC, datetime
from typing import Any, get_args, get_type_hints
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batonbus.rules.compaction import (
    FIELDS,
    Due,
    Entry,
    Evidence,
    Progress,
    compose_handoff,
    due,
    due_at_end,
    missing_fields,
    no_gain,
    phase_of,
    refusals,
    stated_phase,
    too_far,
    verb_in_task,
)
from batonbus.rules.policy import Checkpoints, Compaction, ContextManagement, Policy
from batonbus_schemas import (
    AgentCard,
    Check,
    Checkpoint,
    CompactionHandoff,
    ContextUsage,
    Dispatch,
    Envelope,
    FileChange,
    TaskResult,
)
from batonbus_schemas.envelope import ADHOC

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
        (("v", "TASK-01", "implement"), POLICY, Due(why="phase boundary", verb="clear")),
        ((ADHOC, None, "implement"), POLICY, None),
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


def test_what_belongs_to_no_work_is_no_boundary_in_either_direction() -> None:
    outside = (ADHOC, None, "implement")
    assert due(Progress(last=outside, next=HERE), POLICY) is None
    assert due(Progress(last=outside, next=outside), POLICY) is None
    assert due(Progress(last=HERE, next=outside, minutes=45), POLICY) == Due(why="interval")


@pytest.mark.parametrize(
    ("work", "task", "policy", "expected"),
    [
        ("w", "TASK-01", POLICY, Due(why="task boundary", verb="compact")),
        ("w", None, POLICY, Due(why="phase boundary", verb="clear")),
        (ADHOC, None, POLICY, None),
        ("w", "TASK-01", managed(task_boundary="off"), None),
        ("w", None, managed(phase_boundary="off"), Due(why="phase boundary")),
        (
            "w",
            None,
            replace(managed(phase_boundary="off"), checkpoints=Checkpoints(after_phase=False)),
            None,
        ),
    ],
)
def test_a_session_of_one_handoff_leaves_its_task_or_its_phase(
    work: str, task: str | None, policy: Policy, expected: Due | None
) -> None:
    assert due_at_end(work, task, policy) == expected


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


ENTRY = Entry(phase="implement", did="d", checks="c", next="n", context="x")


@pytest.mark.parametrize(
    ("change", "evidence", "named"),
    [
        ({}, Evidence(entry=replace(ENTRY, next="")), "execution log"),
        ({}, Evidence(entry=replace(ENTRY, did=" ")), "execution log"),
        ({}, Evidence(entry=replace(ENTRY, checks="")), "execution log"),
        ({}, Evidence(entry=replace(ENTRY, context="")), "execution log"),
        ({}, Evidence(entry=replace(ENTRY, phase="plan")), "phase"),
        ({}, Evidence(entry=replace(ENTRY, phase="")), "phase"),
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
        entry=ENTRY,
    )
    assert refusals(CHECKPOINT, agrees) == ()
    (problem,) = refusals(replace(CHECKPOINT, **change), evidence)
    assert problem.startswith(f"{named}: ")


def test_every_condition_that_fails_is_named() -> None:
    wrong = Evidence(phase="plan", done=frozenset({"A"}), marked=frozenset(), changed_files=("b",))
    assert len(refusals(replace(CHECKPOINT, next=""), wrong)) == 4


TASKS = st.frozensets(st.sampled_from(["TASK-01", "TASK-02", "TASK-03"]))
FILES = st.frozensets(st.sampled_from(["a.py", "b.py", "c.py"])).map(tuple)


@given(
    done=st.none() | TASKS,
    marked=st.none() | TASKS,
    told=st.sampled_from(["", " ", "x"]),
    entry=st.none() | st.builds(Entry, **dict.fromkeys(ENTRY.__struct_fields__, st.just("x"))),
    phase=st.none() | st.sampled_from(["plan", "implement"]),
    changed=st.none() | FILES,
    listed=FILES,
)
def test_a_checkpoint_is_refused_for_what_it_fails_and_for_nothing_else(
    done: frozenset[str] | None,
    marked: frozenset[str] | None,
    told: str,
    entry: Entry | None,
    phase: Any,
    changed: tuple[str, ...] | None,
    listed: tuple[str, ...],
) -> None:
    entry = replace(entry, next=told, phase="implement") if entry else None
    evidence = Evidence(done=done, marked=marked, phase=phase, changed_files=changed, entry=entry)
    found = refusals(replace(CHECKPOINT, changed_files=listed), evidence)
    fails = {
        "progress marks": None not in (done, marked) and done != marked,
        "execution log": entry is not None and not told.strip(),
        "phase": phase == "plan",
        "tree": not set(changed or ()) <= set(listed),
    }
    assert [it.partition(":")[0] for it in found] == [it for it in fails if fails[it]]


@pytest.mark.parametrize(
    ("said", "role", "phase"),
    [
        ("implement", "builder", "implement"),
        (" Close\n", "builder", "close"),
        ("writing the parser", "builder", "implement"),
        ("writing the plan", "planner", "plan"),
    ],
)
def test_a_session_may_say_its_phase_in_one_of_four_words(said: str, role: str, phase: str) -> None:
    assert stated_phase(replace(HANDOFF, current_phase=said), role) == phase


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


@pytest.mark.parametrize(
    ("verb", "after", "told"),
    [
        ("compact", 14.9, "14.9 % after compaction, target 15–25 %: what it dropped stands"),
        ("compact", 15, ""),
        ("compact", None, ""),
        ("clear", 3, ""),
    ],
)
def test_a_compaction_that_keeps_too_little_is_told_of(
    verb: Any, after: float | None, told: str
) -> None:
    said = too_far(verb, usage(after), Compaction())
    assert said.startswith(told)
    assert bool(said) == bool(told)


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


def test_where_nothing_else_is_known_the_last_checkpoint_still_holds() -> None:
    card = AgentCard(id="a", role="builder")
    before = replace(CHECKPOINT, handoff=HANDOFF)
    assert compose_handoff(card, None, None, before) == HANDOFF
    assert compose_handoff(card, None, None).next_safe_action == "take the next handoff"
    half = replace(before, handoff=replace(HANDOFF, completed=" "))
    assert compose_handoff(card, None, None, half).completed == "None"
    known = compose_handoff(card, None, TaskResult.passed("Done."), before)
    assert known.completed == "Done."


def test_what_a_result_says_of_checks_and_files_is_the_evidence() -> None:
    checks = (Check(name="tests", status="PASS"), Check(name="lint", status="N/A"))
    files = tuple(FileChange(action="created", path=f"{number}.py") for number in range(22))

    def evidence(**fields: Any) -> str:
        result = TaskResult.passed("Done.", **fields)
        return compose_handoff(AgentCard(id="a", role="builder"), None, result).evidence_paths

    assert evidence() == "no check was run"
    assert evidence(checks=checks) == "tests PASS, lint N/A"
    assert evidence(checks=checks, files=files[:2]) == ("tests PASS, lint N/A; changed: 0.py, 1.py")
    assert evidence(files=files).endswith("19.py and 2 more")
