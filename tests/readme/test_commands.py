"""The commands in README.md are run as a reader types them, and say what it shows."""

import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from msgspec import to_builtins

from batonbus import Settings
from batonbus.cli.outcome import EXIT_CODES
from batonbus.cli.work_options import runtime_specs
from batonbus.rules.chain import KINDS
from batonbus.rules.command_lines import COMMAND_LINES, parse_command_line
from batonbus.rules.transcripts import read_transcript, usage_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SNIPPETS = Path(__file__).parent / "snippets"
MINE = (SNIPPETS / "mine.toml").read_text()
"""A runtime of one's own."""

PROGRAMS = Path(__file__).parent / "programs"
"""Stand-ins for programs that are not installed here."""

LIMIT = 60.0
"""Seconds after which a command that should have ended, or said something, has failed."""

READER = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "A Reader",
    "GIT_AUTHOR_EMAIL": "reader@example.org",
    "GIT_COMMITTER_NAME": "A Reader",
    "GIT_COMMITTER_EMAIL": "reader@example.org",
    "ANTHROPIC_API_KEY": "the reader's own",
}
"""What a reader's environment has."""

MADE = {"make demo": "batonbus demo"}
"""What a target of the Makefile runs, once everything is installed."""

ID = re.compile(r"\b[0-9a-f]{8}(?:(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?\b")
VARYING = re.compile(
    r"\d+\.\d+|[\d,]+(?= ms)|\b[0-9a-f]{10}\b|(?<=tester)-relief\b|(?<=builder-)\d"
    r"|^\d+(?= +(?:sent|held) )"
)
"""Differs from run to run, beside ids: durations, commits, which tester or builder it was, places
in the ledger."""


class Step(NamedTuple):
    """A command of a console block, and the lines that follow it there."""

    command: str
    output: list[str]


def read_sections() -> dict[str, list[Step]]:
    """The commands under each heading. What looks like a heading inside of a block is none."""
    sections: dict[str, list[Step]] = {}
    steps = sections.setdefault("Batonbus", [])
    parts = re.finditer(r"^## ([^\n]+)$|^```console\n(.*?)^```$", README, flags=re.M | re.S)
    for title, block in (it.groups() for it in parts):
        if title:
            steps = sections.setdefault(title, [])
            continue
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line.removeprefix("$ "), []))
            else:
                steps[-1].output.append(line)
    return {title: steps for title, steps in sections.items() if steps}


SECTIONS = read_sections()
SLOW = {"make demo", "batonbus send --to nobody 'Is anybody there?'"}


def plain(line: str) -> str:
    """A line without what differs from run to run."""
    # Which of the demo's two testers is asked first, and so killed, is theirs to run for.
    line = line.replace("tester-relief", "tester")
    return " ".join(VARYING.sub("", ID.sub("<id>", line)).split())


def is_shown(expected: list[str], said: list[str]) -> bool:
    """Whether the lines are the expected ones; `…` is any lines, also none."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else re.escape(f"{plain(line)}\n") for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{plain(line)}\n" for line in said)) is not None


class Terminals:
    """A folder in which commands are run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._code = 0
        self._ids: dict[str, str] = {}
        ours = ("BATONBUS_", "OTEL_")
        kept = {name: it for name, it in os.environ.items() if not name.startswith(ours)}
        path = os.pathsep.join((str(PROGRAMS), str(Path(sys.executable).parent), kept["PATH"]))
        self._environment = kept | READER | {"PATH": path, "COLUMNS": "120"}

    def play(self, step: Step) -> None:
        """Run a command to its end. It must say what the README shows."""
        command = MADE.get(step.command, step.command)
        command = ID.sub(lambda it: self._ids.get(it[0], it[0]), command)
        ended = subprocess.run(
            ["bash", "-c", f"(exit {self._code}); {command}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        self._code = ended.returncode
        said = ended.stdout.rstrip().splitlines()
        assert is_shown(step.output, said), f"$ {command}\n{ended.stdout}"
        self._learn(step.output, said)

    def _learn(self, expected: list[str], said: list[str]) -> None:
        """Which id here is which one in the README, by the lines that are alike."""
        for line in expected:
            alike = next((it for it in said if plain(it) == plain(line)), "")
            for shown, real in zip(ID.findall(line), ID.findall(alike), strict=False):
                self._ids |= {shown: real, shown[:8]: real[:8]}

    @contextmanager
    def running(self, command: str, *signs: str) -> Iterator[None]:
        """A command that is at work in the block, once its log shows these signs."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=pass_on, args=(process.stderr, lines))
        reader.start()
        try:
            missing = set(signs)
            while missing:
                line = lines.get(timeout=LIMIT)
                missing = {it for it in missing if it not in line}
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=LIMIT)
            reader.join(timeout=LIMIT)
        assert code == 0


def pass_on(stream: IO[str], lines: "queue.Queue[str]") -> None:
    with stream:
        for line in stream:
            lines.put(line)


@pytest.fixture(scope="module")
def terminals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminals]:
    """A repository with the README's files, in which its bus runs."""
    folder = tmp_path_factory.mktemp("readme") / "fleet"
    shutil.copytree(SNIPPETS, folder)
    made = Terminals(folder)
    made.play(Step("git init --quiet && git add . && git commit --quiet --message 'A fleet'", []))
    with made.running("batonbus up", "receipt_keeper.started", "window_manager.started"):
        yield made


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            steps,
            id=title,
            marks=[pytest.mark.faults] if SLOW & {it.command for it in steps} else [],
        )
        for title, steps in SECTIONS.items()
    ],
)
def test_the_commands_of_a_section_say_what_it_shows(
    terminals: Terminals, steps: list[Step]
) -> None:
    with ExitStack() as stack:
        for step in steps:
            if step.command.startswith("batonbus agent "):
                stack.enter_context(terminals.running(step.command, "agent.started"))
            elif step.command not in {"batonbus up", "make test"}:
                terminals.play(step)


