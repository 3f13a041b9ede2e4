"""What of the ledger may go, and what has to stay whole."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus.rules.chain import Chain, child_id
from batonbus.rules.retention import (
    Relative,
    by_work,
    expired,
    families,
    obstacles,
    open_member,
)

OLD, NEW, BEFORE = 10.0, 100.0, 50.0


def handoff(
    number: int, *names: int, stage: Any = "settled", at: float = OLD, **more: Any
) -> Relative:
    chain = Chain(id=UUID(int=number), stage=stage, began=at, changed=at, **more)
    return Relative(chain=chain, at=at, names=frozenset(UUID(int=it) for it in names))


def ledger(*relatives: Relative) -> dict[UUID, Relative]:
    return {it.chain.id: it for it in relatives}


def gone(*relatives: Relative) -> set[int]:
    found = expired(ledger(*relatives), before=BEFORE)
    return {it.chain.id.int for family in found for it in family}


def test_what_ended_long_ago_goes() -> None:
    stages = ("settled", "refused", "dead", "cancelled")
    assert gone(*(handoff(n, stage=it) for n, it in enumerate(stages))) == {0, 1, 2, 3}


def test_what_is_young_or_open_stays() -> None:
    assert gone(handoff(1, at=NEW), handoff(2, stage="held"), handoff(3, at=BEFORE)) == set()


@pytest.mark.parametrize("reason", [{"stage": "accepted"}, {"at": NEW}])
def test_a_parent_stays_while_what_leads_to_it_does(reason: dict[str, Any]) -> None:
    """Also two steps and more away, and whatever else those lead to."""
    line = [handoff(1), handoff(2, 1), handoff(3, 2, **reason), handoff(4, 1)]
    assert gone(*line, handoff(9)) == {9}


def test_a_work_goes_as_a_whole() -> None:
    works = [
        handoff(1, work="shop"),
        handoff(2, work="shop", at=NEW),
        handoff(3, work="site"),
        handoff(4, work="site"),
    ]
    assert gone(*works) == {3, 4}


def test_handoffs_outside_of_works_belong_together_only_where_they_name_each_other() -> None:
    assert gone(handoff(1, work="adhoc"), handoff(2, work="adhoc", stage="sent")) == {1}


def test_what_was_handed_on_and_is_not_delivered_yet_is_open() -> None:
    parent = UUID(int=1)
    settled = handoff(1, child=child_id(parent))
    assert gone(settled) == set()
    assert open_member((settled,)) == child_id(parent)
    child = Relative(chain=Chain(id=child_id(parent), stage="refused"), at=OLD)
    assert gone(settled, child) == {1, child_id(parent).int}


def test_void_events_alone_are_no_handoff() -> None:
    assert gone(handoff(1, stage="none"), handoff(2, stage="none", at=NEW)) == {1}


def test_void_events_where_one_is_handed_on_do_not_end_it() -> None:
    parent = UUID(int=1)
    stray = Relative(chain=Chain(id=child_id(parent)), at=OLD)
    assert gone(handoff(1, child=child_id(parent)), stray) == set()


def test_a_name_that_is_gone_already_holds_nothing() -> None:
    assert gone(handoff(2, 1)) == {2}


def test_in_a_family_the_first_one_goes_first() -> None:
    """Else a crash in the middle would leave one that hands on to what is gone."""
    late, early = handoff(1, 2, at=20.0), handoff(2, at=10.0)
    (family,) = expired(ledger(late, early), before=BEFORE)
    assert [it.chain.id.int for it in family] == [2, 1]


@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 19), max_size=3),
            st.sampled_from(["settled", "dead", "accepted", "sent"]),
            st.sampled_from([OLD, NEW]),
            st.sampled_from(["adhoc", "adhoc", "shop", "site"]),
        ),
        max_size=20,
    )
)
def test_nothing_that_stays_leads_to_what_goes(made: Any) -> None:
    relatives = ledger(
        *(
            handoff(n, *names, stage=stage, at=at, work=work)
            for n, (names, stage, at, work) in enumerate(made)
        )
    )
    removed = {it.chain.id for family in expired(relatives, before=BEFORE) for it in family}
    for relative in relatives.values():
        if relative.chain.id in removed:
            assert relative.chain.final
            assert relative.at < BEFORE
        else:
            assert not relative.names & removed
    works = {relatives[it].chain.work for it in removed} - {"adhoc"}
    assert not works & {it.chain.work for it in relatives.values() if it.chain.id not in removed}
    assert sum(map(len, families(relatives))) == len(relatives)


def test_a_dead_handoff_may_be_removed_by_itself() -> None:
    relatives = ledger(handoff(1, stage="dead", work="shop"), handoff(2, 1, work="shop"))
    assert obstacles(relatives, [UUID(int=1)]) == {}


def test_it_stays_while_the_handler_that_sent_it_may_run_again() -> None:
    relatives = ledger(handoff(1, stage="accepted"), handoff(2, 1, stage="dead"))
    found = obstacles(relatives, [UUID(int=2)])
    assert found == {UUID(int=2): f"handoff {UUID(int=1)} of the same line or work is open"}


def test_it_stays_while_another_of_its_work_is_open() -> None:
    works = [handoff(1, stage="dead", work="shop"), handoff(2, stage="sent", work="shop")]
    assert list(obstacles(ledger(*works), [UUID(int=1)])) == [UUID(int=1)]


def test_what_was_handed_on_goes_only_with_what_handed_it_on() -> None:
    parent = UUID(int=1)
    child = Relative(chain=Chain(id=child_id(parent), stage="dead"), at=OLD)
    found = obstacles(ledger(handoff(1, child=child_id(parent)), child), [child.chain.id])
    assert f"handoff {parent} handed on to it" in found[child.chain.id]


def test_handoffs_are_counted_by_work() -> None:
    made = [handoff(1, work="shop"), handoff(2, work="shop"), handoff(3), handoff(4, work="adhoc")]
    assert by_work(families(ledger(*made))) == {"shop": 2, "adhoc": 2}
