"""`batonbus agent`: found, run, and stopped in order."""

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from batonbus.cli.agents import split_command
from batonbus.cli.lookup import AgentNotFoundError, find_agent

MODULE = """
from batonbus import Agent, Context
from batonbus_schemas import Dispatch, TaskResult

reviewer, silent, limit = Agent("reviewer"), Agent("silent"), 3

@reviewer.handles
async def review(task: Dispatch, ctx: Context) -> TaskResult:
    return TaskResult.passed(f"Read {task.brief}")
"""

STUCK = """
import anyio
from batonbus import Agent, Context
from batonbus_schemas import Dispatch, TaskResult

stuck = Agent("stuck")

@stuck.handles
async def work(task: Dispatch, ctx: Context) -> TaskResult:
    ctx.log.info("work.begun")
    await anyio.sleep_forever()
    return TaskResult.passed("never")
"""


class Between:
    """Stands between one client and a server, and can say something in the server's name."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self._client: socket.socket | None = None

    def __enter__(self) -> "Between":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        if self._client is not None:
            self._client.close()

    def say(self, words: bytes) -> None:
        assert self._client is not None
        self._client.sendall(words)

    def _serve(self) -> None:
        self._client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._port))
        threading.Thread(target=pump, args=(self._client, server), daemon=True).start()
        pump(server, self._client)


def pump(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes, until one side ends."""
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        pass
    target.close()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "fleet_of_tests", raising=False)
    (tmp_path / "fleet_of_tests.py").write_text(MODULE)
    return tmp_path


def test_an_agent_is_found_from_the_current_folder(module: Path) -> None:
    assert find_agent("fleet_of_tests:reviewer", module).card.role == "reviewer"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("fleet_of_tests:verifier", "does not exist; agents of that module: reviewer, silent"),
        ("fleet_of_tests:review", "is a function, no Agent; agents of that module: reviewer"),
        ("fleet_of_tests:limit", "is a int, no Agent"),
        ("fleet_of_tests:silent", "has no handler: decorate one with @silent.handles"),
        ("no_such_module:reviewer", "no module 'no_such_module'"),
        ("reviewer", "no agent 'reviewer' is installed"),
    ],
)
def test_what_was_found_instead_is_said(module: Path, target: str, said: str) -> None:
    with pytest.raises(AgentNotFoundError) as caught:
        find_agent(target, module)
    assert said in str(caught.value)


def test_a_module_that_lacks_what_it_imports_is_a_bug_of_its_own(module: Path) -> None:
    (module / "fleet_of_tests.py").write_text("import missing_from_here")
    with pytest.raises(ModuleNotFoundError, match="missing_from_here"):
        find_agent("fleet_of_tests:reviewer", module)


