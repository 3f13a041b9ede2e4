"""A running bus in a folder, and the command line as a person or a script would call it."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import anyio
import pytest
from typer.testing import CliRunner, Result

from batonbus.cli.commands import app
from batonbus.rules.chain import OPERATOR
from batonbus.run.core import open_core
from batonbus.testing import FAST
from batonbus.wire.server import embedded_server

BATONBUS = (sys.executable, "-P", "-m", "batonbus")
LIMIT = 60.0
"""Seconds after which something that should have been said, or ended, is missing."""

OURS = ("BATONBUS_", "OTEL_")


def environment() -> dict[str, str]:
    """Ours, without what would change how the command line behaves."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    return {key: value for key, value in kept.items() if key not in {"COLUMNS", "FORCE_COLOR"}}


class Running:
    """A command that runs beside the test. What it says is read as it comes."""

    def __init__(self, arguments: Sequence[str], folder: Path, **more: str) -> None:
        self.process = subprocess.Popen(
            [*BATONBUS, *arguments],
            cwd=folder,
            env=environment() | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._heard: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.out)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.err)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str] | None, lines: list[str]) -> None:
        assert stream is not None
        for line in stream:
            lines.append(line.rstrip("\n"))
            self._heard.put(lines[-1])
        self._heard.put(None)

    def hear(self, text: str) -> str:
        """The next line, of stdout or stderr, that holds this text."""
        ended = 0
        while ended < 2:
            line = self._heard.get(timeout=LIMIT)
            if line is None:
                ended += 1
            elif text in line:
                return line
        raise AssertionError(f"it ended without a word of {text!r}: {self.out} {self.err}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and give the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def end_at_once(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal twice, and give the exit code."""
        self.process.send_signal(number)
        self.hear("stop.requested")
        return self.end(number)

    def wait(self) -> int:
        """The exit code; all of its output has been read then."""
        code = self.process.wait(timeout=LIMIT)
        for reader in self._readers:
            reader.join(timeout=LIMIT)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code


class Shell:
    """Calls `batonbus` as a process of its own."""

    @contextmanager
    def running(self, *arguments: str, folder: Path, **more: str) -> Iterator[Running]:
        """A command that has ended when the block has."""
        command = Running(arguments, folder, **more)
        try:
            yield command
        finally:
            command.end()

    @contextmanager
    def agent(self, *arguments: str, folder: Path, **more: str) -> Iterator[Running]:
        """An agent that takes work in the block."""
        with self.running("agent", *arguments, folder=folder, **more) as agent:
            agent.hear("agent.started")
            yield agent

    def call(self, *arguments: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return subprocess.run(
            [*BATONBUS, *arguments],
            cwd=folder,
            env=environment() | more,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )

    def is_alive(self, pid: int) -> bool:
        """Whether a process runs; one that nobody has waited for yet does not."""
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        return state != "Z"

    def descendants(self, pid: int) -> list[int]:
        """The processes that this one started, and those that they did."""
        lists = [it.read_text().split() for it in Path(f"/proc/{pid}/task").glob("*/children")]
        children = [int(it) for some in lists for it in some]
        return [one for it in children for one in (it, *self.descendants(it))]

    def pipe(
        self, arguments: str, reader: str, *, folder: Path
    ) -> subprocess.CompletedProcess[str]:
        """A command whose stdout goes to another program; the exit code is ours."""
        line = f"set -o pipefail; {' '.join(BATONBUS)} {arguments} | {reader}"
        return subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )


@pytest.fixture(scope="session")
def shell() -> Shell:
    return Shell()


@pytest.fixture(scope="session")
def last_json() -> Callable[[str], Any]:
    """Reads the JSON object that stands in the last line of stdout."""
    return lambda text: json.loads(text.splitlines()[-1])


@pytest.fixture
def quick_folder(tmp_path: Path) -> Path:
    """An empty folder but for a ledger with shortened settings."""
    prepare_store(tmp_path)
    return tmp_path


def prepare_store(folder: Path) -> None:
    """A ledger with shortened settings, for the `batonbus up` that comes here next."""

    async def make() -> None:
        async with (
            embedded_server(folder / ".batonbus" / "store") as server,
            open_core(server.url, OPERATOR, fleet="default", settings=FAST),
        ):
            pass

    anyio.run(make)


@pytest.fixture(scope="session")
def bus_folder(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which `batonbus up` runs, with its window manager and its keeper at work."""
    folder = tmp_path_factory.mktemp("bus")
    prepare_store(folder)
    with shell.running("up", folder=folder) as up:
        up.hear("nats://")
        up.hear("receipt_keeper.started")
        yield folder


@pytest.fixture
def invoke(bus_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command line inside of this process, in the folder of the bus: fast."""
    monkeypatch.chdir(bus_folder)
    for name in [it for it in os.environ if it.startswith(OURS) or it == "COLUMNS"]:
        monkeypatch.delenv(name)
    return lambda *arguments, **options: CliRunner().invoke(app, list(arguments), **options)
