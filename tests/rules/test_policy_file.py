"""A policy in TOML, or in the JSON shapes of other projects; what is wrong is named by its key."""

import json

import pytest

from batonbus.rules.fleet_secrets import Secrets
from batonbus.rules.policy import Budget, Overlay, Policy, Thresholds
from batonbus.rules.policy_file import PolicyError, read_policy, write_policy

FLAT = {
    "soft_warning_pct": 55,
    "hard_compression_pct": 65,
    "emergency_stop_pct": 80,
    "checkpoint_interval_minutes": 45,
    "checkpoint_after_phase": True,
    "checkpoint_after_fix_review_rounds": 2,
    "compression_target_pct_min": 15,
    "compression_target_pct_max": 25,
    "fallback_triggers": ["user_interruption_resume", "two_fix_review_rounds"],
}


def wrong(text: str) -> dict[str, str]:
    """What is said of a text, by key."""
    with pytest.raises(PolicyError) as error:
        read_policy(text)
    return {it.path: it.problem for it in error.value.violations}


def test_what_is_written_is_read_back() -> None:
    changed = Policy(
        thresholds={"reviewer": Thresholds(soft=40, hard=50, emergency=60.5)},
        policy_roles={"tester": "reviewer"},
        roles={"builder": Overlay(hard=60)},
        agents={"b-1": Overlay(characters=2000)},
        secrets=Secrets(patterns=(r"acme'\"-\d{8}\x7f",), names=("acme_pin",)),
    )
    for policy in (Policy(), changed):
        assert read_policy(write_policy(policy)).completed() == policy.completed()


def test_an_empty_file_is_the_defaults() -> None:
    assert read_policy("") == Policy()


def test_a_number_that_a_row_leaves_out_keeps_its_default() -> None:
    text = "[thresholds.implementer]\nsoft = 50\n[budgets.other]\ntokens = 500"
    policy = read_policy(text)
    assert policy.thresholds_of("implementer") == Thresholds(soft=50, hard=65, emergency=80)
    assert policy.budget_of("other") == Budget(characters=2200, tokens=500)
    assert policy.thresholds_of("reviewer") == Policy().thresholds_of("reviewer")


@pytest.mark.parametrize("text", ["", json.dumps(FLAT), "[compaction]\r\ntarget_max = 20\r\n"])
def test_a_mark_of_utf_8_before_the_text_is_none_of_it(text: str) -> None:
    assert read_policy(f"\ufeff{text}") == read_policy(text)


def test_the_flat_json_is_the_implementers_row() -> None:
    policy = read_policy(json.dumps({**FLAT, "hard_compression_pct": 62}))
    assert policy.thresholds_of("implementer").hard == 62
    assert policy.thresholds_of("reviewer").hard == 70
    assert policy.fallback.triggers == ("user_interruption_resume", "two_fix_review_rounds")
    assert policy.checkpoints.interval_minutes == 45


def test_json_with_defaults_and_agents_is_read() -> None:
    agents = {"codex": {"soft_warning_pct": 50, "hard_compression_pct": 60}}
    policy = read_policy(json.dumps({"defaults": FLAT, "agents": agents}))
    assert policy.agents == {"codex": Overlay(soft=50, hard=60)}


def test_context_management_is_read_by_its_own_names() -> None:
    text = '{"contextManagement": {"enabled": true, "phaseBoundary": "compact", "midTask": "off"}}'
    management = read_policy(text).context_management
    assert (management.phase_boundary, management.task_boundary) == ("compact", "compact")
    assert management.mid_task == "off"


def test_context_management_that_is_not_enabled_is_off() -> None:
    management = read_policy('{"contextManagement": {"enabled": false}}').context_management
    assert {management.phase_boundary, management.task_boundary, management.mid_task} == {"off"}


def test_a_soft_threshold_above_the_hard_one_is_named_as_the_file_names_it() -> None:
    assert wrong("[thresholds.reviewer]\nsoft = 75\nhard = 70\nemergency = 80") == {
        "thresholds.reviewer.soft": "is 75, and must be below hard (70)"
    }
    assert wrong(json.dumps({"defaults": {**FLAT, "soft_warning_pct": 70}})) == {
        "defaults.soft_warning_pct": "is 70, and must be below hard (65)"
    }


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ("[thresholds.boss]\nsoft=1\nhard=2\nemergency=3", "thresholds.boss", "not allowed"),
        ("[thresholds.other]\nsoft=70", "thresholds.other.soft", "must be below hard (70)"),
        ("hard = 3", "hard", "unknown field, known: policy_roles"),
        ("[compaction]\ntarget_min = 30", "compaction.target_min", "above target_max 25"),
        ("[compaction]\ntarget_max = 60", "compaction.target_max", "lowest hard threshold 60"),
        ("[roles.builder]\nhard = 66", "roles.builder.hard", "may only be stricter"),
        ("[agents.x]\nhard = 71", "agents.x.hard", "may only be stricter"),
        ("[budgets.other]\ncharacters = 0\ntokens = 1", "budgets.other.characters", "less than 1"),
        ('[context_management]\nmid_task = "clear"', "context_management.mid_task", "allowed: c"),
        ("[fallback]\ntriggers = ['x']", "fallback.triggers[0]", "is not allowed, allowed: b"),
        ("[secrets]\npatterns = ['acme', 'x.*']", "secrets.patterns[1]", "in place of * and +"),
        ("[secrets]\nnames = ['a|b']", "secrets.names[0]", "letters, digits, dashes"),
        ("[secrets]\noff = true", "secrets.off", "unknown field, known: patterns, names"),
        ("[fallback]\ntriggers = []", "fallback.triggers", "0 items, at least 1"),
        (
            "[checkpoints]\ninterval_minutes = inf",
            "checkpoints.interval_minutes",
            "more than 10080",
        ),
        ('{"fallback_triggers": ["x"]}', "fallback_triggers[0]", "is not allowed, allowed: b"),
        ('{"midTask": "off", "midTask": "compact"}', "midTask", "stands there twice"),
        (
            '{"soft_warning_pct": 5, "defaults": {"soft_warning_pct": 6}}',
            "defaults.soft_warning_pct",
            "says what soft_warning_pct says, too",
        ),
        (
            '{"compaction": {"target_max": 20}, "compression_target_pct_max": 25}',
            "compression_target_pct_max",
            "says what compaction.target_max says, too",
        ),
        (
            '{"soft_warning_pct": 5, "thresholds": {}}',
            "thresholds",
            "says what soft_warning_pct says, too",
        ),
        ('{"thresholds": 3, "soft_warning_pct": 5}', "thresholds", "expected object, got integer"),
        (
            '{"contextManagement": "off", "midTask": "off"}',
            "contextManagement",
            "expected object, got string",
        ),
        ("[thresholds", "$", "is no TOML"),
        ("a = " + "[" * 9_000, "$", "is no TOML"),
        ('{"a": ', "$", "is no JSON"),
        ('{"contextManagement": 3}', "contextManagement", "expected object, got integer"),
        ('{"agents": {"x": 3}}', "agents.x", "expected object, got integer"),
        ('{"contextManagement": {"midTask": "clear"}}', "contextManagement.midTask", "allowed: c"),
        ('{"agents": {"x": {"hard_compression_pct": 90}}}', "agents.x.hard_compression_pct", "str"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(text: str, path: str, problem: str) -> None:
    found = wrong(text)
    assert problem in found[path]
