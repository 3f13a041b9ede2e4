"""What goes round is found on the trail, and how often a window manager counts a work."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus.rules.loops import COUNT_SHARE, find_loop, make_hop, next_count, spent
from batonbus_schemas import Dispatch, Envelope, HandoffV1, Hop


def asked(to: str, brief: str = "Build it", **changes: Any) -> Hop:
    return make_hop(envelope(to=to, body=Dispatch(brief=brief), **changes))


def envelope(**changes: Any) -> Envelope:
    fields = {"id": uuid4(), "sender": "asker", "to": "coder", "body": Dispatch(brief="x")}
    return Envelope(**{**fields, **changes})


def contract(**changes: Any) -> Envelope:
    document = {
        "handoff_id": str(uuid4()),
        "from_agent": {"agent_id": "hermes-1", "runtime": "hermes"},
        "to_agent": {"agent_id": "coder"},
        "objective": {"goal": "Make it work"},
        "bundle": {},
        **changes,
    }
    return envelope(body=HandoffV1(document=document))


def test_a_line_that_comes_back_with_the_same_content_goes_round() -> None:
    trail = [asked("builder"), asked("reviewer", "Review it"), asked("builder")]
    assert find_loop(2, trail, limit=32) == (
        "LOOP: builder → reviewer → builder with the same content, and nothing new was asked in "
        "between: settle with a result, say what is new, or count the attempt"
    )


def test_a_ring_is_found_however_many_stand_in_it() -> None:
    names = [f"agent-{number}" for number in range(20)]
    ring = [asked(name) for name in names]
    assert find_loop(19, ring, limit=32) is None
    path = " → ".join([*names, "agent-0"])
    assert f"LOOP: {path} with" in str(find_loop(20, [*ring, asked("agent-0")], limit=32))


@pytest.mark.parametrize("field", ["id", "sender", "hops", "reply_to"])
def test_who_hands_it_on_and_when_is_no_content(field: str) -> None:
    other = {"id": uuid4(), "sender": "another", "hops": 9, "reply_to": "another"}[field]
    assert make_hop(envelope(**{field: other})) == make_hop(envelope())


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "TASK-01"},
        {"attempt": 2},
        {"body": Dispatch(brief="y")},
        {"body": Dispatch(brief="x", refs=("a.py",))},
    ],
)
def test_another_task_attempt_or_body_is_other_content(changes: dict[str, Any]) -> None:
    assert make_hop(envelope(**changes)).digest != make_hop(envelope()).digest


def test_the_same_content_to_the_next_agent_is_no_loop() -> None:
    assert find_loop(2, [asked("a"), asked("b"), asked("c")], limit=32) is None


def test_the_same_request_after_something_new_is_no_loop() -> None:
    """A reviewer is asked to review in the same words, after each mending."""
    trail = [asked("builder"), asked("reviewer", "Review it")]
    for finding in ("a typo", "a leak"):
        trail += [asked("builder", f"Mend {finding}"), asked("reviewer", "Review it")]
        assert find_loop(2, trail, limit=32) is None
    same = [*trail, asked("builder", "Mend a leak")]
    assert find_loop(2, same, limit=32)
    # To and fro between two old findings brings nothing new either.
    back = [*trail, asked("builder", "Mend a typo"), asked("reviewer", "Review it")]
    assert find_loop(2, back, limit=32)


def test_what_others_were_asked_already_is_nothing_new() -> None:
    """Whoever began the ring was asked something else at first."""
    trail = [asked("a", "Start"), asked("b"), asked("c"), asked("a"), asked("b")]
    assert find_loop(3, trail[:-1], limit=32) is None
    assert "LOOP: a → b → c → a → b with" in str(find_loop(4, trail, limit=32))


def test_a_rebuild_has_the_next_attempt_and_is_no_loop() -> None:
    trail = [asked("builder"), asked("verifier"), asked("builder", attempt=2)]
    assert find_loop(2, trail, limit=32) is None


def test_a_contract_under_a_new_id_and_sender_has_the_same_content() -> None:
    first = contract(timestamp="2026-03-01T12:00:00Z", schema_version="1.0", version="1.0")
    again = contract(
        version="1.0",
        schema_version="1.0",
        timestamp="2026-03-01T12:05:00Z",
        from_agent={"agent_id": "claw-1", "runtime": "openclaw"},
    )
    assert make_hop(first).digest == make_hop(again).digest
    other = contract(version="1.0", schema_version="1.0", objective={"goal": "Make it fast"})
    assert make_hop(first).digest != make_hop(other).digest


def test_a_digest_is_16_hexadecimal_digits_and_the_same_in_every_run() -> None:
    hop = make_hop(envelope(id=UUID(int=1)))
    assert hop == Hop(to="coder", digest="b2f89d56c2ea711e")


def test_a_line_may_be_handed_on_to_the_limit_and_no_further() -> None:
    trail = [asked("ping" if number % 2 else "pong", f"round {number}") for number in range(6)]
    assert find_loop(5, trail, limit=5) is None
    assert find_loop(5, trail, limit=4) == (
        "LOOP: pong → ping → pong → ping → pong → ping: handed on 5 times, limit 4: settle with a "
        "result, and let whoever waits for it ask anew"
    )


@given(st.integers(1, 100_000), st.integers(0, 200_000))
def test_a_count_comes_before_the_limit_and_closer_and_closer(limit: int, used: int) -> None:
    following = next_count(used, limit)
    if used >= limit:
        assert following == used
    else:
        assert used < following <= limit
        assert following - used <= max(1, (limit - used) / COUNT_SHARE)


@given(st.integers(1, 2_000), st.integers(1, COUNT_SHARE))
def test_up_to_eight_window_managers_overshoot_by_less_than_their_number(
    limit: int, managers: int
) -> None:
    """Each delivers what it may between two counts, and the others do so meanwhile."""
    used, counts = 0, 0
    while next_count(used, limit) > used:
        used += managers * (next_count(used, limit) - used)
        counts += 1
    assert limit <= used < limit + managers
    assert counts <= 60


def test_a_spent_work_is_told_with_its_number() -> None:
    assert spent("WORK-01", 1_000) == (
        "work WORK-01 has used its 1,000 handoffs: see in `batonbus tail` what goes round, and "
        "give what is left to another work"
    )
