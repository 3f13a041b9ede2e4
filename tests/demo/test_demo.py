"""`batonbus demo` as a newcomer runs it, and what it leaves behind."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from batonbus.demo.show import run_demo
from batonbus_agents.example.project import SCRIPT, WORK

LIMIT = 110.0
"""Seconds that a run may take on a slow machine."""

DEMO = (sys.executable, "-P", "-m", "batonbus", "demo")
MARK = "DEMO_TEST_MARK"
"""An environment variable by which a run's processes are found."""

PROCESSES = 14
"""A server, a window manager, a receipt keeper, six agents of the lines, five of the work."""


class Ended(NamedTuple):
    """A run of the command: how many processes it had when all were ready, and has now."""

    code: int
    lines: list[str]
    report: dict[str, Any]
    processes: int
    left: list[int]
    folder: Path

    @property
    def repository(self) -> Path:
        return Path(self.report["repository"])

    def window(self, to: str, task: str | None) -> dict[str, Any]:
        """The row of the first handoff to this role in this task."""
        return next(
            row for row in self.report["window"] if row["to"] == to and row.get("task") == task
        )

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(self.repository), *arguments],
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def find_processes(mark: str) -> list[int]:
    """The processes that inherited this mark."""
    wanted = f"{MARK}={mark}".encode()
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is not ours
        if wanted in variables:
            found.append(int(folder.name))
    return found