def test_a_command_is_split_as_a_shell_would_but_no_shell_runs() -> None:
    assert split_command("claude -p 'two words' $HOME") == ["claude", "-p", "two words", "$HOME"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--role", "reviewer"],
        ["--command", "cat"],
        ["fleet:reviewer", "--role", "reviewer", "--command", "cat"],
        ["fleet:reviewer", "--slots", "2"],
        ["--role", "reviewer", "--command", "cat 'open"],
        ["--role", "reviewer", "--command", " "],
        ["--runtime", "claude"],
        ["--role", "reviewer", "--runtime", "gpt"],
        ["--role", "reviewer", "--runtime", "nowhere.toml"],
        ["--role", "reviewer", "--runtime", "claude", "--command", "cat"],
        ["--role", "reviewer", "--runtime", "claude", "--slots", "2"],
        ["--role", "reviewer", "--command", "no-such-program"],
        ["fleet:reviewer", "--runtime", "claude"],
    ],
)
def test_a_wrong_call_is_a_usage_error(invoke: Callable[..., Result], arguments: list[str]) -> None:
    assert invoke("agent", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("def review(task: Dispatch, ctx: Context): ...", "review must be an `async def`"),
        ("async def review(task: str, ctx: Context): ...", "review must annotate"),
        ("async def review(task: Dispatch): ...", "review must take a body and a Context"),
        ("async def review(task: Dispatch, ctx: Context", "was never closed"),
    ],
)
def test_an_agent_that_is_written_wrongly_is_said_with_its_line(
    invoke: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    head = "from batonbus import Agent, Context\nfrom batonbus_schemas import Dispatch\n"
    name = f"wrong_{abs(hash(lines))}"
    text = f"{head}reviewer = Agent('reviewer')\n@reviewer.handles\n{lines}\n"
    (tmp_path / f"{name}.py").write_text(text)
    answer = invoke("agent", f"{name}:reviewer")
    assert answer.exit_code == 1
    assert f"{name}.py:" in answer.stderr
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("option", ["--command", "--runtime"])
def test_a_program_that_is_not_there_is_said_at_once(
    invoke: Callable[..., Result], option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    answer = invoke("agent", "--role", "builder", option, "claude --model opus")
    assert answer.exit_code == 2
    said = " ".join(answer.stderr.replace("│", " ").split())
    assert f"{option}: there is no program 'claude' on the PATH" in said


def test_a_role_that_cannot_stand_in_a_subject_is_an_error(invoke: Callable[..., Result]) -> None:
    answer = invoke("agent", "--role", "code reviewer", "--command", "cat")
    assert answer.exit_code == 1
    assert "cannot stand in a subject" in answer.stderr


def test_an_agent_works_and_is_gone_after_a_signal(shell: Any, bus_folder: Path) -> None:
    (bus_folder / "fleet_of_tests.py").write_text(MODULE)
    with shell.agent("fleet_of_tests:reviewer", "--json", folder=bus_folder) as agent:
        sent = shell.call("send", "--to", "reviewer", "this", "--wait", folder=bus_folder)
        assert (sent.returncode, sent.stdout.splitlines()[-1]) == (0, "Read this")
        assert agent.end(signal.SIGTERM) == 0
    assert "agent.stopped" in agent.err[-1]
    assert json.loads(agent.out[-1])["stopped"] is True
    assert "reviewer" not in shell.call("fleet", folder=bus_folder).stdout.splitlines()


def test_a_runtime_of_ones_own_is_a_file(shell: Any, bus_folder: Path) -> None:
    (bus_folder / "counter.toml").write_text('start = ["wc", "{options}"]')
    options = ("--role", "counter", "--runtime", "./counter.toml -l", "--json")
    with shell.agent(*options, folder=bus_folder) as agent:
        sent = shell.call("send", "--to", "counter", "x", "--wait", folder=bus_folder)
        assert sent.returncode == 0
        assert int(sent.stdout.splitlines()[-1]) > 1
        assert agent.end(signal.SIGTERM) == 0
    assert json.loads(agent.out[0])["agent"]["runtime"] == "wc"


def test_an_agent_finishes_what_it_works_on_before_it_stops(shell: Any, bus_folder: Path) -> None:
    command = "sh -c 'read line; sleep 0.5; echo done'"
    with (
        shell.agent("--role", "slow", "--command", command, folder=bus_folder) as agent,
        shell.running("send", "--to", "slow", "x", "--wait", folder=bus_folder) as sent,
    ):
        agent.hear("handoff.accepted")
        assert agent.end(signal.SIGINT) == 0
        assert sent.wait() == 0
    assert sent.out[-1] == "done"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_hands_the_work_back_at_once(
    shell: Any, bus_folder: Path, number: signal.Signals, code: int
) -> None:
    (bus_folder / "stuck_of_tests.py").write_text(STUCK)
    with (
        shell.agent("stuck_of_tests:stuck", folder=bus_folder) as agent,
        shell.running("send", "--to", "stuck", "x", "--wait", folder=bus_folder) as sent,
    ):
        agent.hear("work.begun")
        assert agent.end_at_once(number) == code
        with shell.agent("--role", "stuck", "--command", "echo taken over", folder=bus_folder):
            assert sent.wait() == 0
    assert sent.out[-1] == "taken over"
    assert not any("Traceback" in line for line in agent.err)


def test_ctrl_c_twice_leaves_nothing_of_a_program_and_what_it_started(
    shell: Any, bus_folder: Path, tmp_path: Path
) -> None:
    program, begun = tmp_path / "program", tmp_path / "begun"
    program.write_text(
        f"#!/bin/sh\nsleep 600 & echo $$ $! > {begun}.new; mv {begun}.new {begun}; wait\n"
    )
    program.chmod(0o755)
    with (
        shell.agent("--role", "stuck", "--command", str(program), folder=bus_folder) as agent,
        shell.running("send", "--to", "stuck", "x", "--wait", folder=bus_folder) as sent,
    ):
        agent.hear("handoff.accepted")
        until = time.monotonic() + 10
        while not begun.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        pids = [int(it) for it in begun.read_text().split()]
        assert agent.end_at_once(signal.SIGINT) == 130
        assert not any(shell.is_alive(pid) for pid in pids)
        with shell.agent("--role", "stuck", "--command", "echo taken over", folder=bus_folder):
            assert sent.wait() == 0


def test_an_agent_that_nats_closed_for_good_ends_with_the_reason(
    shell: Any, bus_folder: Path
) -> None:
    address = (bus_folder / ".batonbus" / "address").read_text()
    with Between(int(address.rpartition(":")[2])) as between:
        command = ("agent", "--role", "closed", "--command", "cat", "--url", between.url)
        with shell.running(*command, folder=bus_folder) as agent:
            agent.hear("agent.started")
            between.say(b"-ERR 'Maximum Payload Violation'\r\n")
            assert agent.wait() == 1
    assert "error: NATS closed the connection of closed-" in agent.err[-1]
    assert "maximum payload violation" in agent.err[-1].lower()
    assert not any("Traceback" in line for line in agent.err)
