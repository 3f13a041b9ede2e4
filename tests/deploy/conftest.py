"""The server of `deploy/nats-server.conf`, run for real on ports and a store of its own."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from batonbus.wire.server import find_server

DEPLOY = Path(__file__).parents[2] / "deploy"
AGENTS = ("researcher", "worker-code", "reviewer", "tester", "closer")
START_TIMEOUT = 15.0


@dataclass(frozen=True)
class Server:
    """Where a running server listens. Everybody's password is `<name>-password`."""

    address: str
    monitoring: str
    log: Path

    def url(self, user: str) -> str:
        return f"nats://{user}:{user}-password@{self.address}"

    def refusals(self) -> list[str]:
        """What the server's log says about users who tried what they may not."""
        return [line for line in self.log.read_text().splitlines() if "Violation" in line]

    def look(self, page: str) -> Any:
        with urllib.request.urlopen(f"{self.monitoring}/{page}", timeout=5) as answer:
            return json.load(answer)


def variable(user: str) -> str:
    """The name of the environment variable that holds a user's password."""
    return f"NATS_{user.upper().replace('-', '_')}_PASSWORD"


@contextmanager
def run_server(configuration: Path, folder: Path) -> Iterator[Server]:
    names = ("operator", "sender", *AGENTS)
    passwords = {variable(name): f"{name}-password" for name in names}
    command = [find_server(), "-c", str(configuration), "-a", "127.0.0.1", "-p", "-1", "-m", "-1"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--ports_file_dir", str(folder)],
            env={**os.environ, **passwords, "NATS_STORE_DIR": str(folder / "store")},
            stderr=log,
        )
    try:
        ports = _wait_for_ports(folder / f"nats-server_{process.pid}.ports", process)
        address = ports["nats"][0].removeprefix("nats://")
        yield Server(address, ports["monitoring"][0], folder / "log")
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for_ports(file: Path, process: "subprocess.Popen[bytes]") -> dict[str, list[str]]:
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end and process.poll() is None:
        try:
            return json.loads(file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.01)
    raise AssertionError(f"the server does not listen: {(file.parent / 'log').read_text()}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(DEPLOY / "nats-server.conf", tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def start_server(tmp_path: Path) -> Callable[[Path], Any]:
    """Runs a server with another configuration."""
    return lambda configuration: run_server(configuration, tmp_path)
