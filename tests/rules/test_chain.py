"""The chain of one handoff: the table, the guards, and what holds for any events in any order."""

from pathlib import Path
from typing import Any, get_args
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batonbus.rules.chain import (
    ATTEMPT_LIMIT,
    BUS_ACTORS,
    FINAL,
    KINDS,
    LINE_LIMIT,
    OPERATOR,
    RECEIPT_KEEPER,
    TAKEOVER_LIMIT,
    WINDOW_MANAGER,
    Chain,
    Event,
    IllegalStepError,
    Kind,
    child_id,
    diagram,
    fold,
    is_in_line,
    keyed_id,
    objection,
    step,
)

ID = UUID("6d9c9b52-8a0d-4f6c-9d7e-0f6f3b1f2a11")
ASKER, WORKER, OTHER, ROGUE = "asker", "worker", "other", "rogue"

# The design's table (section 2), row by row: which event may follow which stage. Nothing comes
# first but `sent`, and (b) what the bus writes of a handoff that another one, settled, hands on to.
MAY_FOLLOW = """
            none sent delivered held overdue accepted failed refused settled dead cancelled
sent         x    .      .       .     .        .       .      .       .      .      .
delivered    b    x      .       x     x        .       .      .       .      .      .
held         b    x      x       x     x        .       .      .       .      .      .
overdue      b    x      x       x     .        .       .      .       .      .      .
accepted     .    .      x       x     x        x       x      .       .      .      .
refused      b    x      x       x     x        x       .      .       .      .      .
failed       .    .      .       .     .        x       .      .       .      .      .
settled      .    .      .       .     .        x       .      .       .      .      .
dead         b    x      x       x     x        x       x      .       .      .      .
cancelled    b    x      x       x     x        x       x      .       .      .      .
"""
HEAD, *ROWS = (line.split() for line in MAY_FOLLOW.strip().splitlines())
CELLS = [(stage, row[0], cell) for row in ROWS for stage, cell in zip(HEAD, row[1:], strict=True)]

WRITERS = {
    "sent": ASKER,
    "delivered": WINDOW_MANAGER,
    "held": WINDOW_MANAGER,
    "overdue": RECEIPT_KEEPER,
    "accepted": WORKER,
    "refused": WORKER,
    "failed": WORKER,
    "settled": WORKER,
    "dead": RECEIPT_KEEPER,
    "cancelled": ASKER,
}

WAYS = {
    "none": [],
    "sent": ["sent"],
    "delivered": ["sent", "delivered"],
    "held": ["sent", "delivered", "held"],
    "overdue": ["sent", "delivered", "overdue"],
    "accepted": ["sent", "delivered", "accepted"],
    "failed": ["sent", "delivered", "accepted", "failed"],
    "refused": ["sent", "refused"],
    "settled": ["sent", "delivered", "accepted", "settled"],
    "dead": ["sent", "dead"],
    "cancelled": ["sent", "cancelled"],
}


def following(chain: Chain, kind: str, **changes: Any) -> Event:
    """The event of this kind that an honest writer would write behind the chain's tail."""
    under = chain.owner_sequence if chain.stage == "accepted" else None
    event = Event(
        sequence=chain.tail + 3,
        kind=kind,  # type: ignore[arg-type]
        actor=WRITERS.get(kind, ROGUE),
        tail=chain.tail,
        at=1000.0 + chain.tail,
        accepted=under if kind in {"refused", "failed", "settled"} else None,
        attempt=chain.next_attempt if kind == "accepted" else None,
        lease=chain.lease + 1 if kind == "accepted" else None,
        reason=f"reason {chain.tail}",
    )
    return replace(event, **changes)


def grow(*kinds: str, chain: Chain | None = None) -> Chain:
    """A chain of honest events."""
    chain = chain or Chain(id=ID)
    for kind in kinds:
        chain = step(chain, following(chain, kind))
    return chain


