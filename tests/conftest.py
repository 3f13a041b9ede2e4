"""What every test shares."""

import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from batonbus.wire.server import find_server

START_TIMEOUT = 15.0


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """A command that runs inside of the test process configures logging for all tests after it."""
    root, ours = logging.getLogger(), logging.getLogger("batonbus")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)


ServerWith = Callable[[str], AbstractContextManager[str]]


@pytest.fixture
def server_with(tmp_path: Path) -> ServerWith:
    """Runs a server with a configuration of the test's own, `STORE` in it being a folder for its
    store; gives its address. What it logs is in `server.log` of the test's folder."""

    @contextmanager
    def running(configuration: str) -> Iterator[str]:
        file = tmp_path / "server.conf"
        file.write_text(configuration.replace("STORE", str(tmp_path / "server-store")))
        command = [find_server(), "-c", str(file), "-a", "127.0.0.1", "-p", "-1"]
        with (tmp_path / "server.log").open("w") as log:
            process = subprocess.Popen(
                [*command, "--ports_file_dir", str(tmp_path)], stderr=log, stdout=log
            )
        ports = tmp_path / f"nats-server_{process.pid}.ports"
        end = time.monotonic() + START_TIMEOUT
        try:
            while not (ports.exists() and '"nats"' in (text := ports.read_text())):
                alive = process.poll() is None and time.monotonic() < end
                assert alive, (tmp_path / "server.log").read_text()
                time.sleep(0.01)
            yield text.partition("nats://")[2].partition('"')[0]
        finally:
            process.terminate()
            process.wait(timeout=START_TIMEOUT)

    return running
