"""Who comes next, in each mode."""

import pytest

from batonbus_agents.routes import (
    ATTEMPTS,
    ROLES,
    ROUTES,
    STAGES,
    STARTS,
    Mode,
    Role,
    Route,
    Status,
    route,
)

MODES: tuple[Mode, ...] = ("direct", "pipeline", "full")
STATUSES: tuple[Status, ...] = ("PASS", "FAIL")

INVOKED: dict[Mode, set[Role]] = {
    "direct": {"specifier", "builder", "committer"},
    "pipeline": {"specifier", "planner", "builder", "verifier", "committer"},
    "full": {"specifier", "planner", "scheduler", "builder", "verifier", "committer"},
}
"""Seed 002, section 5: who is invoked."""


def test_every_role_that_a_mode_invokes_has_a_route_for_each_status_and_no_other_has() -> None:
    wanted = {(m, role, s) for m in MODES for role in INVOKED[m] for s in STATUSES}
    assert set(ROUTES) == wanted


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_leads_only_to_roles_that_it_invokes(mode: Mode) -> None:
    leads_to = {to for (of, _, _), to in ROUTES.items() if of == mode}
    assert leads_to <= INVOKED[mode] | {"reply"}
    assert set(STAGES[mode]) <= INVOKED[mode]
    assert STARTS[mode] in INVOKED[mode]


def test_the_dispatchers_of_the_seed_hand_to_their_receivers() -> None:
    # Seed 002, section 3, the rows in which a role hands on by itself.
    assert ROUTES["direct", "specifier", "PASS"] == "builder"
    assert ROUTES["pipeline", "specifier", "PASS"] == "planner"
    assert ROUTES["full", "specifier", "PASS"] == "planner"
    assert ROUTES["pipeline", "planner", "PASS"] == "builder"
    assert ROUTES["full", "planner", "PASS"] == "scheduler"


@pytest.mark.parametrize("role", STAGES["full"])
@pytest.mark.parametrize("status", STATUSES)
def test_in_full_mode_every_stage_answers_the_scheduler(role: Role, status: Status) -> None:
    assert route("full", role, status, 1) == Route("reply", 1)


@pytest.mark.parametrize(("mode", "start"), [("direct", "builder"), ("pipeline", "builder")])
def test_passes_lead_through_the_stages_to_the_reply(mode: Mode, start: Role) -> None:
    passed = [start]
    while (following := route(mode, passed[-1], "PASS", 2)).to != "reply":
        assert following.attempt == 2
        passed.append(following.to)
    assert tuple(passed) == STAGES[mode]


@pytest.mark.parametrize("mode", ["direct", "pipeline"])
def test_a_fail_goes_to_the_builder_with_the_next_attempt_and_after_the_third_back(
    mode: Mode,
) -> None:
    for role in STAGES[mode]:
        assert route(mode, role, "FAIL", 1) == Route("builder", 2)
        assert route(mode, role, "FAIL", 2) == Route("builder", 3)
        assert route(mode, role, "FAIL", ATTEMPTS) == Route("reply", ATTEMPTS)


def test_a_role_that_a_mode_does_not_invoke_has_no_route() -> None:
    for mode in MODES:
        for role in set(ROLES) - INVOKED[mode]:
            with pytest.raises(KeyError):
                route(mode, role, "PASS", 1)
