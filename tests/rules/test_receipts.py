"""When an open handoff must be looked at, and what the receipt keeper then answers for it."""

from itertools import product
from typing import Any
from uuid import UUID

import pytest

from batonbus.rules.chain import (
    FINAL,
    OPEN,
    RECEIPT_KEEPER,
    TAKEOVER_LIMIT,
    Chain,
    Event,
    step,
)
from batonbus.rules.receipts import (
    BUSY,
    NO_MANAGER,
    PERSON,
    Listening,
    Verdict,
    due_at,
    judge,
    judge_owned,
    who_listens,
)
from batonbus.rules.settings import Settings
from batonbus_schemas import AgentCard, Presence

SETTINGS = Settings()  # receipt 30 s, given up after 600 s, a beat each 5 s, gone after 15 s
BEGAN, CHANGED = 1000.0, 1010.0
NOBODY = Listening(alone_for=1e6)
UNKNOWN = None
UNANSWERED = ["none", "sent", "delivered"]
ANSWERED = ["held", "overdue", "failed"]


def chain(stage: str, **changes: Any) -> Chain:
    fields = {"began": BEGAN, "changed": CHANGED, "addressee": "builder", "owner": "builder-1"}
    if stage not in {"none", "sent"}:
        fields["delivered_sequence"] = 5
    return Chain(id=UUID(int=1), stage=stage, **{**fields, **changes})  # type: ignore[arg-type]


def agent(
    name: str, *working: int, slots: int = 1, stopping: bool = False, closed: str = ""
) -> Presence:
    card = AgentCard(id=name, role="builder", slots=slots)
    return Presence(card=card, working=working, stopping=stopping, closed=closed)


def live(*agents: Presence) -> Listening:
    return who_listens(agents)


ONE_BUSY = live(agent("builder-1", 7))
ONE_FREE = live(agent("builder-1"))
ONE_CLOSED = live(agent("builder-1", closed="compacting"))


def held(reason: str = BUSY, **changes: Any) -> Chain:
    return chain("held", reason=reason, **changes)


# When.


@pytest.mark.parametrize("stage", UNANSWERED)
def test_the_receipt_is_due_30_s_after_the_handoff_began_whatever_happened_since(
    stage: str,
) -> None:
    assert due_at(chain(stage), SETTINGS) == BEGAN + 30


@pytest.mark.parametrize("stage", ANSWERED)
def test_what_is_answered_is_looked_at_again_once_a_presence_has_passed(stage: str) -> None:
    assert due_at(chain(stage), SETTINGS) == CHANGED + 15
    assert due_at(chain(stage), SETTINGS, looked=CHANGED + 15) == CHANGED + 30
    assert due_at(chain(stage), SETTINGS, looked=CHANGED + 6000) == CHANGED + 6015


def test_many_handoffs_are_looked_at_together() -> None:
    """One listing of the registry for all whose time comes within a heartbeat."""
    changed = [CHANGED + offset for offset in (0.1, 1.7, 4.9)]
    assert {due_at(held(changed=it), SETTINGS) for it in changed} == {CHANGED + 20}


def test_after_the_third_failure_it_is_due_at_once() -> None:
    assert due_at(chain("failed", attempt=2), SETTINGS) == CHANGED + 15
    assert due_at(chain("failed", attempt=3), SETTINGS) == CHANGED


@pytest.mark.parametrize("stage", [*UNANSWERED, *ANSWERED])
def test_what_a_look_led_to_may_take_a_while_to_be_read(stage: str) -> None:
    """It is not judged again at each tick in between, and never forgotten."""
    for looked in (CHANGED + 20, CHANGED + 21, CHANGED + 1000.5):
        again = due_at(chain(stage, attempt=3), SETTINGS, looked=looked)
        assert again is not None
        assert looked < again <= looked + 20


def test_only_its_owner_moves_an_accepted_handoff() -> None:
    assert due_at(chain("accepted"), SETTINGS) is None


