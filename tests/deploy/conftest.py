"""The server of `deploy/nats-server.conf`, run for real on ports and a store of its own."""

import json
import os
import re
import shutil
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
START_TIMEOUT = 15.0


@dataclass(frozen=True)
class Server:
    """Where a running server listens, and the folder of its configuration and log. Everybody's
    password is `<name>-password`."""

    address: str
    monitoring: str
    folder: Path
    pid: int

    def url(self, user: str) -> str:
        return f"nats://{user}:{user}-password@{self.address}"

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def refusals(self) -> list[str]:
        """What the server's log says about users who tried what they may not."""
        return [line for line in self.log().splitlines() if "Violation" in line]

    def look(self, page: str) -> Any:
        with urllib.request.urlopen(f"{self.monitoring}/{page}", timeout=5) as answer:
            return json.load(answer)


class Configuration:
    """The deployed configuration in a folder of its own, with a filled-in `.env`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "nats-server.conf"
        shutil.copy(DEPLOY / self.file.name, self.file)
        example = (DEPLOY / ".env.example").read_text()
        for name in re.findall(r"^NATS_(\w+)_PASSWORD=$", example, re.M):
            self.add_password(name.lower().replace("_", "-"))

    def add_password(self, user: str) -> None:
        name = f"NATS_{user.upper().replace('-', '_')}_PASSWORD"
        with (self.folder / ".env").open("a") as secrets:
            secrets.write(f"{name}={user}-password\n")

    def add_user(self, block: str) -> None:
        """Among those of the agents."""
        before, users, after = self.file.read_text().partition("    users: [\n")
        assert users
        self.file.write_text(f"{before}{users}{block}{after}")


@contextmanager
def run_server(configuration: Configuration) -> Iterator[Server]:
    folder = configuration.folder
    command = [
        find_server(),
        "-c",
        str(configuration.file),
        "-a",
        "127.0.0.1",
        "-p",
        "-1",
        "-m",
        "-1",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--ports_file_dir", str(folder)],
            env={**os.environ, "NATS_STORE_DIR": str(folder / "store")},
            stderr=log,
        )
    try:
        ports = _wait_for_ports(folder / f"nats-server_{process.pid}.ports", process)
        address = ports["nats"][0].removeprefix("nats://")
        yield Server(address, ports["monitoring"][0], folder, process.pid)
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
    with run_server(Configuration(tmp_path_factory.mktemp("nats"))) as running:
        yield running


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """The deployed configuration, to be changed."""
    return Configuration(tmp_path)


@pytest.fixture
def start_server() -> Callable[[Configuration], Any]:
    """Runs a server with another configuration."""
    return run_server
