"""Every state of the chain with its writers, driven by the product's own table and guards: the
small sizes are clean, and each rule that is left out is missed. `python tests/modelcheck --all`
looks at larger ones.
"""

import pytest
from left_out import (
    CELLS,
    KNOWN,
    LEFT_OUT,
    UNUSED,
    LeftOut,
    alone,
    broken,
    cell,
    cells,
    expired,
    fails,
    fenced,
    late,
    line,
    mishap,
    plain,
    refuses,
    shut,
    stopped,
)
from msgspec.structs import replace
from search import Search, strong_components
from sizes import SMALL
from world import Scenario

from batonbus.rules.chain import MAY_FOLLOW

RULES_IN = [
    plain,
    mishap,
    fenced,
    late,
    alone,
    stopped,
    fails,
    refuses,
    shut,
    broken,
    expired,
    line,
]


@pytest.mark.parametrize("scenario", SMALL, ids=lambda it: it.name)
def test_no_handoff_is_stuck_lost_or_ended_twice_in_any_reachable_state(
    scenario: Scenario,
) -> None:
    result = Search(scenario).run()
    assert (result.harm, result.what, result.trace) == (None, "", ())
    assert result.complete
    assert result.states > 200


@pytest.mark.parametrize("rule", LEFT_OUT, ids=lambda it: it.rule)
def test_each_rule_that_is_left_out_is_missed(rule: LeftOut) -> None:
    result = rule.run()
    assert result.harm == rule.harm, result


@pytest.mark.parametrize("rule", list(cells()), ids=lambda it: it.rule)
def test_each_cell_of_the_table_that_is_left_out_is_missed(rule: LeftOut) -> None:
    result = rule.run()
    assert result.harm == rule.harm, result


@pytest.mark.parametrize(
    "scenario",
    [*RULES_IN, *(it.scenario for it in LEFT_OUT if it.scenario.strays)],
    ids=lambda it: it.name,
)
def test_where_a_rule_is_missed_nothing_is_wrong_with_it(scenario: Scenario) -> None:
    result = Search(replace(scenario, without="")).run()
    assert (result.harm, result.trace) == (None, ())
    assert result.complete


def test_every_cell_of_the_table_is_looked_at() -> None:
    table = {(kind, stage) for kind, stages in MAY_FOLLOW.items() for stage in stages}
    assert set(CELLS) | UNUSED == table
    assert not set(CELLS) & UNUSED


@pytest.mark.parametrize(("kind", "stage"), sorted(UNUSED))
def test_a_cell_that_no_writer_uses_is_not_missed(kind: str, stage: str) -> None:
    with cell(kind, stage):  # type: ignore[arg-type]
        assert {Search(it).run().harm for it in RULES_IN} == {None}


@pytest.mark.parametrize("limit", KNOWN, ids=lambda it: it.rule)
def test_a_known_limit_is_still_one(limit: LeftOut) -> None:
    assert limit.run().harm == limit.harm


def test_a_search_that_is_cut_off_says_so() -> None:
    result = Search(plain, limit=20).run()
    assert (result.complete, result.states) == (False, 20)


def test_harm_is_told_with_the_shortest_way_to_it() -> None:
    rule = next(it for it in LEFT_OUT if it.rule == "the keeper says overdue")
    result = rule.run()
    assert result.trace == ("sender sends",)
    assert result.what == "handoff 0 is sent, no keeper may answer"


def test_circles_are_found() -> None:
    #    0 -> 1 <-> 2 -> 3
    components = strong_components([[1], [2], [1, 3], []])
    assert components[1] == components[2]
    assert len(set(components)) == 3
