"""`batonbus work`: from a title or a plan to commits, as a person calls it."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from batonbus.cli.commands import app
from batonbus_agents.works.folder import WorkFolder
from batonbus_agents.works.validation import validate_folder

PLAN = """\
# WORK-01: Two greetings

> Execution-Mode: full

## Goal

Greet.

## Tasks

### TASK-01: English
- **Depends on**: (none)
- **Files**:
  - `hello.txt` — CREATE

### TASK-02: German
- **Depends on**: TASK-01
- **Files**:
  - `hallo.txt` — CREATE
"""
STEP = """
[[step]]
role = "builder"
task = "{task}"
what = "Wrote {file}."
patch = \"\"\"
diff --git a/{file} b/{file}
new file mode 100644
--- /dev/null
+++ b/{file}
@@ -0,0 +1 @@
+{text}
\"\"\"
"""
ENGLISH = STEP.format(task="TASK-01", file="hello.txt", text="hello")
GERMAN = STEP.format(task="TASK-02", file="hallo.txt", text="hallo")


@pytest.fixture
def repository(quick_folder: Path) -> Path:
    """A repository with one commit; a bus that starts in it has shortened settings."""
    git(quick_folder, "init", "-q", "-b", "main")
    git(quick_folder, "config", "user.name", "A User")
    git(quick_folder, "config", "user.email", "user@example.org")
    (quick_folder / "a.txt").write_text("a\n")
    git(quick_folder, "add", "a.txt")
    git(quick_folder, "commit", "-q", "-m", "first")
    return quick_folder


@pytest.fixture
def call(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command line inside of this process, in the repository."""
    monkeypatch.chdir(repository)
    for name in [it for it in os.environ if it.startswith("BATONBUS_") or it == "COLUMNS"]:
        monkeypatch.delenv(name)
    return lambda *arguments: CliRunner().invoke(app, ["work", *arguments])


def git(folder: Path, *arguments: str) -> str:
    ended = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=30
    )
    return ended.stdout.strip()


def commits(folder: Path) -> list[str]:
    return git(folder, "log", "--reverse", "--format=%s").splitlines()


def write_plan(repository: Path, plan: str = PLAN) -> Path:
    folder = repository / "works" / "WORK-01"
    folder.mkdir(parents=True)
    (folder / "PLAN.md").write_text(plan)
    return folder


def script(repository: Path, *steps: str) -> str:
    (repository / ".batonbus" / "steps.toml").write_text("".join(steps))
    return "builder=script:.batonbus/steps.toml"


@pytest.mark.parametrize(
    ("language", "heading"), [("en", "## Scope"), ("ko", "## 범위"), ("ja", "## 範囲")]
)
def test_a_new_work_is_valid_as_it_is_in_each_language(
    call: Callable[..., Result], repository: Path, language: str, heading: str
) -> None:
    answer = call(
        "new", "한글 | 言語", "--file", "a.txt", "--verify", "true", "--language", language
    )
    assert answer.exit_code == 0, answer.output
    assert "batonbus work run works/WORK-01" in answer.stdout
    folder = repository / "works" / "WORK-01"
    assert heading in (folder / "TASK-01.md").read_text()
    report = validate_folder(repository / "works")
    assert report.problems == ()
    work = WorkFolder(folder).read().whole()
    assert work.plan is not None
    assert (work.plan.mode, work.plan.language, work.plan.title) == (
        "direct",
        language,
        "한글 | 言語",
    )
    assert [it.path for it in work.plan.tasks[0].files] == ["a.txt"]
    spec = work.tasks[0].spec
    assert spec is not None
    assert spec.verify == ("true",)
    assert "| WORK-01 |" in (repository / "works" / "WORK-LIST.md").read_text()