@pytest.mark.parametrize(("stage", "kind", "cell"), CELLS)
def test_an_event_may_follow_exactly_the_stages_of_the_table(
    stage: str, kind: str, cell: str
) -> None:
    chain = grow(*WAYS[stage])
    assert chain.stage == stage
    allowed = cell == "x" or (cell == "b" and WRITERS[kind] in BUS_ACTORS)
    assert (objection(chain, following(chain, kind)) is None) is allowed


def test_the_table_has_every_stage_and_every_kind() -> None:
    assert set(HEAD) == {"none", *KINDS} == set(WAYS)
    assert {row[0] for row in ROWS} == KINDS == frozenset(get_args(Kind)) == set(WRITERS)


def test_four_stages_are_final() -> None:
    assert {stage for stage in HEAD if grow(*WAYS[stage]).final} == FINAL
    assert {"refused", "settled", "dead", "cancelled"} == FINAL


@pytest.mark.parametrize("kind", ["delivered", "held", "overdue", "dead"])
def test_an_agent_cannot_write_an_event_of_the_bus(kind: str) -> None:
    chain = grow("sent")
    assert objection(chain, following(chain, kind, actor=ROGUE)) == "only the bus writes it"


@pytest.mark.parametrize(
    ("kind", "actor"),
    [
        ("delivered", RECEIPT_KEEPER),
        ("delivered", OPERATOR),
        ("overdue", WINDOW_MANAGER),
        ("dead", WINDOW_MANAGER),
    ],
)
def test_each_actor_of_the_bus_writes_its_own_events_only(kind: str, actor: str) -> None:
    chain = grow("sent")
    assert objection(chain, following(chain, kind, actor=actor)) == "only the bus writes it"


@pytest.mark.parametrize(
    ("kind", "actor"),
    [("held", WINDOW_MANAGER), ("held", RECEIPT_KEEPER), ("dead", OPERATOR)],
)
def test_some_events_of_the_bus_have_two_writers(kind: str, actor: str) -> None:
    chain = grow("sent")
    assert objection(chain, following(chain, kind, actor=actor)) is None


def test_a_write_that_did_not_see_the_tail_is_void() -> None:
    chain = grow("sent", "delivered")
    late = following(chain, "accepted", tail=chain.tail - 3)
    assert objection(chain, late) == f"its writer saw the tail {chain.tail - 3}, not {chain.tail}"


def test_a_blind_write_changes_nothing_but_the_tail_and_the_void() -> None:
    chain = grow("sent", "delivered", "accepted")
    blind = following(chain, "settled", tail=-1)
    after = fold(chain, [blind])
    assert after == replace(chain, tail=blind.sequence, void=(blind.sequence,))
    assert grow("settled", chain=after).stage == "settled"


def test_a_message_that_is_no_event_is_void() -> None:
    chain = grow("sent")
    foreign = following(chain, "unknown")
    assert objection(chain, foreign) == "it is no event of a handoff"
    assert fold(chain, [foreign]).void == (foreign.sequence,)


def test_an_illegal_step_names_the_state_the_event_and_the_actor() -> None:
    chain = grow("sent")
    with pytest.raises(IllegalStepError) as caught:
        step(chain, following(chain, "settled", actor=ROGUE))
    assert str(caught.value) == (
        f"handoff {ID} is sent at 3: settled by rogue is not allowed, "
        "nothing of that kind follows sent"
    )


def test_held_again_for_the_same_reason_is_void() -> None:
    chain = grow("sent")
    chain = step(chain, following(chain, "held", reason="busy"))
    again = following(chain, "held", reason="busy")
    assert objection(chain, again) == "it is held for that reason already"
    assert objection(chain, replace(again, reason="compacting")) is None


def test_what_was_never_delivered_cannot_be_accepted() -> None:
    chain = grow("sent", "overdue")
    assert objection(chain, following(chain, "accepted")) == "it was never delivered"