@pytest.mark.parametrize("stage", sorted(FINAL))
def test_a_final_handoff_is_never_due(stage: str) -> None:
    for final in (chain(stage), chain(stage, deadline=CHANGED)):
        assert due_at(final, SETTINGS) is None
        assert judge(final, SETTINGS, now=1e9, listening=NOBODY) is None


def test_void_events_alone_are_nobodys_handoff() -> None:
    stray = Chain(id=UUID(int=1), tail=4, void=(4,))
    assert due_at(stray, SETTINGS) is None
    assert judge(stray, SETTINGS, now=1e9, listening=NOBODY) is None


@pytest.mark.parametrize(("stage", "moment"), [("sent", 1030.0), ("overdue", 1610.0)])
def test_nothing_is_written_before_the_moment_and_something_at_it(
    stage: str, moment: float
) -> None:
    assert judge(chain(stage), SETTINGS, now=moment - 0.001, listening=NOBODY) is None
    assert judge(chain(stage), SETTINGS, now=moment, listening=NOBODY) is not None


@pytest.mark.parametrize("stage", sorted(OPEN - {"accepted"}))
def test_every_open_handoff_without_an_owner_is_answered_in_the_end(stage: str) -> None:
    assert judge(chain(stage), SETTINGS, now=CHANGED + 600, listening=NOBODY) is not None


@pytest.mark.parametrize("stage", ANSWERED)
def test_nobody_is_given_up_while_the_registry_cannot_be_trusted(stage: str) -> None:
    assert judge(chain(stage), SETTINGS, now=CHANGED + 6000, listening=UNKNOWN) is None


def test_what_was_delivered_late_is_not_called_overdue_in_that_moment() -> None:
    late = chain("delivered", changed=BEGAN + 50)
    assert judge(late, SETTINGS, now=BEGAN + 50.5, listening=NOBODY) is None
    assert judge(late, SETTINGS, now=BEGAN + 55.0, listening=NOBODY) is not None


def test_an_interrupted_third_attempt_is_made_again() -> None:
    interrupted = chain("failed", attempt=3, interrupted=True)
    alone = Listening(alone_for=1.0)
    assert judge(interrupted, SETTINGS, now=CHANGED + 20, listening=alone) is None


# The answer at the receipt's limit.


def at_the_limit(listening: Listening | None, stage: str = "delivered", **changes: Any) -> Verdict:
    verdict = judge(chain(stage, **changes), SETTINGS, now=BEGAN + 30, listening=listening)
    assert verdict is not None
    return verdict


@pytest.mark.parametrize("stage", ["sent", "none"])
def test_an_undelivered_handoff_is_overdue_for_want_of_a_window_manager(stage: str) -> None:
    assert at_the_limit(ONE_BUSY, stage) == Verdict(
        kind="overdue", reason=NO_MANAGER, listening=("builder-1",)
    )


def test_a_delivered_handoff_that_nobody_listens_for_is_overdue() -> None:
    assert at_the_limit(Listening(alone_for=3.0)) == Verdict(
        kind="overdue", reason="no agent is listening as builder"
    )


@pytest.mark.parametrize(
    ("gone", "who"),
    [(("builder-1",), "builder-1 was"), (("builder-1", "builder-2"), "its 2 agents were")],
)
def test_who_listened_and_is_gone_is_named(gone: tuple[str, ...], who: str) -> None:
    assert at_the_limit(Listening(alone_for=12.3, gone=gone)) == Verdict(
        kind="overdue", reason=f"no agent is listening as builder any more: {who} until 12 s ago"
    )


def test_while_the_registry_cannot_be_trusted_nobody_is_said_to_be_missing() -> None:
    reason = "not accepted in time; who is listening is not known yet after an outage"
    assert at_the_limit(UNKNOWN) == Verdict(kind="overdue", reason=reason)


def test_where_every_listener_is_busy_it_is_held() -> None:
    verdict = at_the_limit(live(agent("builder-1", 7), agent("builder-2", 8, 9, slots=2)))
    assert verdict == Verdict(kind="held", reason=BUSY, listening=("builder-1", "builder-2"))


