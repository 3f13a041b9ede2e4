"""`batonbus run`: one process of the bus, as a container runs it."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from batonbus.wire.server import find_server, free_port


@pytest.mark.parametrize(
    ("part", "started"),
    [
        ("window-manager", "window_manager.started"),
        ("receipt-keeper", "receipt_keeper.started"),
    ],
)
def test_a_second_one_works_beside_the_first_and_ends_with_sigterm(
    shell: Any, bus_folder: Path, part: str, started: str
) -> None:
    with shell.running("run", part, "--json", folder=bus_folder) as second:
        second.hear(started)
        assert second.end(signal.SIGTERM) == 0
    assert json.loads(second.out[-1]) == {"part": part, "stopped": True}
    assert not any("Traceback" in line for line in second.err)


def test_those_that_start_before_their_server_wait_for_it(shell: Any, tmp_path: Path) -> None:
    """As containers do after their host began again. No word of the password in the address."""
    port = free_port()
    where = {"folder": tmp_path, "BATONBUS_URL": f"nats://operator:secret@127.0.0.1:{port}"}
    agent = ("agent", "--role", "tester", "--command", "cat")
    server = [find_server(), "-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p", str(port)]
    with (
        shell.running("run", "receipt-keeper", **where) as keeper,
        shell.running(*agent, **where) as early,
        shell.running("run", "window-manager", **where) as stopped,
    ):
        for it in (keeper, early, stopped):
            assert f"127.0.0.1:{port}" in it.hear("server.awaited")
        assert stopped.end(signal.SIGTERM) == 0
        with subprocess.Popen(server, stderr=subprocess.DEVNULL) as running:
            try:
                keeper.hear("receipt_keeper.started")
                early.hear("agent.started")
                assert (early.end(), keeper.end()) == (0, 0)
            finally:
                running.terminate()
        said = [*keeper.err, *early.err, *stopped.err]
    assert not any("secret" in line or "Traceback" in line for line in said)


def test_a_server_that_cannot_carry_every_handoff_is_refused_with_its_numbers(
    shell: Any, server_with: Any, tmp_path: Path
) -> None:
    with server_with('max_payload: 65536, jetstream { store_dir: "STORE" }') as address:
        for part in ("window-manager", "receipt-keeper"):
            answer = shell.call("run", part, "--url", f"nats://{address}", folder=tmp_path)
            assert answer.returncode == 1
            assert "max_payload is 65,536 bytes" in answer.stderr
        doctor = shell.call("doctor", "--json", "--url", f"nats://{address}", folder=tmp_path)
    assert doctor.returncode == 1
    checks = {it["name"]: it["status"] for it in json.loads(doctor.stdout)["checks"]}
    assert checks["max_payload"] == "fail"


def test_a_start_warns_of_a_lazy_disk(shell: Any, server_with: Any, tmp_path: Path) -> None:
    port = free_port()
    lazy = f'http: "127.0.0.1:{port}", jetstream {{ store_dir: "STORE" }}'
    always = lazy.replace("store_dir", "sync_interval: always, store_dir")
    monitoring = {"BATONBUS_MONITORING_URL": f"http://127.0.0.1:{port}"}
    for configuration, warned in ((lazy, True), (always, False)):
        with server_with(configuration) as address:
            call = ("run", "window-manager", "--url", f"nats://{address}")
            with shell.running(*call, folder=tmp_path, **monitoring) as part:
                part.hear("window_manager.started")
        unsafe = [line for line in part.err if "disk.unsafe" in line]
        assert bool(unsafe) is warned
        assert all("written every 120 s" in line for line in unsafe)


def test_a_part_that_is_told_twice_ends_at_once_and_says_by_what(
    shell: Any, bus_folder: Path
) -> None:
    with shell.running("run", "receipt-keeper", folder=bus_folder) as part:
        part.hear("receipt_keeper.started")
        part.process.send_signal(signal.SIGINT)
        assert part.end(signal.SIGINT) in {0, 130}  # it has nothing to finish
    assert not any("Traceback" in line for line in part.err)