@pytest.mark.parametrize(("attempt", "lease"), [(2, 1), (0, 1), (None, 1), (1, 2), (1, 0)])
def test_accepting_names_the_next_attempt_and_the_next_lease(attempt: int, lease: int) -> None:
    chain = grow("sent", "delivered")
    wrong = following(chain, "accepted", attempt=attempt, lease=lease)
    assert objection(chain, wrong) in {"the next attempt is 1 of 3", "the next lease is 1"}


def test_each_failure_leads_to_the_next_attempt_until_three_are_spent() -> None:
    chain = grow("sent", "delivered", "accepted", "failed", "accepted", "failed", "accepted")
    assert (chain.attempt, chain.lease) == (ATTEMPT_LIMIT, 3)
    spent = grow("failed", chain=chain)
    assert objection(spent, following(spent, "accepted")) == "the next attempt is 4 of 3"
    assert objection(spent, following(spent, "dead")) is None


def test_attempts_that_the_sender_has_spent_already_count() -> None:
    chain = Chain(id=ID)
    chain = step(chain, following(chain, "sent", attempt=3))
    chain = grow("delivered", "accepted", "failed", chain=chain)
    assert objection(chain, following(chain, "accepted")) == "the next attempt is 4 of 3"


def test_a_takeover_spends_a_lease_and_no_attempt() -> None:
    chain = grow("sent", "delivered", "accepted")
    after = step(chain, following(chain, "accepted", actor=OTHER))
    assert (after.owner, after.owner_sequence) == (OTHER, chain.tail + 3)
    assert (after.attempt, after.lease, after.takeovers) == (1, 2, 1)


def test_a_handoff_changes_hands_five_times_and_no_more() -> None:
    chain = grow("sent", "delivered", *["accepted"] * (1 + TAKEOVER_LIMIT))
    assert (chain.takeovers, chain.attempt) == (5, 1)
    assert objection(chain, following(chain, "accepted")) == "it changed hands 5 times"
    assert grow("settled", chain=chain).final


@pytest.mark.parametrize("kind", ["failed", "settled", "refused"])
def test_only_the_newest_owner_answers_and_under_its_own_accepted_event(kind: str) -> None:
    before = grow("sent", "delivered", "accepted")
    chain = step(before, following(before, "accepted", actor=OTHER))
    answer = following(chain, kind, actor=OTHER)
    assert objection(chain, answer) is None
    named = f"its owner is other by the accepted event {chain.owner_sequence}"
    assert objection(chain, replace(answer, actor=WORKER)) == named
    assert objection(chain, replace(answer, accepted=before.owner_sequence)) == named
    assert objection(chain, replace(answer, accepted=None)) == named


def test_the_window_manager_cannot_refuse_what_an_agent_owns() -> None:
    chain = grow("sent", "delivered", "accepted")
    refused = following(chain, "refused", actor=WINDOW_MANAGER)
    assert objection(chain, refused) is not None
    assert objection(grow("sent"), following(grow("sent"), "refused", actor=WINDOW_MANAGER)) is None


def test_its_sender_whoever_waits_an_operator_or_a_keeper_may_cancel() -> None:
    chain = Chain(id=ID)
    chain = step(chain, following(chain, "sent", waiter="waiter"))
    for actor in (ASKER, "waiter", OPERATOR, RECEIPT_KEEPER):
        assert objection(chain, following(chain, "cancelled", actor=actor)) is None
    refusal = "only its sender asker or an operator may cancel it"
    assert objection(chain, following(chain, "cancelled", actor=ROGUE)) == refusal


def test_a_late_receipt_is_reconciled_and_never_lost() -> None:
    chain = grow("sent", "delivered", "overdue", "held", "overdue", "accepted", "settled")
    assert chain.stage == "settled"


# A settled handoff's next one has no `sent` of its own.