def test_a_stopping_agent_counts_as_busy() -> None:
    agents = live(agent("builder-1", stopping=True), agent("builder-2", 7))
    assert at_the_limit(agents).reason == BUSY


@pytest.mark.parametrize(
    ("agents", "reason"),
    [
        ([agent("a", closed="context usage")], "closed: context usage"),
        (
            [agent("a", closed="context usage"), agent("b", 7, closed="context usage")],
            "all 2 agents are closed: context usage",
        ),
        (
            [agent("a", closed="context usage"), agent("b", closed="compacting")],
            "all 2 agents are closed: compacting; context usage",
        ),
        (
            [agent("a", closed="context usage"), agent("b", 7)],
            "its agents are busy or closed: context usage",
        ),
    ],
)
def test_where_no_listener_is_open_it_is_held_for_that_reason(
    agents: list[Presence], reason: str
) -> None:
    listening = tuple(it.card.id for it in agents)
    assert at_the_limit(live(*agents)) == Verdict(kind="held", reason=reason, listening=listening)


def test_where_one_listener_has_a_free_slot_it_is_overdue() -> None:
    agents = live(agent("builder-1", closed="compacting"), agent("builder-2", 8, slots=2))
    assert at_the_limit(agents) == Verdict(
        kind="overdue",
        reason="2 agents listen as builder, none accepted it",
        listening=("builder-1", "builder-2"),
    )
    assert at_the_limit(ONE_FREE).reason == "1 agent listens as builder, none accepted it"


def test_a_question_that_no_agent_listens_for_waits_for_a_person() -> None:
    waits = Verdict(kind="held", reason="waits for a person as builder")
    assert at_the_limit(NOBODY, question=True) == waits
    assert at_the_limit(NOBODY, "sent", question=True).reason == NO_MANAGER
    assert at_the_limit(ONE_BUSY, question=True).reason == BUSY
    assert at_the_limit(UNKNOWN, question=True).kind == "overdue"


# What is answered stays so while it is true.


@pytest.mark.parametrize("waited", [20.0, 6e6])
def test_a_handoff_is_held_for_as_long_as_the_reason_is_true(waited: float) -> None:
    for reason, listening in (
        (BUSY, ONE_BUSY),
        ("closed: compacting", ONE_CLOSED),
        (PERSON.format(role="builder"), NOBODY),
    ):
        waiting = held(reason, question=listening is NOBODY)
        assert judge(waiting, SETTINGS, now=CHANGED + waited, listening=listening) is None


@pytest.mark.parametrize("stage", ["held", "overdue"])
@pytest.mark.parametrize(
    ("listening", "reason"), [(ONE_BUSY, BUSY), (ONE_CLOSED, "closed: compacting")]
)
def test_another_reason_is_told(stage: str, listening: Listening, reason: str) -> None:
    """An overdue one as well: else it would be given up though an agent lives that comes to it."""
    waiting = chain(stage, reason="as it was")
    verdict = judge(waiting, SETTINGS, now=CHANGED + 6000, listening=listening)
    assert verdict == Verdict(kind="held", reason=reason, listening=("builder-1",))


def test_a_reason_can_be_told_from_another_by_what_the_header_holds_of_it() -> None:
    long = live(*(agent(f"a{it}", it, closed=f"{it} " * 50) for it in range(1, 9)), agent("b", 9))
    assert len(at_the_limit(long).reason) <= 200


@pytest.mark.parametrize(("alone_for", "told"), [(14.9, False), (15.0, True)])
def test_a_held_handoff_whose_agents_are_gone_is_overdue(alone_for: float, told: bool) -> None:
    """Not while an agent is started again: that takes a moment."""
    alone = Listening(alone_for=alone_for, gone=("builder-1",))
    for reason in (BUSY, "closed: compacting"):
        verdict = judge(held(reason), SETTINGS, now=CHANGED + 6000, listening=alone)
        assert (verdict is not None) is told
        if verdict is not None:
            assert verdict.kind == "overdue"
            assert "builder-1 was until 15 s ago" in verdict.reason


