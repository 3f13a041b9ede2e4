"""When an open handoff must be looked at, and what the receipt keeper then answers for it."""

from typing import Any
from uuid import UUID

import pytest

from batonbus.rules.chain import FINAL, OPEN, TAKEOVER_LIMIT, Chain
from batonbus.rules.receipts import BUSY, Verdict, due_at, judge, judge_owned
from batonbus.rules.settings import Settings
from batonbus_schemas import AgentCard, Presence

SETTINGS = Settings()  # receipt 30 s, given up after 600 s, gone after 15 s
BEGAN, CHANGED = 1000.0, 1010.0


def chain(stage: str, **changes: Any) -> Chain:
    fields = {"began": BEGAN, "changed": CHANGED, "addressee": "builder", "owner": "builder-1"}
    return Chain(id=UUID(int=1), stage=stage, **{**fields, **changes})  # type: ignore[arg-type]


def agent(name: str, *working: int, slots: int = 1, stopping: bool = False) -> Presence:
    card = AgentCard(id=name, role="builder", slots=slots)
    return Presence(card=card, working=working, stopping=stopping)


# When.


@pytest.mark.parametrize("stage", ["sent", "delivered", "none"])
def test_the_receipt_is_due_30_s_after_the_handoff_began_whatever_happened_since(
    stage: str,
) -> None:
    assert due_at(chain(stage), SETTINGS) == BEGAN + 30


@pytest.mark.parametrize("stage", ["held", "overdue", "failed"])
def test_what_nobody_takes_is_given_up_on_10_minutes_after_its_last_change(stage: str) -> None:
    assert due_at(chain(stage), SETTINGS) == CHANGED + 600


def test_after_the_third_failure_it_is_due_at_once() -> None:
    assert due_at(chain("failed", attempt=2), SETTINGS) == CHANGED + 600
    assert due_at(chain("failed", attempt=3), SETTINGS) == CHANGED


def test_only_its_owner_moves_an_accepted_handoff() -> None:
    assert due_at(chain("accepted"), SETTINGS) is None


@pytest.mark.parametrize("stage", sorted(FINAL))
def test_a_final_handoff_is_never_due(stage: str) -> None:
    assert due_at(chain(stage), SETTINGS) is None
    assert judge(chain(stage), SETTINGS, now=1e9, agents=[]) is None


def test_void_events_alone_are_nobodys_handoff() -> None:
    stray = Chain(id=UUID(int=1), tail=4, void=(4,))
    assert due_at(stray, SETTINGS) is None
    assert judge(stray, SETTINGS, now=1e9, agents=[]) is None


@pytest.mark.parametrize(("stage", "moment"), [("sent", 1030.0), ("held", 1610.0)])
def test_nothing_is_written_before_the_moment_and_something_at_it(
    stage: str, moment: float
) -> None:
    assert judge(chain(stage), SETTINGS, now=moment - 0.001, agents=[]) is None
    assert judge(chain(stage), SETTINGS, now=moment, agents=[]) is not None


@pytest.mark.parametrize("stage", sorted(OPEN - {"accepted"}))
def test_every_open_handoff_without_an_owner_is_answered_in_the_end(stage: str) -> None:
    assert judge(chain(stage), SETTINGS, now=CHANGED + 600, agents=[]) is not None


@pytest.mark.parametrize("stage", ["held", "failed"])
def test_what_waits_for_an_agent_that_lives_is_not_given_up(stage: str) -> None:
    for agents in ([agent("builder-1", 7)], None):
        assert judge(chain(stage), SETTINGS, now=CHANGED + 6000, agents=agents) is None


def test_nobody_is_given_up_while_the_registry_cannot_be_trusted() -> None:
    assert judge(chain("overdue"), SETTINGS, now=CHANGED + 6000, agents=None) is None


def test_what_was_delivered_late_is_not_called_overdue_in_that_moment() -> None:
    late = chain("delivered", changed=BEGAN + 50)
    assert judge(late, SETTINGS, now=BEGAN + 50.5, agents=[]) is None
    assert judge(late, SETTINGS, now=BEGAN + 55.0, agents=[]) is not None


def test_an_interrupted_third_attempt_is_made_again() -> None:
    interrupted = chain("failed", attempt=3, interrupted=True)
    assert judge(interrupted, SETTINGS, now=CHANGED + 1, agents=[]) is None


# What.


def test_an_undelivered_handoff_is_overdue_for_want_of_a_window_manager() -> None:
    for stage in ("sent", "none"):
        verdict = judge(chain(stage), SETTINGS, now=1030.0, agents=[agent("builder-1", 7)])
        assert verdict == Verdict(
            kind="overdue",
            reason="the window manager has not delivered it: is one running?",
            listening=("builder-1",),
        )


def test_a_delivered_handoff_that_nobody_listens_for_is_overdue() -> None:
    verdict = judge(chain("delivered"), SETTINGS, now=1030.0, agents=[])
    assert verdict == Verdict(kind="overdue", reason="no agent is listening as builder")


def test_while_the_registry_cannot_be_trusted_nobody_is_said_to_be_missing() -> None:
    verdict = judge(chain("delivered"), SETTINGS, now=1030.0, agents=None)
    reason = "not accepted in time; who is listening is not known yet after an outage"
    assert verdict == Verdict(kind="overdue", reason=reason)


def test_where_every_listener_is_busy_it_is_held() -> None:
    agents = [agent("builder-1", 7), agent("builder-2", 8, 9, slots=2)]
    verdict = judge(chain("delivered"), SETTINGS, now=1030.0, agents=agents)
    assert verdict == Verdict(kind="held", reason=BUSY, listening=("builder-1", "builder-2"))


def test_a_stopping_agent_counts_as_busy() -> None:
    agents = [agent("builder-1", stopping=True), agent("builder-2", 7)]
    verdict = judge(chain("delivered"), SETTINGS, now=1030.0, agents=agents)
    assert verdict is not None
    assert verdict.kind == "held"


def test_where_one_listener_has_a_free_slot_it_is_overdue() -> None:
    agents = [agent("builder-1", 7), agent("builder-2", 8, slots=2)]
    verdict = judge(chain("delivered"), SETTINGS, now=1030.0, agents=agents)
    assert verdict == Verdict(
        kind="overdue",
        reason="2 agents listen as builder, none accepted it",
        listening=("builder-1", "builder-2"),
    )


def test_the_last_failure_makes_it_dead_with_its_error() -> None:
    failed = chain("failed", attempt=3, reason="KeyError: 'port'")
    verdict = judge(failed, SETTINGS, now=CHANGED, agents=[])
    reason = "failed 3 of 3 attempts, the last with KeyError: 'port'"
    assert verdict == Verdict(kind="dead", reason=reason)


@pytest.mark.parametrize("stage", ["held", "overdue", "failed"])
def test_what_nobody_took_for_10_minutes_is_dead_and_says_for_how_long(stage: str) -> None:
    verdict = judge(chain(stage), SETTINGS, now=CHANGED + 612.4, agents=[])
    assert verdict == Verdict(kind="dead", reason=f"{stage} for 612 s, nobody took it")


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
