"""What a handoff must be to be let in."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from batonbus.rules.admission import (
    check_capabilities,
    check_deadline,
    check_origin,
    expected_capabilities,
    may_be_retried,
)
from batonbus.rules.chain import OPERATOR, Chain, retry_id
from batonbus_schemas import (
    AgentCard,
    Dispatch,
    Envelope,
    HandoffV1,
    Parent,
    Presence,
    Violation,
)

ID = UUID("6d9c9b52-8a0d-4f6c-9d7e-0f6f3b1f2a11")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def envelope(**changes: Any) -> Envelope:
    fields = {"id": ID, "sender": "asker", "to": "builder", "body": Dispatch(brief="Build it")}
    return Envelope(**{**fields, **changes})


def origin(made: Envelope, **changes: str) -> list[Violation]:
    subject = {"actor": "asker", "handoff_id": str(ID), "to": "builder", **changes}
    return check_origin(made, **subject)


def contract(*capabilities: str) -> HandoffV1:
    return HandoffV1(
        document={
            "handoff_id": str(ID),
            "from_agent": {"agent_id": "asker", "runtime": "claude"},
            "to_agent": {"agent_id": "builder", "expected_capabilities": list(capabilities)},
            "objective": {"goal": "Build it"},
            "bundle": {},
        }
    )


def agent(name: str, *capabilities: str) -> Presence:
    return Presence(card=AgentCard(id=name, role="builder", capabilities=capabilities))


def test_an_envelope_that_says_what_its_subject_says_is_admitted() -> None:
    assert origin(envelope()) == []


@pytest.mark.parametrize(
    ("changes", "path", "problem"),
    [
        ({"sender": "boss"}, "$.sender", "says 'boss', but its subject says 'asker'"),
        ({"to": "tester"}, "$.to", "says 'tester', but its subject says 'builder'"),
        (
            {"id": UUID(int=7)},
            "$.id",
            f"says '{UUID(int=7)}', but its subject says '{ID}'",
        ),
    ],
)
def test_an_envelope_that_contradicts_its_subject_is_told_both(
    changes: dict[str, Any], path: str, problem: str
) -> None:
    assert origin(envelope(**changes)) == [Violation(path=path, problem=problem)]


@pytest.mark.parametrize("field", ["stage_parents", "task_parents"])
def test_a_sender_cannot_place_its_handoff_itself(field: str) -> None:
    forged = envelope(**{field: (Parent(handoff_id=UUID(int=3), sequence=9),)})
    problem = "parents are filled by the bus: name handoffs in `after`"
    assert origin(forged) == [Violation(path="$", problem=problem)]


def test_every_contradiction_is_listed_at_once() -> None:
    forged = envelope(
        id=UUID(int=7),
        sender="boss",
        to="tester",
        stage_parents=(Parent(handoff_id=UUID(int=3), sequence=9),),
    )
    assert [it.path for it in origin(forged)] == ["$.id", "$.sender", "$.to", "$"]


def test_a_handoff_without_a_deadline_is_never_late() -> None:
    assert check_deadline(envelope(), NOW) == []


@pytest.mark.parametrize(
    ("ahead", "problems"), [(0.001, []), (0.0, ["passed 0 s ago"]), (-90.0, ["passed 90 s ago"])]
)
def test_a_handoff_is_late_from_its_deadline_on(ahead: float, problems: list[str]) -> None:
    late = envelope(deadline=NOW + timedelta(seconds=ahead))
    found = check_deadline(late, NOW)
    assert [(it.path, it.problem) for it in found] == [("$.deadline", it) for it in problems]


def test_a_deadline_in_another_zone_is_the_same_moment() -> None:
    east = timezone(timedelta(hours=9))
    assert check_deadline(envelope(deadline=datetime(2026, 3, 1, 21, 1, tzinfo=east)), NOW) == []


def test_only_a_contract_asks_for_capabilities() -> None:
    assert expected_capabilities(envelope()) == frozenset()
    asking = envelope(body=contract("python", "git"))
    assert expected_capabilities(asking) == {"python", "git"}


def test_one_agent_that_declares_them_all_is_enough() -> None:
    asking = envelope(body=contract("python", "git"))
    agents = [agent("builder-1"), agent("builder-2", "git", "python", "rust")]
    assert check_capabilities(asking, agents) == []


def test_where_no_agent_is_registered_nothing_is_refused() -> None:
    assert check_capabilities(envelope(body=contract("python")), []) == []


def test_what_asks_for_nothing_is_never_refused() -> None:
    assert check_capabilities(envelope(), [agent("builder-1")]) == []
    assert check_capabilities(envelope(body=contract()), [agent("builder-1")]) == []


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ([()], "declares git, python (declared: nothing)"),
        ([("git",)], "declares python (declared: git)"),
        # Each is there, but no agent has both.
        ([("git",), ("python",)], "declares all of git, python (declared: git, python)"),
    ],
)
def test_capabilities_that_no_agent_declares_are_named(
    declared: list[tuple[str, ...]], problem: str
) -> None:
    agents = [agent(f"builder-{n}", *it) for n, it in enumerate(declared)]
    assert check_capabilities(envelope(body=contract("python", "git")), agents) == [
        Violation(
            path="$.body.document.to_agent.expected_capabilities",
            problem=f"no agent listening as builder {problem}",
        )
    ]


def test_an_attempt_that_nobody_may_make_is_refused() -> None:
    envelope = Envelope(id=UUID(int=1), sender="a", to="b", body=Dispatch(brief="x"), attempt=4)
    said = check_origin(envelope, actor="a", handoff_id=str(envelope.id), to="b")
    assert [it.path for it in said] == ["$.attempt"]


def test_an_operator_tries_a_dead_handoff_again() -> None:
    again = envelope(id=retry_id(ID), sender=OPERATOR, retry_of=ID)
    assert origin(again, actor=OPERATOR, handoff_id=str(retry_id(ID))) == []


def test_nobody_else_says_that_it_tries_a_handoff_again() -> None:
    forged = envelope(id=retry_id(ID), retry_of=ID)
    problem = "only an operator tries a handoff again"
    assert origin(forged, handoff_id=str(retry_id(ID))) == [
        Violation(path="$.retry_of", problem=problem)
    ]


def test_a_dead_handoff_has_one_retry() -> None:
    second = envelope(id=UUID(int=7), sender=OPERATOR, retry_of=ID)
    (found,) = origin(second, actor=OPERATOR, handoff_id=str(UUID(int=7)))
    assert found.path == "$.id"
    assert str(retry_id(ID)) in found.problem


@pytest.mark.parametrize(
    ("stage", "is_retry", "may"),
    [
        ("dead", False, True),
        ("dead", True, True),
        ("refused", True, True),
        ("cancelled", True, True),
        ("settled", True, False),
        ("accepted", True, False),
        ("refused", False, False),
        ("none", False, False),
    ],
)
def test_what_ended_without_a_result_can_be_tried_again(
    stage: Any, is_retry: bool, may: bool
) -> None:
    tried = envelope(retry_of=UUID(int=3) if is_retry else None)
    assert may_be_retried(Chain(id=ID, stage=stage), tried) is may


def test_a_dead_handoff_whose_envelope_is_unknown_can_be_tried_again() -> None:
    assert may_be_retried(Chain(id=ID, stage="dead"), None)