@pytest.mark.parametrize(("waited", "told"), [(29.0, False), (30.0, True)])
def test_a_held_handoff_that_free_agents_leave_is_overdue(waited: float, told: bool) -> None:
    """Not at once: who has just ended its work takes the next one in a moment."""
    verdict = judge(held(), SETTINGS, now=CHANGED + waited, listening=ONE_FREE)
    assert (verdict is not None) is told
    if verdict is not None:
        assert verdict.reason == "1 agent listens as builder, none accepted it"


def test_what_the_window_manager_holds_back_is_its_own() -> None:
    """Two writers that see different things would answer each other without end."""
    back = held("context usage", delivered_sequence=None)
    for listening in (ONE_BUSY, ONE_CLOSED, ONE_FREE, Listening(alone_for=599.0)):
        assert judge(back, SETTINGS, now=CHANGED + 6000, listening=listening) is None
    overdue = chain("overdue", delivered_sequence=None)
    assert judge(overdue, SETTINGS, now=CHANGED + 30, listening=ONE_BUSY) is None


def test_what_it_holds_back_is_given_up_when_nobody_listened_for_10_minutes() -> None:
    back = held("context usage", delivered_sequence=None)
    alone = Listening(alone_for=612.4)
    verdict = judge(back, SETTINGS, now=CHANGED + 6000, listening=alone)
    reason = "held for 612 s: context usage, no agent is listening as builder"
    assert verdict == Verdict(kind="dead", reason=reason)


def test_a_question_is_never_given_up() -> None:
    question = chain("failed", question=True, reason="ValueError")
    assert judge(question, SETTINGS, now=1e9, listening=NOBODY) is None
    for stage in ("overdue", "held"):
        verdict = judge(chain(stage, question=True), SETTINGS, now=1e9, listening=NOBODY)
        assert verdict is not None
        assert verdict.reason == "waits for a person as builder"
        undelivered = chain(stage, question=True, delivered_sequence=None)
        assert judge(undelivered, SETTINGS, now=1e9, listening=NOBODY) is None


# Given up.


def test_the_last_failure_makes_it_dead_with_its_error() -> None:
    failed = chain("failed", attempt=3, reason="KeyError: 'port'")
    reason = "failed 3 of 3 attempts, the last with KeyError: 'port'"
    for listening in (NOBODY, ONE_FREE, UNKNOWN):
        verdict = judge(failed, SETTINGS, now=CHANGED, listening=listening)
        assert verdict == Verdict(kind="dead", reason=reason)


@pytest.mark.parametrize(
    ("listening", "why"),
    [
        (NOBODY, "no agent is listening as builder"),
        (ONE_FREE, "1 agent listens as builder, none accepted it"),
    ],
)
def test_what_nobody_took_for_10_minutes_is_dead_and_says_for_how_long(
    listening: Listening, why: str
) -> None:
    verdict = judge(chain("overdue"), SETTINGS, now=CHANGED + 612.4, listening=listening)
    assert verdict is not None
    assert verdict.kind == "dead"
    assert verdict.reason == f"overdue for 612 s, nobody took it: {why}"


@pytest.mark.parametrize(
    ("waited", "alone_for", "dead"),
    [(6000.0, 599.0, False), (599.0, 6000.0, False), (6000.0, 612.4, True)],
)
def test_a_failed_one_is_given_up_when_nobody_lived_for_10_minutes_to_take_it_again(
    waited: float, alone_for: float, dead: bool
) -> None:
    """It may have asked for a late attempt: 10 minutes since it failed say nothing."""
    failed = chain("failed", attempt=2, reason="KeyError: 'port'")
    alone = Listening(alone_for=alone_for)
    verdict = judge(failed, SETTINGS, now=CHANGED + waited, listening=alone)
    assert (verdict is not None) is dead
    if verdict is not None:
        reason = "failed 2 of 3 attempts, the last with KeyError: 'port'; nobody took it again"
        assert verdict == Verdict(kind="dead", reason=f"{reason} for 612 s")
    assert judge(failed, SETTINGS, now=CHANGED + waited, listening=ONE_FREE) is None