@pytest.mark.parametrize(
    ("kind", "actor"),
    [
        ("delivered", WINDOW_MANAGER),
        ("refused", WINDOW_MANAGER),
        ("held", WINDOW_MANAGER),
        ("held", RECEIPT_KEEPER),
        ("overdue", RECEIPT_KEEPER),
        ("dead", RECEIPT_KEEPER),
        ("dead", OPERATOR),
        ("cancelled", OPERATOR),
        ("cancelled", RECEIPT_KEEPER),
    ],
)
def test_the_bus_opens_a_child_chain_with_tail_0(kind: str, actor: str) -> None:
    chain = Chain(id=child_id(ID))
    opening = following(chain, kind, actor=actor)
    assert opening.tail == 0
    assert step(chain, opening).stage == kind
    assert objection(chain, replace(opening, tail=7)) == "its writer saw the tail 7, not 0"


@pytest.mark.parametrize("kind", sorted(KINDS - {"sent"}))
def test_an_agent_opens_no_chain_but_by_sending(kind: str) -> None:
    chain = Chain(id=child_id(ID))
    assert objection(chain, following(chain, kind, actor=ROGUE)) is not None


@pytest.mark.parametrize("kind", ["accepted", "failed", "settled"])
def test_even_the_bus_opens_no_child_with_an_answer(kind: str) -> None:
    chain = Chain(id=child_id(ID))
    for actor in (WINDOW_MANAGER, RECEIPT_KEEPER, OPERATOR):
        assert objection(chain, following(chain, kind, actor=actor)) is not None


def test_a_void_write_does_not_keep_the_bus_from_opening_a_child() -> None:
    chain = fold(Chain(id=child_id(ID)), [Event(sequence=4, kind="settled", actor=ROGUE, tail=0)])
    assert (chain.stage, chain.tail, chain.void) == ("none", 4, (4,))
    assert grow("delivered", "accepted", "settled", chain=chain).stage == "settled"


def test_a_settled_event_names_who_comes_next_never_which_id() -> None:
    chain = grow("sent", "delivered", "accepted")
    assert step(chain, following(chain, "settled")).child is None
    handed_on = step(chain, following(chain, "settled", child_to="reviewer"))
    assert handed_on.child == uuid5(ID, "then") == child_id(ID)


def test_the_same_key_is_the_same_handoff() -> None:
    assert keyed_id(ID, "tests") == keyed_id(ID, "tests") == uuid5(ID, "send:tests")
    # A key `then` must not collide with the child.
    assert len({keyed_id(ID, "tests"), keyed_id(ID, "then"), child_id(ID)}) == 3


def test_a_line_is_its_first_handoff_and_all_that_it_was_handed_on_to() -> None:
    second = child_id(ID)
    third = child_id(second)
    assert all(is_in_line(ID, it) for it in (ID, second, third))
    assert not is_in_line(second, ID)
    assert not is_in_line(ID, keyed_id(ID, "tests"))


def test_a_line_is_looked_through_to_its_limit() -> None:
    last = ID
    for _ in range(LINE_LIMIT - 1):
        last = child_id(last)
    assert is_in_line(ID, last)
    assert not is_in_line(ID, child_id(last))


# What a chain remembers.


def test_who_waits_is_said_by_the_sender_then_by_the_bus() -> None:
    chain = Chain(id=ID)
    chain = step(chain, following(chain, "sent", waiter=ASKER, addressee="role"))
    assert (chain.sender, chain.waiter, chain.addressee) == (ASKER, ASKER, "role")
    chain = step(chain, following(chain, "delivered", waiter="source", addressee="role"))
    assert (chain.sender, chain.waiter) == (ASKER, "source")


def test_a_receiver_cannot_turn_the_answers_to_somebody_else() -> None:
    chain = Chain(id=ID)
    chain = step(chain, following(chain, "sent", waiter=ASKER, addressee="role"))
    chain = grow("delivered", chain=chain)
    chain = step(chain, following(chain, "accepted", waiter=WORKER, addressee=WORKER))
    assert (chain.waiter, chain.addressee) == (ASKER, "role")