def start_demo(*options: str, **more: str) -> "subprocess.Popen[str]":
    ours = ("BATONBUS_", "OTEL_")
    kept = {name: it for name, it in os.environ.items() if not name.startswith(ours)}
    return subprocess.Popen(
        [*DEMO, *options],
        env=kept | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder, mark = tmp_path_factory.mktemp("demo") / "kept", str(uuid4())
    process = start_demo("--json", "--keep", str(folder), **{MARK: mark})
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if "11 of 11 agents" in line:
            break
    processes = len(find_processes(mark)) - 1
    out, told = process.communicate(timeout=LIMIT)
    return Ended(
        code=process.returncode,
        lines=[*lines, *told.splitlines()],
        report=json.loads(out.splitlines()[-1]),
        processes=processes,
        left=find_processes(mark),
        folder=folder,
    )


@pytest.mark.faults
def test_every_handoff_is_settled_though_two_agents_are_killed(ended: Ended) -> None:
    report = ended.report
    assert ended.code == 0
    assert report["handoffs"] == report["settled"] == len(report["window"])
    assert report["lost"] == 0
    assert report["takeovers"] >= 2
    assert sum("kill -9" in line for line in ended.lines) == 2
    assert sum("takes over" in line for line in ended.lines) == report["takeovers"]


@pytest.mark.faults
def test_every_sender_is_answered_in_time(ended: Ended) -> None:
    receipt = ended.report["receipt_ms"]
    assert 0 < receipt["p50"] <= receipt["max"] < 30_000


@pytest.mark.faults
def test_every_process_is_stopped_in_the_end(ended: Ended) -> None:
    assert ended.processes == PROCESSES
    assert ended.left == []


@pytest.mark.faults
def test_a_line_of_five_sees_one_step_in_full_and_one_in_short(ended: Ended) -> None:
    line = ["worker-code", "reviewer", "coder", "tester", "closer"]
    rows = [row for row in ended.report["window"] if "task" not in row]
    for place, role in enumerate(line[1:], start=1):
        row = next(it for it in rows if it["to"] == role and it["full"])
        assert row["full"] == [line[place - 1]]
        assert row["summary"] == line[:place][-2:-1]
        assert sorted(row["dropped"]) == sorted(line[: max(place - 2, 0)])
        assert row["bytes_after"] <= row["bytes_before"]


@pytest.mark.faults
@pytest.mark.parametrize("task", ["TASK-01", "TASK-02", "TASK-04", "TASK-05", "TASK-06"])
def test_verifier_and_committer_see_the_stages_of_their_task(ended: Ended, task: str) -> None:
    verifier, committer = ended.window("verifier", task), ended.window("committer", task)
    assert (verifier["full"], verifier["summary"]) == (["builder"], [])
    assert (committer["full"], committer["summary"]) == (["verifier"], ["builder"])


@pytest.mark.faults
@pytest.mark.parametrize(
    ("task", "full", "summary"),
    [
        ("TASK-01", [], []),
        ("TASK-02", ["TASK-01"], []),
        ("TASK-04", ["TASK-02", "TASK-03"], ["TASK-01"]),
        ("TASK-05", ["TASK-04"], ["TASK-02", "TASK-03"]),
    ],
)
def test_a_builder_sees_the_tasks_that_its_task_needs(
    ended: Ended, task: str, full: list[str], summary: list[str]
) -> None:
    row = ended.window("builder", task)
    assert sorted(row["full"]) == [f"{it} committer" for it in full]
    assert sorted(row["summary"]) == [f"{it} committer" for it in summary]


@pytest.mark.faults
def test_a_rebuild_sees_why_it_is_one(ended: Ended) -> None:
    rows = [row for row in ended.report["window"] if row.get("task") == "TASK-03"]
    _, again = (row for row in rows if row["to"] == "builder")
    assert sorted(again["full"]) == ["TASK-01 committer", "verifier"]
    assert again["summary"] == ["builder"]
    assert ended.report["rebuilds"] == 1


@pytest.mark.faults
def test_each_task_is_one_commit_of_its_declared_files(ended: Ended) -> None:
    found = ended.git("log", "--format=%H %(trailers:key=Batonbus-Task,valueonly)", "-6")
    commits = dict(reversed(line.split()) for line in found.splitlines() if line)
    tasks = [f"TASK-{number:02}" for number in range(1, 7)]
    assert sorted(commits) == [f"WORK-01/{task}" for task in tasks]
    assert ended.report["tasks"] == ended.report["commits"] == len(tasks)
    assert ended.report["failed"] == []
    assert ended.git("rev-list", "--count", "HEAD").strip() == "7"
    for task in tasks:
        declared = (ended.repository / "works" / "WORK-01" / f"{task}.md").read_text()
        changed = ended.git("show", "--name-only", "--format=", commits[f"WORK-01/{task}"])
        assert sorted(re.findall(r"^\| `(.+?)` \|", declared, flags=re.M)) == changed.split()


@pytest.mark.faults
def test_the_tests_of_the_repository_failed_before_and_pass_now(
    ended: Ended, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    ended.git("worktree", "add", "--quiet", str(before), "HEAD~6")
    tests = (sys.executable, "-m", "unittest", "discover", "-s", "tests")
    assert subprocess.run(tests, cwd=before, capture_output=True).returncode == 1
    assert subprocess.run(tests, cwd=ended.repository, capture_output=True).returncode == 0
    assert ended.report["tests_pass"] is True


@pytest.mark.faults
def test_a_kept_folder_keeps_the_ledger(ended: Ended) -> None:
    assert ended.repository == ended.folder / "repository"
    assert any((ended.folder / ".batonbus" / "store").iterdir())


@pytest.mark.faults
@pytest.mark.anyio
async def test_a_task_whose_checks_cannot_pass_halts_the_work(tmp_path: Path) -> None:
    script = tmp_path / "script" / SCRIPT.name
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)
    shutil.copytree(SCRIPT.with_name("patches"), script.with_name("patches"))
    patch = script.with_name("patches") / "TASK-02.patch"
    patch.write_text(patch.read_text().replace("lowest=min(", "lowest=max("))
    lines: list[str] = []

    hops, report = await run_demo(tmp_path / "kept", lines.append, script=script)

    assert report.failed == ("TASK-02", "TASK-04", "TASK-05")
    assert (report.tasks, report.commits, report.lost) == (6, 3, 0)
    assert not report.good
    work = [hop for hop in hops if hop.work == WORK]
    built = [hop for hop in work if (hop.to, hop.task) == ("builder", "TASK-02")]
    assert [hop.attempt for hop in built] == [1, 2, 3]
    assert {hop.task for hop in work} == {None, "TASK-01", "TASK-02", "TASK-03", "TASK-06"}
    assert any("scheduler-1 settled: FAIL, 3 of 6 tasks" in line for line in lines)


def test_a_folder_that_has_a_repository_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    process = start_demo("--keep", str(tmp_path))
    out, told = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (1, "")
    assert told == (
        f"error: {tmp_path / 'repository'} is there already: name a new folder, "
        "or delete this one\n"
    )
    assert [it.name for it in tmp_path.iterdir()] == ["repository"]