# Every answer is a step that the chain allows, and there is an end.


def answered(before: Chain, verdict: Verdict, now: float) -> Chain:
    """Raises IllegalStepError where the answer would be void."""
    event = Event(
        sequence=before.tail + 1,
        kind=verdict.kind,
        actor=RECEIPT_KEEPER,
        tail=before.tail,
        at=now,
        reason=verdict.reason,
    )
    return step(before, event)


ANYBODY = [UNKNOWN, NOBODY, Listening(), ONE_BUSY, ONE_FREE, ONE_CLOSED]


@pytest.mark.parametrize("stage", sorted(OPEN | {"none"}))
@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("delivered", [None, 5])
@pytest.mark.parametrize("deadline", [None, CHANGED + 700])
def test_no_answer_of_the_keeper_is_void(
    stage: str, question: bool, delivered: int | None, deadline: float | None
) -> None:
    fields = {"question": question, "deadline": deadline, "delivered_sequence": delivered}
    for reason in (BUSY, "closed: compacting", "context usage"):
        for first, then in product(ANYBODY, repeat=2):
            current = chain(stage, reason=reason, **fields)
            for now, listening in ((CHANGED + 40, first), (CHANGED + 800, then)):
                verdict = judge(current, SETTINGS, now=now, listening=listening)
                if verdict is not None:
                    current = answered(current, verdict, now)


@pytest.mark.parametrize("stage", ["none", *sorted(OPEN - {"accepted"})])
@pytest.mark.parametrize("delivered", [None, 5])
@pytest.mark.parametrize("gone_at", [CHANGED, CHANGED + 100, CHANGED + 6000])
def test_whatever_was_answered_it_ends_once_nobody_lives(
    stage: str, delivered: int | None, gone_at: float
) -> None:
    """By looks at the keeper's own moments alone, with no other event to wake it."""
    current, looked = chain(stage, reason=BUSY, delivered_sequence=delivered), 0.0
    while not current.final:
        now = due_at(current, SETTINGS, looked=looked)
        assert now is not None
        assert now < gone_at + SETTINGS.receipt_timeout + SETTINGS.give_up_after + 60
        listening = ONE_BUSY if now < gone_at else Listening(alone_for=now - gone_at)
        verdict = judge(current, SETTINGS, now=now, listening=listening)
        looked = now
        if verdict is not None:
            current = answered(current, verdict, now)
    assert current.stage == "dead"


# A deadline.


@pytest.mark.parametrize("stage", ["delivered", *ANSWERED])
def test_a_deadline_ends_what_nobody_owns_at_that_moment(stage: str) -> None:
    late = chain(stage, deadline=CHANGED + 2, reason="why")
    assert due_at(late, SETTINGS) == CHANGED + 2
    for listening in (NOBODY, ONE_BUSY, UNKNOWN):
        assert judge(late, SETTINGS, now=CHANGED + 1.9, listening=listening) is None
        verdict = judge(late, SETTINGS, now=CHANGED + 5, listening=listening)
        reason = f"its deadline passed 3 s ago while it was {stage}: why"
        assert verdict == Verdict(kind="dead", reason=reason)


def test_a_deadline_ends_a_question_as_well() -> None:
    question = held("waits for a person as builder", question=True, deadline=CHANGED + 7000)
    verdict = judge(question, SETTINGS, now=CHANGED + 7000, listening=NOBODY)
    assert verdict is not None
    assert verdict.kind == "dead"


def test_a_look_before_the_deadline_does_not_put_it_off() -> None:
    late = held(deadline=CHANGED + 17)
    assert due_at(late, SETTINGS, looked=CHANGED + 16) == CHANGED + 17
    again = due_at(late, SETTINGS, looked=CHANGED + 18)
    assert again is not None
    assert again > CHANGED + 18


