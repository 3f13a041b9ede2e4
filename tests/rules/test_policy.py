"""The context policy: the seeds' numbers, and overlays that may only be stricter."""

import pytest

from batonbus.rules.policy import Overlay, Policy, Thresholds, contradictions
from batonbus_schemas import AgentCard


@pytest.mark.parametrize(
    ("role", "soft", "hard", "emergency", "characters", "tokens"),
    [
        ("specifier", 50, 60, 80, 3000, 750),
        ("planner", 50, 60, 80, 3000, 750),
        ("scheduler", 50, 60, 80, 3000, 750),
        ("builder", 55, 65, 80, 2800, 700),
        ("verifier", 60, 70, 80, 2400, 600),
        ("committer", 60, 70, 80, 2200, 550),
        ("somebody", 60, 70, 80, 2200, 550),
    ],
)
def test_each_role_has_the_numbers_of_its_row(
    role: str, soft: int, hard: int, emergency: int, characters: int, tokens: int
) -> None:
    limits = Policy().limits_of_role(role)
    assert limits.thresholds == Thresholds(soft=soft, hard=hard, emergency=emergency)
    assert (limits.budget.characters, limits.budget.tokens) == (characters, tokens)


@pytest.mark.parametrize("row", ["prototype", "researcher"])
def test_an_agent_may_name_a_row_that_no_role_has(row: str) -> None:
    limits = Policy().limits_of(AgentCard(id="a", role="somebody", policy_role=row))
    assert (limits.budget.characters, limits.budget.tokens) == (2200, 550)
    assert limits.thresholds.hard == 70


def test_an_agents_own_row_can_only_make_it_stricter() -> None:
    looser = AgentCard(id="b", role="builder", policy_role="reviewer")
    assert Policy().limits_of(looser).thresholds.hard == 65
    stricter = AgentCard(id="v", role="verifier", policy_role="coordinator")
    assert Policy().limits_of(stricter).thresholds.hard == 60


def test_the_strictest_of_row_role_and_agent_counts() -> None:
    policy = Policy(
        roles={"builder": Overlay(hard=60, characters=2000)},
        agents={"b-1": Overlay(hard=58, soft=70, tokens=400)},
    )
    limits = policy.limits_of(AgentCard(id="b-1", role="builder"))
    assert limits.thresholds == Thresholds(soft=55, hard=58, emergency=80)
    assert (limits.budget.characters, limits.budget.tokens) == (2000, 400)
    assert policy.limits_of(AgentCard(id="b-2", role="builder")).thresholds.hard == 60


def test_a_policy_that_names_one_row_keeps_the_others() -> None:
    policy = Policy(thresholds={"reviewer": Thresholds(soft=40, hard=50, emergency=60)})
    assert policy.thresholds_of("reviewer").hard == 50
    assert policy.thresholds_of("implementer").hard == 65
    assert set(policy.completed().thresholds) == set(Policy().completed().thresholds)


@pytest.mark.parametrize("role", ["implementer", "coordinator", "reviewer", "researcher"])
def test_a_role_that_is_named_as_a_row_is_judged_by_it(role: str) -> None:
    assert Policy().row_of(role) == role
    assert Policy(policy_roles={role: "other"}).row_of(role) == "other"


@pytest.mark.parametrize(
    ("overlay", "wrong"),
    [({"soft": 54, "hard": 53}, "soft"), ({"hard": 20, "soft": 10}, "hard")],
)
def test_an_overlay_that_could_not_be_opened_again_is_named(
    overlay: dict[str, float], wrong: str
) -> None:
    given = Overlay(**overlay)
    for policy in (Policy(roles={"builder": given}), Policy(agents={"b": given})):
        assert [it.path.rpartition(".")[2] for it in contradictions(policy)] == [wrong]