def test_what_takes_long_is_in_the_readme() -> None:
    assert {it.command for steps in SECTIONS.values() for it in steps} >= SLOW


@pytest.mark.parametrize(("target", "runs"), [("demo", "batonbus demo"), ("test", "pytest")])
def test_make_runs_what_the_readme_says(target: str, runs: str) -> None:
    said = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT
    )
    assert runs in said.stdout


@pytest.mark.parametrize("text", re.findall(r"^\| `(builder=.+?)` \|", README, flags=re.M))
def test_a_runtime_is_written_as_the_fleet_reads_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_module.py").write_text("async def build(assignment): ...\n")
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "patches.toml").write_text('[[step]]\nrole = "builder"\nwhat = "Nothing."\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    words = shlex.split(text)
    assert list(runtime_specs(words)) == ["builder"]
    assert len(words) == 1


def read_rows(heading: str) -> dict[str, str]:
    """The first two columns of the table under this heading."""
    _, _, rest = README.partition(f"| {heading} |")
    rows = [line.split("|") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    return {row[1].strip(" `"): row[2].strip() for row in rows}


def test_the_table_of_runtimes_says_what_each_one_can() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (yes|no) \| (yes|no) \| (\w+)", README, flags=re.M)
    assert [name for name, *_ in rows] == list(COMMAND_LINES)
    for name, resumes, compacts, usage in rows:
        line = COMMAND_LINES[name]
        assert (bool(line.resume), bool(line.compact)) == (resumes == "yes", compacts == "yes")
        assert bool(line.tokens) == (usage == "by")


def test_a_runtime_of_ones_own_is_read_as_the_readme_writes_it() -> None:
    output = (
        '{"type": "step"}\n{"type": "result", "text": "Done.", "session_id": "s-1", '
        '"model": "my-model", "usage": {"input": 30000, "output": 20000}}'
    )
    reading = read_transcript(parse_command_line(MINE), output)
    assert (reading.answer, reading.session) == ("Done.", "s-1")
    assert usage_of(reading.tokens, reading.window).percent == 25.0


def test_the_exit_codes_are_those_of_the_program() -> None:
    codes = read_rows("exit code")
    assert list(codes) == [str(it) for it in range(8)]
    assert [state for state, code in EXIT_CODES.items() if state not in codes[str(code)]] == []


def test_every_event_that_deserves_an_alarm_is_logged_somewhere() -> None:
    """By its name, or as what becomes of a handoff."""
    files = (ROOT / "bus/batonbus").rglob("*.py")
    logged = set(re.findall(r'log\.\w+\(\s*"([a-z_.]+)"', "".join(it.read_text() for it in files)))
    logged |= {f"handoff.{kind}" for kind in KINDS}
    named = list(read_rows("event"))
    assert len(named) > 5
    assert [it for it in named if it not in logged] == []


def test_the_settings_are_those_of_a_new_fleet() -> None:
    stored = {name: float(it) for name, it in read_rows("setting").items()}
    assert stored == to_builtins(Settings())