def test_what_came_too_late_is_the_window_managers_to_refuse() -> None:
    sent = chain("sent", deadline=BEGAN - 90)
    assert judge(sent, SETTINGS, now=CHANGED + 4.9, listening=NOBODY) is None
    verdict = judge(sent, SETTINGS, now=CHANGED + 5, listening=NOBODY)
    assert verdict is not None
    assert verdict.reason == "its deadline passed 105 s ago while it was sent"


def test_a_deadline_ends_the_work_of_its_owner_who_is_told() -> None:
    """Not in that very moment: the owner knows the deadline, and may answer at it."""
    late = chain("accepted", deadline=CHANGED + 10)
    assert due_at(late, SETTINGS) == CHANGED + 15
    assert judge(late, SETTINGS, now=CHANGED + 14.9, listening=ONE_BUSY) is None
    verdict = judge(late, SETTINGS, now=CHANGED + 15, listening=ONE_BUSY)
    reason = "its deadline passed 5 s ago while builder-1 worked on it"
    assert verdict == Verdict(kind="dead", reason=reason, hears="owner")


@pytest.mark.parametrize("deadline", [-1e300, 0.0, 1e300])
def test_any_number_may_stand_where_a_deadline_is_said(deadline: float) -> None:
    """A foreign writer may say anything; nothing it says may stop the keeper."""
    for stage in sorted(OPEN):
        verdict = judge(chain(stage, deadline=deadline), SETTINGS, now=1e6, listening=UNKNOWN)
        if stage == "accepted":
            assert (verdict is None) is (deadline > 1e6)


# An owner that is gone.


@pytest.mark.parametrize("ownerless_for", [None, 0.0, 599.999])
def test_an_owner_that_lives_or_may_come_back_keeps_its_handoff(
    ownerless_for: float | None,
) -> None:
    verdict = judge_owned(chain("accepted"), SETTINGS, ownerless_for=ownerless_for)
    assert verdict is None


def test_a_handoff_whose_owner_is_gone_for_10_minutes_is_dead() -> None:
    verdict = judge_owned(chain("accepted"), SETTINGS, ownerless_for=600.0)
    reason = "its owner builder-1 is gone for 600 s, nobody took over"
    assert verdict == Verdict(kind="dead", reason=reason)


@pytest.mark.parametrize(("ownerless_for", "dead"), [(14.999, False), (15.0, True)])
def test_after_the_last_takeover_a_gone_owner_is_waited_for_as_long_as_a_presence_lasts(
    ownerless_for: float, dead: bool
) -> None:
    spent = chain("accepted", takeovers=TAKEOVER_LIMIT)
    verdict = judge_owned(spent, SETTINGS, ownerless_for=ownerless_for)
    assert (verdict is not None) is dead
    once_more = chain("accepted", takeovers=TAKEOVER_LIMIT - 1)
    assert judge_owned(once_more, SETTINGS, ownerless_for=ownerless_for) is None


def test_the_end_of_takeovers_is_told_with_its_number_and_the_owner() -> None:
    spent = chain("accepted", takeovers=TAKEOVER_LIMIT)
    verdict = judge_owned(spent, SETTINGS, ownerless_for=20.0)
    reason = "changed hands 5 times, and its owner builder-1 is gone again"
    assert verdict == Verdict(kind="dead", reason=reason)


@pytest.mark.parametrize("stage", sorted((OPEN | FINAL) - {"accepted"}))
def test_a_handoff_without_an_owner_is_not_judged_by_one(stage: str) -> None:
    assert judge_owned(chain(stage), SETTINGS, ownerless_for=1e9) is None


def test_an_answer_that_broke_off_is_waited_for() -> None:
    half = chain("accepted", question=True, owner="person-ada")
    assert judge_owned(half, SETTINGS, ownerless_for=6000) is None
    spent = chain("accepted", question=True, owner="person-ada", takeovers=TAKEOVER_LIMIT)
    assert judge_owned(spent, SETTINGS, ownerless_for=6000) is not None
