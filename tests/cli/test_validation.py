"""`batonbus validate`: everything that is wrong with messages in files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from batonbus.cli.commands import app

GOLDEN = Path(__file__).parents[2] / "schemas" / "golden"


def validate(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, ["validate", *arguments], **options)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[object], str]:
    def to_file(message: object) -> str:
        file = tmp_path / "message.json"
        file.write_text(message if isinstance(message, str) else json.dumps(message))
        return str(file)

    return to_file


@pytest.mark.parametrize(
    "file",
    [
        *sorted(GOLDEN.glob("handoff-v1.*.json")),
        *sorted(GOLDEN.glob("envelope.*.json")),
        *sorted(GOLDEN.glob("dispatch.*.json")),
        *sorted(GOLDEN.glob("task-result.*.json")),
    ],
    ids=lambda file: file.name,
)
def test_golden_messages_are_valid(file: Path) -> None:
    answer = validate(str(file))
    assert (answer.exit_code, answer.stdout.endswith("valid\n")) == (0, True)


@pytest.mark.parametrize("command", ["validate", "send"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_secret_in_what_is_wrong_is_not_repeated(
    write: Callable[[object], str], command: str, options: tuple[str, ...]
) -> None:
    file = write({"version": "password=canary4Tr0ub", "bundle": {}})
    answer = CliRunner().invoke(app, [command, file, *options])
    assert "password=[masked: named secret]" in answer.output
    assert "canary4" not in answer.output


def test_every_violation_is_named_with_its_path(write: Callable[[object], str]) -> None:
    answer = validate(write({"handoff_id": "a1b2c3d4-...", "bundle": [], "objective": {}}))
    assert answer.exit_code == 1
    assert "contract v1, 5 violations" in answer.stdout
    for path in ("handoff_id", "bundle", "objective.goal", "from_agent", "to_agent"):
        assert f"\n  $.{path}: " in answer.stdout


@pytest.mark.parametrize(
    ("message", "kind", "path"),
    [
        ({"kind": "dispatch"}, "dispatch", "$.brief"),
        ({"kind": "task-result", "status": "MAYBE"}, "task-result", "$.status"),
        ({"kind": "question", "text": " "}, "question", "$.text"),
        ({"id": "x", "sender": "a", "to": "b", "body": {"kind": "?"}}, "envelope", "$.body.kind"),
        ([], "unreadable", "$"),
        ("{", "unreadable", "$"),
    ],
)
def test_a_message_is_checked_as_what_it_says_it_is(
    write: Callable[[object], str], message: object, kind: str, path: str
) -> None:
    answer = validate(write(message), "--json")
    assert answer.exit_code == 1
    report = json.loads(answer.stdout)
    assert report["valid"] is False
    (file,) = report["files"]
    assert file["kind"] == kind
    assert path in [violation["path"] for violation in file["violations"]]


def test_one_invalid_file_among_valid_ones_is_an_error(write: Callable[[object], str]) -> None:
    good, bad = str(GOLDEN / "handoff-v1.minimal.json"), write({"kind": "dispatch"})
    answer = validate(good, bad, "--json")
    assert answer.exit_code == 1
    assert [bool(it["violations"]) for it in json.loads(answer.stdout)["files"]] == [False, True]


def test_stdin_is_read_for_a_dash() -> None:
    assert validate("-", input='{"kind": "dispatch", "brief": "Do it."}').exit_code == 0


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    answer = validate(str(tmp_path / "missing.json"))
    assert answer.exit_code == 2
    assert "cannot be read" in answer.stderr


def test_the_xml_of_an_agent_is_read_and_what_was_mended_is_told(
    write: Callable[[object], str],
) -> None:
    text = (
        "Here you are:\n<task-result work='WORK-07' task='TASK-02' agent='builder' status='PASS'>"
        "<summary>lint && tests</summary></task-result>"
    )
    answer = validate(write(text))
    assert answer.exit_code == 0
    assert "XML task-result, valid" in answer.stdout
    assert answer.stdout.count("mended:") == 2


def test_a_task_with_the_works_prefix_is_refused_by_name(write: Callable[[object], str]) -> None:
    text = '<dispatch to="builder" work="WORK-01" task="WORK-01-TASK-03"/>'
    answer = validate(write(text))
    assert answer.exit_code == 1
    assert 'write work="WORK-01" task="TASK-03"' in answer.stdout
