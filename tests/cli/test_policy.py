"""`batonbus policy`: show the defaults, check a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from batonbus.cli.commands import app


@pytest.fixture
def policy() -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(app, ["policy", *map(str, arguments)])


def test_what_is_shown_is_a_valid_policy_file(
    policy: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(policy("show").stdout)
    assert policy("check", file).exit_code == 0


@pytest.mark.parametrize(
    "fixed",
    [
        "the work one step back in full, of that two steps",
        "back 3 lines, nothing older",
        "65,536 bytes",
        "3 attempts",
        "objective.goal: 500 characters",
        "bundle.memory[].summary: 300 characters",
        "bundle.decisions: 15 entries",
        "receipt_timeout = 30",
        "hop_limit = 32",
    ],
)
def test_the_numbers_that_no_policy_changes_are_shown_for_reading(
    policy: Callable[..., Result], fixed: str
) -> None:
    comments = [line for line in policy("show").stdout.splitlines() if line.startswith("#")]
    assert fixed in "\n".join(comments)


def test_the_json_has_every_row(policy: Callable[..., Result], last_json: Any) -> None:
    shown = last_json(policy("show", "--json").stdout)
    assert shown["thresholds"]["implementer"] == {"soft": 55, "hard": 65, "emergency": 80}
    assert shown["budgets"]["coordinator"] == {"characters": 3000, "tokens": 750}


def test_a_wrong_key_is_named_and_is_exit_code_1(
    policy: Callable[..., Result], last_json: Any, tmp_path: Path
) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"soft_warning_pct": 66}')
    answer = policy("check", file)
    assert (answer.exit_code, "soft_warning_pct" in answer.stdout) == (1, True)
    said = last_json(policy("check", file, "--json").stdout)
    assert said["violations"][0]["path"] == "soft_warning_pct"
    assert said["valid"] is False


def test_a_stored_policy_is_what_agents_are_told(
    invoke: Callable[..., Result], last_json: Any, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[roles.builder]\nhard = 61")
    before = last_json(invoke("policy", "get", "--json").stdout)
    assert before["roles"] == {}
    try:
        answer = invoke("policy", "set", str(file), "--json")
        assert answer.exit_code == 0
        within = last_json(answer.stdout)["in_force_within_s"]
        assert f"in force within {within:g} s in all that runs" in answer.stderr
        stored = last_json(invoke("policy", "get", "--json").stdout)
        assert stored["roles"]["builder"]["hard"] == 61
        assert invoke("doctor").exit_code == 0
    finally:
        file.write_text("")
        invoke("policy", "set", str(file))
    assert last_json(invoke("policy", "get", "--json").stdout) == before


def test_what_is_no_text_is_said(
    policy: Callable[..., Result], last_json: Any, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_bytes(b"\xff\xfe")
    assert "is no text in UTF-8" in policy("show", file).stdout
    assert last_json(policy("check", file, "--json").stdout)["violations"][0]["path"] == "$"