def test_a_chain_knows_its_work_when_it_began_and_when_it_changed() -> None:
    chain = Chain(id=ID)
    chain = step(chain, following(chain, "sent", at=5.0, work="WORK-01"))
    chain = step(chain, following(chain, "delivered", at=7.5))
    assert (chain.began, chain.changed, chain.work) == (5.0, 7.5, "WORK-01")
    assert fold(chain, [following(chain, "settled", at=9.0)]).changed == 7.5


# Any events in any order.

ACTORS = [ASKER, WORKER, OTHER, ROGUE, WINDOW_MANAGER, RECEIPT_KEEPER, OPERATOR]
ANY_EVENT = st.builds(
    Event,
    sequence=st.integers(),
    kind=st.sampled_from([*sorted(KINDS), "unknown"]),
    actor=st.sampled_from(ACTORS) | st.text(),
    tail=st.integers(),
    at=st.floats(allow_nan=False),
    to=st.text(),
    accepted=st.none() | st.integers(),
    attempt=st.none() | st.integers(),
    lease=st.none() | st.integers(),
    waiter=st.none() | st.text(),
    reason=st.text(),
    child_to=st.none() | st.text(),
)

# Mostly what an honest writer would write, sometimes with one thing forged.
WISHES = st.lists(
    st.tuples(
        st.sampled_from([*sorted(KINDS), "accepted", "accepted", "failed", "unknown"]),
        st.sampled_from(
            [{}] * 6
            + [{"actor": it} for it in ACTORS]
            + [{"tail": 0}, {"accepted": 9}, {"attempt": 4}, {"lease": 1}, {"reason": "same"}]
        ),
    ),
    max_size=40,
)
OPENINGS = st.sampled_from([[], ["sent"], ["sent", "delivered"], ["sent", "delivered", "accepted"]])


@given(st.lists(ANY_EVENT, max_size=20))
def test_a_fold_never_raises(events: list[Event]) -> None:
    chain = fold(Chain(id=ID), events)
    assert chain.tail == (events[-1].sequence if events else 0)


@given(OPENINGS, WISHES)
def test_the_promises_of_a_chain_hold_whatever_is_written(
    opening: list[str], wishes: list[tuple[str, dict[str, Any]]]
) -> None:
    chain = grow(*opening)
    begun, events, valid = chain, [], []
    for kind, forged in wishes:
        event = following(chain, kind, **forged)
        after = fold(chain, [event])
        if objection(chain, event) is None:
            assert not chain.final
            assert (after.stage, after.tail, after.void) == (kind, event.sequence, chain.void)
            if kind in {"settled", "failed"}:
                assert (event.actor, event.accepted) == (chain.owner, chain.owner_sequence)
            valid.append(event)
        else:
            assert after == replace(chain, tail=event.sequence, void=(*chain.void, event.sequence))
        events.append(event)
        chain = after
    accepted = [it for it in valid if it.kind == "accepted"]
    assert fold(begun, events) == chain
    assert sum(it.kind in FINAL for it in valid) <= 1
    assert all(it.attempt in {1, 2, 3} for it in accepted)
    assert [it.lease for it in accepted] == [begun.lease + 1 + n for n in range(len(accepted))]
    assert chain.takeovers <= TAKEOVER_LIMIT
    assert chain.lease <= ATTEMPT_LIMIT + TAKEOVER_LIMIT


def test_the_published_diagram_is_the_table() -> None:
    page = Path(__file__).parents[2] / "bus" / "decisions" / "chain.md"
    assert f"```mermaid\n{diagram()}```\n" in page.read_text(), (
        f"{page.name} is stale: its block must be what batonbus.rules.chain.diagram() returns"
    )


@pytest.mark.parametrize(("stage", "kind", "cell"), CELLS)
def test_the_diagram_has_an_arrow_where_the_table_has_a_cross(
    stage: str, kind: str, cell: str
) -> None:
    arrow = f"    {'[*]' if stage == 'none' else stage} --> {kind}\n"
    assert (arrow in diagram()) is (cell == "x")
