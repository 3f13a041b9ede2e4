"""The code in README.md is that of real files, which are typed and run."""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from batonbus import Agent, Context, TestBus
from batonbus_schemas import Dispatch, Question, TaskResult

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SNIPPETS = Path(__file__).parent / "snippets"
LANGUAGES = {".py": "python", ".sh": "sh", ".json": "json", ".toml": "toml"}
FILES = sorted(it.name for it in SNIPPETS.iterdir() if it.is_file())
TIME_LIMIT = 100


def run(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A module of this Python, to its end."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )


@pytest.mark.parametrize("name", FILES)
def test_a_snippet_stands_in_the_readme_as_it_is(name: str) -> None:
    file = SNIPPETS / name
    assert f"```{LANGUAGES[file.suffix]}\n{file.read_text()}```\n" in README


def test_the_readme_has_no_other_code() -> None:
    languages = re.findall(r"^```(\w+)$", README, flags=re.M)
    snippets = [LANGUAGES[Path(name).suffix] for name in FILES]
    assert sorted(it for it in languages if it != "console") == sorted(snippets)


def test_the_snippets_are_typed() -> None:
    modules = [name for name in FILES if name.endswith(".py")]
    cache = ROOT / ".mypy_cache" / "readme"
    options = ("--strict", "--config-file=", f"--cache-dir={cache}")
    checked = run("mypy", *options, *modules, folder=SNIPPETS)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_test_passes_as_a_reader_runs_it(tmp_path: Path) -> None:
    for name in ("my_fleet.py", "test_my_fleet.py"):
        shutil.copy(SNIPPETS / name, tmp_path)
    tested = run("pytest", "-q", folder=tmp_path)
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


def test_the_test_fails_for_another_agent(tmp_path: Path) -> None:
    shutil.copy(SNIPPETS / "test_my_fleet.py", tmp_path)
    fleet = (SNIPPETS / "my_fleet.py").read_text()
    (tmp_path / "my_fleet.py").write_text(fleet.replace("no findings", "one finding"))
    tested = run("pytest", "-q", folder=tmp_path)
    assert "1 failed" in tested.stdout, tested.stdout + tested.stderr


@pytest.mark.anyio
async def test_the_agent_that_asks_others_gets_their_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(SNIPPETS)
    newsroom: Any = import_module("newsroom")
    researcher, writer = Agent("researcher"), Agent("writer", slots=2)

    @researcher.handles
    async def research(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult.passed(what=f"{task.brief}: found.")

    @writer.handles
    async def write(task: Dispatch, ctx: Context) -> TaskResult:
        seen = " and ".join(f"{it.from_} {it.level.value}" for it in ctx.window)
        return TaskResult.passed(what=f"{task.brief}, knowing of {seen}.")

    async with TestBus(newsroom.chief, researcher, writer) as bus:
        result = await (await bus.send("chief", "the moon")).result()
    assert result.summary.splitlines() == [
        "The first half, knowing of researcher FULL.",
        "The second half, knowing of researcher FULL.",
    ]


@pytest.mark.anyio
async def test_the_agent_that_asks_a_person_goes_on_with_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(SNIPPETS)
    release: Any = import_module("release")
    lead, asked = Agent("lead"), []

    @lead.handles
    async def decide(question: Question, ctx: Context) -> TaskResult:
        asked.append(question)
        return TaskResult.passed(what="never")

    async with TestBus(release.publisher, lead) as bus:
        result = await (await bus.send("publisher", "version 2")).result()
    assert asked == [Question(text="Publish version 2?", options=("now", "never"))]
    assert result.text == "The lead says never."
