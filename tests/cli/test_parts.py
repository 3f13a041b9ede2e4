"""`batonbus run`: one process of the bus, as a container runs it."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest


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
