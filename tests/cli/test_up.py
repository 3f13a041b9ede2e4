"""`batonbus up`: a bus in a folder that starts, heals and ends in order."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from batonbus.run.supervisor import restart_delay

LIMIT = 10.0


def address_of(folder: Path) -> str:
    return (folder / ".batonbus" / "address").read_text()


def server_of(folder: Path) -> int:
    return int((folder / ".batonbus" / "store" / "server.pid").read_text())


def wait_gone(shell: Any, *pids: int) -> bool:
    """Whether all of them are gone in time; the kernel needs a moment to end orphans."""
    until = time.monotonic() + LIMIT
    while any(map(shell.is_alive, pids)):
        if time.monotonic() > until:
            return False
        os.sched_yield()
    return True


def started(up: Any, part: str) -> int:
    """The process id of a part that has just been started."""
    line = json.loads(up.hear(f'"name":"{part}"'))
    assert line["message"] == "process.started"
    return int(line["pid"])


def test_the_first_line_is_the_address(shell: Any, bus_folder: Path) -> None:
    assert address_of(bus_folder).startswith("nats://127.0.0.1:")


def test_on_a_terminal_a_person_is_told_how_to_go_on(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "batonbus", "up"]
    up = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = ""
    try:
        until = time.monotonic() + LIMIT
        while "Ctrl-C ends it." not in said:
            assert time.monotonic() < until, said
            if select.select([ours], [], [], 1)[0]:
                said += os.read(ours, 4096).decode()
        up.send_signal(signal.SIGINT)
        assert up.wait(LIMIT) == 0
    finally:
        up.kill()
        up.wait()
        os.close(ours)
    assert "batonbus agent MODULE:AGENT" in said
    assert "server.started" not in said  # what happens is for a log
    assert max(map(len, said.partition("nats://")[2].splitlines())) <= 80


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_and_leaves_no_process(
    shell: Any, tmp_path: Path, number: signal.Signals
) -> None:
    with shell.running("up", folder=tmp_path) as up:
        parts = [started(up, "window-manager"), started(up, "receipt-keeper")]
        url, server = address_of(tmp_path), server_of(tmp_path)
        up.hear("window_manager.started")
        assert up.end(number) == 0
    assert up.out == [url]
    assert any("disk.unsafe" in line and "every 2m" in line for line in up.err)
    assert not any(shell.is_alive(pid) for pid in (server, *parts))
    assert not (tmp_path / ".batonbus" / "address").exists()
    assert not list((tmp_path / ".batonbus").glob("*.new"))


def test_a_bus_comes_back_on_its_port(shell: Any, tmp_path: Path) -> None:
    addresses: list[str] = []
    for _ in range(2):
        with shell.running("up", "--json", folder=tmp_path) as up:
            addresses.append(json.loads(up.hear('"state"'))["url"])
            assert up.end(signal.SIGINT) == 0
        assert json.loads(up.out[-1]) == {"url": addresses[-1], "stopped": True}
    assert addresses[0] == addresses[1]


def test_a_bus_that_is_stopped_while_it_starts_ends_at_once(shell: Any, tmp_path: Path) -> None:
    """Its server may read a large store for minutes."""
    with shell.running("up", "--json", folder=tmp_path) as up:
        up.hear("server.started")
        assert up.end(signal.SIGTERM) == 0
    assert json.loads(up.out[-1])["stopped"]
    assert not (tmp_path / ".batonbus" / "address").exists()


def test_a_second_bus_in_the_same_folder_names_the_first(
    shell: Any, bus_folder: Path, last_json: Any
) -> None:
    second = shell.call("up", "--json", folder=bus_folder)
    assert second.returncode == 1
    assert address_of(bus_folder) in second.stderr
    assert "a bus runs in this folder already" in last_json(second.stdout)["error"]
    assert shell.call("doctor", folder=bus_folder).returncode == 0


def test_a_port_that_is_in_use_is_refused(shell: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = shell.call("up", "--port", str(port), folder=tmp_path)
    assert answer.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in answer.stderr
    assert answer.stdout == ""


def test_a_part_that_is_killed_is_started_again(shell: Any, tmp_path: Path) -> None:
    with shell.running("up", folder=tmp_path) as up:
        killed = started(up, "receipt-keeper")
        up.hear("receipt_keeper.started")
        os.kill(killed, signal.SIGKILL)
        up.hear("process.died")
        assert started(up, "receipt-keeper") != killed
        up.hear("receipt_keeper.started")


def test_a_bus_that_is_killed_leaves_no_process_and_can_start_again(
    shell: Any, tmp_path: Path
) -> None:
    with shell.running("up", folder=tmp_path) as up:
        parts = [started(up, "window-manager"), started(up, "receipt-keeper")]
        server = server_of(tmp_path)
        up.end(signal.SIGKILL)
    assert wait_gone(shell, server, *parts)
    with shell.running("up", folder=tmp_path) as up:
        up.hear("window_manager.started")


def test_what_it_keeps_is_ignored_by_git(bus_folder: Path) -> None:
    assert (bus_folder / ".batonbus" / ".gitignore").read_text() == "*\n"


def test_a_process_that_keeps_dying_is_started_less_and_less_often() -> None:
    delays = [restart_delay(deaths) for deaths in range(1, 9)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.1, 5.0)


def test_a_folder_that_cannot_be_written_is_said_in_a_line(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".batonbus").write_text("a file")
    answer = invoke("up")
    assert answer.exit_code == 1
    assert "cannot keep its store in" in answer.stderr
    assert "Traceback" not in answer.stderr
