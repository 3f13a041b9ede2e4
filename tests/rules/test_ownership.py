"""Take it, leave it, or wait: what an agent does with a delivered handoff."""

from typing import Any
from uuid import UUID

import pytest

from batonbus.rules.chain import FINAL, TAKEOVER_LIMIT, Chain
from batonbus.rules.ownership import Claim, claim, claim_by_hand, holds, retry_delay
from batonbus.rules.settings import Settings
from batonbus_schemas import AgentCard, Presence

WAIT = Claim(act="wait")


def chain(stage: str, **changes: Any) -> Chain:
    fields = {"delivered_sequence": 5, "attempt": 1, "lease": 0, **changes}
    return Chain(id=UUID(int=1), stage=stage, **fields)  # type: ignore[arg-type]


def owned(**changes: Any) -> Chain:
    fields = {"owner": "builder-1", "owner_sequence": 7, "lease": 1, **changes}
    return chain("accepted", **fields)


@pytest.mark.parametrize("stage", sorted(FINAL))
@pytest.mark.parametrize("alive", [True, False, None])
def test_a_final_handoff_is_dropped(stage: str, alive: bool | None) -> None:
    assert claim(chain(stage), owner_alive=alive) == Claim(act="drop")


@pytest.mark.parametrize("stage", ["delivered", "held", "overdue"])
@pytest.mark.parametrize("alive", [True, False, None])
def test_what_nobody_owns_is_taken_as_the_first_attempt(stage: str, alive: bool | None) -> None:
    assert claim(chain(stage), owner_alive=alive) == Claim(act="take", attempt=1, lease=1)


def test_after_a_failure_the_next_attempt_is_taken() -> None:
    failed = chain("failed", attempt=2, lease=4)
    assert claim(failed, owner_alive=None) == Claim(act="take", attempt=3, lease=5)


def test_after_the_third_failure_nobody_takes_it() -> None:
    assert claim(chain("failed", attempt=3, lease=3), owner_alive=None) == WAIT


def test_only_an_owner_that_is_known_to_be_gone_loses_its_handoff() -> None:
    assert claim(owned(), owner_alive=True) == WAIT
    assert claim(owned(), owner_alive=None) == WAIT
    assert claim(owned(), owner_alive=False) == Claim(act="take", attempt=1, lease=2)


def test_a_takeover_goes_on_with_the_same_attempt() -> None:
    assert claim(owned(attempt=3, lease=6), owner_alive=False).attempt == 3


@pytest.mark.parametrize(
    ("takeovers", "act"), [(TAKEOVER_LIMIT - 1, "take"), (TAKEOVER_LIMIT, "wait")]
)
def test_the_takeovers_are_bounded(takeovers: int, act: str) -> None:
    assert claim(owned(takeovers=takeovers), owner_alive=False).act == act


@pytest.mark.parametrize("stage", ["none", "sent", "held", "overdue"])
def test_what_the_window_manager_has_not_delivered_is_not_taken(stage: str) -> None:
    assert claim(chain(stage, delivered_sequence=None), owner_alive=None) == WAIT


def test_an_owner_holds_by_its_name_and_its_accepted_event() -> None:
    assert holds(owned(), "builder-1", 7)
    assert not holds(owned(), "builder-2", 7)
    # Itself, but before a restart: another lease.
    assert not holds(owned(), "builder-1", 6)


@pytest.mark.parametrize("stage", ["failed", "settled", "dead", "cancelled"])
def test_nobody_holds_what_is_answered(stage: str) -> None:
    assert not holds(chain(stage, owner="builder-1", owner_sequence=7), "builder-1", 7)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 2.0), (2, 8.0), (3, 32.0)])
def test_each_failure_makes_the_next_attempt_wait_four_times_as_long(
    attempt: int, seconds: float
) -> None:
    assert retry_delay(attempt, 2.0) == seconds


# By hand.

CHANGED = 1000.0
GONE = CHANGED + Settings().presence_timeout


def by_hand(chain: Chain, *agents: Presence, now: float = GONE) -> Claim:
    return claim_by_hand(chain, agents, Settings(), now=now)


@pytest.mark.parametrize("stage", ["delivered", "held", "overdue", "failed"])
def test_a_person_takes_what_nobody_owns(stage: str) -> None:
    assert by_hand(chain(stage)).act == "take"


def test_a_person_takes_nothing_from_an_agent_be_it_alive_or_gone() -> None:
    alive = Presence(card=AgentCard(id="builder-1", role="builder"), working=(7,))
    assert by_hand(owned(changed=CHANGED), alive) == WAIT
    assert by_hand(owned(changed=CHANGED)) == WAIT


def test_a_person_goes_on_where_another_one_broke_off() -> None:
    half = owned(owner="person-ada", changed=CHANGED)
    assert by_hand(half, now=GONE - 0.001) == WAIT
    assert by_hand(half) == Claim(act="take", attempt=1, lease=2)


def test_an_agent_that_is_named_like_a_person_keeps_what_it_holds() -> None:
    agent = Presence(card=AgentCard(id="person-1", role="person"), working=(7,))
    assert by_hand(owned(owner="person-1", changed=CHANGED), agent) == WAIT