def test_each_new_work_gets_the_next_id(call: Callable[..., Result], repository: Path) -> None:
    assert call("new", "One").exit_code == 0
    (repository / "works" / "WORK-07").mkdir()
    answer = call("new", "Two", "--json")
    assert json.loads(answer.stdout.splitlines()[-1]) == {
        "work": "WORK-08",
        "path": "works/WORK-08",
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([" \n"], "the title is blank"),
        (["x", "--file", "/etc/passwd"], "is absolute"),
        (["x", "--file", "../b.txt"], "leaves the project"),
        (["x", "--file", "lib/"], "is a folder"),
        (["x", "--file", "*.py"], "is a pattern"),
    ],
)
def test_what_cannot_be_a_work_is_said_and_nothing_is_written(
    call: Callable[..., Result], repository: Path, arguments: list[str], problem: str
) -> None:
    answer = call("new", *arguments)
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert problem in answer.stderr
    assert not (repository / "works").exists()


def test_a_bug_in_what_is_called_keeps_its_traceback(
    call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("batonbus.cli.work.survey", broken)
    answer = call("status")
    assert isinstance(answer.exception, ValueError)
    assert "a bug" not in answer.stderr


def test_a_list_of_works_that_cannot_be_read_is_told_in_a_line(
    shell: Any, repository: Path
) -> None:
    (repository / "works").mkdir()
    (repository / "works" / "WORK-LIST.md").write_bytes(b"\xff\xfe")
    answer = shell.call("work", "request", "Anything.", folder=repository)
    assert answer.returncode == 1
    assert answer.stderr.strip() == "error: WORK-LIST.md:1: is not UTF-8 at byte 0"


def test_outside_of_a_repository_nothing_can_be_made(
    call: Callable[..., Result], tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    answer = call("new", "x", "--repo", str(elsewhere))
    assert answer.exit_code == 1
    assert "in no git work tree" in answer.stderr


def test_status_works_on_files_alone_from_any_folder(
    call: Callable[..., Result], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plan(repository)
    (repository / "works" / "WORK-01" / "TASK-01_progress.md").write_text("- Status: STARTED\n")
    monkeypatch.chdir(repository / "works")
    answer = call("status")
    assert answer.exit_code == 0
    rows = {line.split()[0]: line.split() for line in answer.stdout.splitlines() if line}
    assert rows["TASK-01"][1:] == ["STARTED", "English"]
    assert rows["TASK-02"][1:] == ["PENDING", "German"]
    assert "No bus was asked" in answer.stdout
    assert "`batonbus up`" in answer.stdout
    answer = call("status", "WORK-01", "--json")
    told = json.loads(answer.stdout.splitlines()[-1])
    assert told["ledger_read"] is False
    (work,) = told["works"]
    assert work["work"] == "WORK-01"
    assert [it["status"] for it in work["tasks"]] == ["STARTED", "PENDING"]


def test_status_says_what_cannot_be_read(call: Callable[..., Result], repository: Path) -> None:
    write_plan(repository, PLAN.replace("TASK-01\n- **Files**", "TASK-09\n- **Files**"))
    answer = call("status")
    assert answer.exit_code == 1
    assert "TASK-02 needs TASK-09, which is no task here" in answer.stdout
    assert call("status", "nowhere").exit_code == 1


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (PLAN.replace("(none)", "TASK-02"), "a cycle: TASK-01 needs TASK-02 needs TASK-01"),
        (PLAN.replace("full", "direct"), "execution mode direct runs one task"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_before_anything_starts(
    call: Callable[..., Result], repository: Path, plan: str, problem: str
) -> None:
    write_plan(repository, plan)
    answer = call("run", "works/WORK-01", "--json")
    assert answer.exit_code == 1
    assert problem in json.loads(answer.stdout)["error"]
    assert not (repository / ".batonbus" / "address").exists()


@pytest.mark.parametrize("path", ["works/WORK-02", "works", "a.txt"])
def test_what_is_no_work_cannot_run(
    call: Callable[..., Result], repository: Path, path: str
) -> None:
    write_plan(repository)
    assert call("run", path).exit_code == 1
    assert call("cancel", path).exit_code == 1


def test_a_work_runs_to_its_commits_and_run_again_it_is_done(
    shell: Any, repository: Path, last_json: Callable[[str], Any]
) -> None:
    folder = write_plan(repository)
    builder = script(repository, ENGLISH, GERMAN)
    answer = shell.call(
        *("work", "run", "works/WORK-01", "--runtime", builder, "--on-done", "tee -a told"),
        folder=repository,
    )
    assert answer.returncode == 0, answer.stderr
    assert "WORK-01: run 1 begins" in answer.stdout
    assert "2 of 2 tasks of WORK-01 committed." in answer.stdout
    assert commits(repository) == ["first", "TASK-01: English", "TASK-02: German"]
    assert (repository / "hallo.txt").read_text() == "hallo\n"
    told = (repository / "told").read_text().replace("}{", "}\n{").splitlines()
    assert [json.loads(it)["taskId"] for it in told] == ["TASK-01", "TASK-02"]
    assert {it.name for it in folder.iterdir()} >= {"TASK-01_result.md", "TASK-02_result.md"}
    again = shell.call("work", "run", "works/WORK-01", "--json", folder=repository)
    assert again.returncode == 0, again.stderr
    assert last_json(again.stdout)["status"] == "PASS"
    assert len(commits(repository)) == 3


@pytest.mark.faults
def test_a_failed_work_halts_with_7_says_why_and_a_new_run_does_the_rest(
    shell: Any, repository: Path
) -> None:
    write_plan(repository)
    wrong = GERMAN.replace("hallo.txt", "wrong.txt")
    run = ("work", "run", "works/WORK-01", "--runtime", script(repository, ENGLISH, wrong))
    answer = shell.call(*run, folder=repository)
    assert answer.returncode == 7, answer.stderr
    assert "TASK-02 does not declare: wrong.txt" in answer.stdout
    assert commits(repository) == ["first", "TASK-01: English"]
    script(repository, GERMAN)
    answer = shell.call(*run, folder=repository)
    assert answer.returncode == 0, answer.stderr
    assert "WORK-01: run 2 begins" in answer.stdout
    assert commits(repository) == ["first", "TASK-01: English", "TASK-02: German"]


@pytest.mark.faults
def test_a_work_whose_first_handoff_is_refused_ends_with_6(
    shell: Any, repository: Path, last_json: Callable[[str], Any]
) -> None:
    write_plan(repository, PLAN[: PLAN.index("### TASK-02")].replace("full", "direct"))
    answer = shell.call("work", "run", "works/WORK-01", "--json", folder=repository)
    assert answer.returncode == 6, answer.stderr
    assert "the builder has no runtime" in last_json(answer.stdout)["error"]


@pytest.mark.faults
def test_a_run_that_is_cancelled_ends_with_6_and_one_that_is_stopped_ends_in_order(
    shell: Any, repository: Path
) -> None:
    write_plan(repository)
    run = ("work", "run", "works/WORK-01", "--runtime", "builder=command:sleep 60")
    with shell.running(*run, folder=repository) as running:
        running.hear("accepts")
        running.hear("accepts")  # the scheduler, then the builder
        second = shell.call(*run, folder=repository)
        assert second.returncode == 1
        assert "a work runs in" in second.stderr
        status = shell.call("work", "status", folder=repository)
        assert "IN_PROGRESS  builder accepted" in status.stdout
        cancelled = shell.call("work", "cancel", "works/WORK-01", folder=repository)
        assert "WORK-01: 2 open handoffs cancelled" in cancelled.stdout
        assert running.wait() == 6
    with shell.running(*run, folder=repository) as running:
        running.hear("run 2 begins")
        running.hear("accepts")
        running.hear("accepts")
        started = shell.descendants(running.process.pid)
        assert len(started) > len(("server", "window manager", "keeper", "an agent"))
        assert running.end(signal.SIGTERM) == 130
    assert not any(map(shell.is_alive, started))
    half_written = re.compile(r"\.new$|\.[0-9a-f]{32}$")
    assert not [it for it in repository.rglob("*") if half_written.search(it.name)]
    assert not (repository / ".batonbus" / "address").exists()
    assert commits(repository) == ["first"]


@pytest.mark.faults
def test_a_request_becomes_commits(shell: Any, repository: Path) -> None:
    (repository / ".batonbus" / "thinking.py").write_text(THINKING)
    answer = shell.call(
        *("work", "request", "Greet the world.\nPlease.", "--json"),
        *("--runtime", "specifier=function:thinking:specify"),
        *("--runtime", "builder=function:thinking:build"),
        folder=repository,
        PYTHONPATH=str(repository / ".batonbus"),
    )
    assert answer.returncode == 0, answer.stderr
    assert commits(repository) == ["first", "TASK-01: Greet"]
    assert (
        "| WORK-01 | Greet the world. | DONE |" in (repository / "works/WORK-LIST.md").read_text()
    )


@pytest.mark.faults
def test_a_run_that_is_killed_is_gone_on_with_where_it_was(shell: Any, repository: Path) -> None:
    write_plan(repository)
    slow = GERMAN.replace("what =", "delay = 1.5\nwhat =")
    run = ("work", "run", "works/WORK-01", "--runtime", script(repository, ENGLISH, slow))
    with shell.running(*run, folder=repository) as running:
        running.hear("TASK-01  committer-1 settled")
        running.hear("accepts")  # TASK-02's builder
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
    assert commits(repository) == ["first", "TASK-01: English"]
    assert (repository / ".batonbus" / "address").exists()
    answer = shell.call(*run, folder=repository)
    assert answer.returncode == 0, answer.stderr
    assert "WORK-01: run 1 goes on" in answer.stdout
    assert "TASK-01  builder" not in answer.stdout
    assert commits(repository) == ["first", "TASK-01: English", "TASK-02: German"]
    assert git(repository, "status", "--porcelain") == "?? works/"


@pytest.mark.faults
def test_a_request_that_is_killed_is_gone_on_with_by_a_run(shell: Any, repository: Path) -> None:
    (repository / ".batonbus" / "thinking.py").write_text(THINKING)
    thinks = (
        *("--runtime", "specifier=function:thinking:specify"),
        *("--runtime", "builder=function:thinking:build"),
    )
    path = str(repository / ".batonbus")
    request = ("work", "request", "Greet the world.", *thinks)
    with shell.running(*request, folder=repository, PYTHONPATH=path, THINK="2") as running:
        running.hear("specifier-1 accepts")
        running.end(signal.SIGKILL)
    assert list((repository / "works" / "WORK-01").iterdir()) == []
    answer = shell.call("work", "run", "works/WORK-01", *thinks, folder=repository, PYTHONPATH=path)
    assert answer.returncode == 0, answer.stderr
    assert "WORK-01: run 1 goes on" in answer.stdout
    assert commits(repository) == ["first", "TASK-01: Greet"]


THINKING = '''
import os

import anyio

from batonbus_schemas import TaskResult

REQUIREMENT = """# Requirement — WORK-01

## Original Request

> Greet the world.

## Functional Requirements

- FR-01: greet
"""
PLAN = """# WORK-01: Greet

> Execution-Mode: direct

## Tasks

### TASK-01: Greet
- **Files**:
  - `hello.txt` — CREATE
"""

async def specify(assignment):
    await anyio.sleep(float(os.environ.get("THINK", "0")))
    (assignment.cwd / "Requirement.md").write_text(REQUIREMENT)
    (assignment.cwd / "PLAN.md").write_text(PLAN)
    (assignment.cwd / "TASK-01.md").write_text("# TASK-01: Greet\\n")
    return TaskResult.passed("Wrote the documents.")

async def build(assignment):
    (assignment.cwd / "hello.txt").write_text("hello\\n")
    return TaskResult.passed("Wrote hello.txt.")
'''
