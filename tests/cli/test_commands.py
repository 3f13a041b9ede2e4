"""The command line as a whole: help, version, and what an error looks like."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from batonbus.cli.commands import COMMANDS, app
from batonbus.cli.output import clean, one_line
from batonbus.cli.running import known_errors
from batonbus.rules.errors import NoAnswerError

BATONBUS = (sys.executable, "-P", "-m", "batonbus")
SCRIPT = (str(Path(sys.executable).with_name("batonbus")),)
"""The program as `pip` installs it."""


def test_the_overview_names_every_command() -> None:
    answer = CliRunner().invoke(app, ["--help"])
    assert answer.exit_code == 0
    for name, entry in COMMANDS.items():
        assert name in answer.stdout
        assert entry.summary in answer.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    answer = CliRunner().invoke(app, [name, "--help"])
    assert answer.exit_code == 0
    assert f"batonbus {name} " in answer.stdout or f"batonbus {name}\n" in answer.stdout
    assert "Example" in answer.stdout


def test_the_version_is_that_of_the_package() -> None:
    answer = CliRunner().invoke(app, ["--version"])
    assert answer.stdout == f"batonbus {version('batonbus')}\n"


@pytest.mark.parametrize("arguments", [["sned"], ["send"], ["up", "--port", "0"], ["show"]])
def test_a_wrong_call_is_exit_code_2_and_says_so_on_stderr(arguments: list[str]) -> None:
    answer = CliRunner().invoke(app, arguments)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_call_that_asked_for_json_gets_one_object(name: str, last_json: Any) -> None:
    answer = CliRunner().invoke(app, [name, "--json", "--no-such-option"])
    assert (answer.exit_code, len(answer.stdout.splitlines())) == (2, 1)
    assert last_json(answer.stdout) == {"error": "No such option: --no-such-option"} or (
        # Groups, and commands that run for ever, have no --json.
        last_json(answer.stdout) == {"error": "No such option: --json"}
    )
    assert answer.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sned", "--json"], "No such command 'sned'"),
        (["--nope", "send", "--json"], "No such option: --nope"),
        (["send", "--json"], "Missing argument 'FILE|TEXT'"),
        (["send", "--json", "--wait", "--timeout", "0", "x"], "Invalid value for '--timeout'"),
        (["show", "--json", "zzzz"], "'zzzz' is no id of a handoff"),
        (["dead", "purge", "--json"], "name dead letters, or say --all"),
        (["dead", "list", "--json", "--log-level", "loud"], "'loud' is not one of"),
    ],
)
def test_the_object_says_what_is_wrong_with_the_call(
    arguments: list[str], said: str, last_json: Any
) -> None:
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 2
    assert said in last_json(answer.stdout)["error"]
    assert answer.stderr


def test_a_text_is_no_wish_for_json() -> None:
    answer = CliRunner().invoke(app, ["send", "--to", "x", "--timeout", "3", "--", "--json"])
    assert (answer.exit_code, answer.stdout) == (2, "")


def test_a_command_imports_no_other_command() -> None:
    code = "import sys, batonbus.cli.agents; print(*(it for it in sys.modules if '.cli.' in it))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    imported = set(answer.stdout.split())
    assert not imported & {entry.module for entry in COMMANDS.values()} - {"batonbus.cli.agents"}


def test_the_command_line_imports_no_bus_before_it_is_needed() -> None:
    code = "import sys, batonbus.cli; print('nats' in sys.modules, 'batonbus.run' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout == "False False\n"


@pytest.mark.parametrize("program", [BATONBUS, SCRIPT])
@pytest.mark.parametrize("imported", ["typer", "structlog"])
def test_ctrl_c_during_the_imports_ends_without_a_word(
    program: tuple[str, ...], imported: str, tmp_path: Path
) -> None:
    code = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(20)"
    (tmp_path / f"{imported}.py").write_text(code)
    answer = subprocess.run(
        [*program, "doctor"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "")


def test_tracing_costs_nothing_where_nobody_asked_for_it() -> None:
    code = (
        "import sys; from batonbus.cli.tracing import configure_tracing; "
        "configure_tracing('x'); print('opentelemetry.sdk' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PATH": ""}
    )
    assert answer.stdout == "False\n"


def test_errors_out_of_task_groups_are_said_once() -> None:
    async def fail() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(raise_it)
            tasks.start_soon(raise_it)

    async def raise_it() -> None:
        raise NoAnswerError("no answer")

    with pytest.raises(ExceptionGroup) as caught:
        anyio.run(fail)
    assert known_errors(caught.value) == ["no answer"]


def test_a_bug_among_the_errors_is_no_known_error() -> None:
    group: Any = ExceptionGroup("two", [NoAnswerError("no answer"), KeyError("a bug")])
    assert known_errors(group) == []


def test_text_of_others_cannot_drive_the_terminal() -> None:
    assert clean("a\x1b[2J\x07\rb\tc\n\x9bd") == "a\ufffd[2J\ufffd\ufffdb\tc\n\ufffdd"


def test_a_line_is_one_line_of_a_bounded_length() -> None:
    assert one_line("a\n  b\x1bc") == "a b\ufffdc"
    assert one_line("x" * 300, 10) == "xxxxxxxxx…"
