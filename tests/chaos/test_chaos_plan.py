"""A seed's plan of faults."""

from chaos_plan import KEEPERS, MANAGERS, PAIRS, PROGRAMS, STEPS, make_plan, twin


def test_the_same_seed_gives_the_same_faults_and_another_one_others() -> None:
    first, again, other = (make_plan(it, 100, lease=2.0, mean_gap=0.8) for it in (7, 7, 8))
    assert first == again
    assert first != other


def test_more_kills_and_cuts_are_planned_than_are_asked_for() -> None:
    for seed in range(20):
        plan = make_plan(seed, 100, lease=2.0, mean_gap=0.8)
        assert 130 <= sum(it.disrupts for it in plan) < 135


def test_in_a_long_plan_everybody_is_hit_at_each_of_its_steps() -> None:
    plan = make_plan(1, 3000, lease=2.0, mean_gap=0.8)
    armed = {(it.target, it.step) for it in plan if it.kind == "failpoint"}
    steps = {(name, step) for names, steps in STEPS.items() for name in names for step in steps}
    assert armed == steps
    assert {it.target for it in plan} == {*PROGRAMS, "server"}


def test_no_part_of_the_bus_is_away_for_longer_than_a_lease_or_two() -> None:
    plan = make_plan(1, 3000, lease=2.0, mean_gap=0.8)
    assert max(it.seconds for it in plan if it.target in (*MANAGERS, *KEEPERS)) <= 4.0


def test_each_program_of_a_pair_has_the_other_one_as_its_twin() -> None:
    assert all((twin(one), twin(other)) == (other, one) for one, other in PAIRS)
    assert twin("source") is None
