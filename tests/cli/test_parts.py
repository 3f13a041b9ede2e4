"""`batonbus run`: one process of the bus, as a container runs it."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from batonbus.wire.server import free_port


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


def test_without_a_server_it_ends_with_an_error(shell: Any, tmp_path: Path) -> None:
    answer = shell.call("run", "window-manager", "--url", "nats://127.0.0.1:9", folder=tmp_path)
    assert answer.returncode == 1
    assert "error: " in answer.stderr
    assert "nats://127.0.0.1:9" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_credentials_in_the_address_are_not_shown(shell: Any, tmp_path: Path) -> None:
    url = "nats://operator:secret@127.0.0.1:9"
    answer = shell.call("run", "receipt-keeper", folder=tmp_path, BATONBUS_URL=url)
    assert answer.returncode == 1
    assert "secret" not in answer.stderr


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
