"""The recorded project is what it says: each task's checks fail without its patch, and pass with it
and its dependencies'. Plain git and the runtime alone; no bus."""

import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from batonbus_agents.checks import BASH, run_checks, verdict
from batonbus_agents.example.project import SCRIPT, WORK, make_project
from batonbus_agents.runtimes import Assignment, ScriptRuntime, read_script
from batonbus_agents.works.dag import dag_problems
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.folder import WorkFolder
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.progress import Progress
from batonbus_agents.works.validation import validate_folder
from batonbus_agents.works.work import Work
from batonbus_agents.workshop import Task
from batonbus_schemas import Check

TASKS = ["TASK-01", "TASK-02", "TASK-03", "TASK-04", "TASK-05", "TASK-06"]
WRONG_AT_FIRST = "TASK-03"
SUITE = ("python3", "-m", "unittest", "discover", "-s", "tests")


@pytest.fixture(scope="module")
def runtime() -> ScriptRuntime:
    return read_script(SCRIPT)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


@pytest.fixture
def work(project: Path) -> Work:
    return WorkFolder(project / "works" / WORK).read().whole()


def plan_of(work: Work) -> Plan:
    assert work.plan is not None
    return work.plan


def needs(work: Work, task: str) -> Iterator[str]:
    """All that a task needs, directly or not, and each before who needs it."""
    direct = next(it.depends_on for it in plan_of(work).tasks if it.id == task)
    for need in direct:
        yield from needs(work, need)
        yield need


def patches_of(runtime: ScriptRuntime, task: str) -> list[str]:
    return [step.patch for step in runtime.steps if step.task == task]


def apply(project: Path, patch: str) -> None:
    subprocess.run(["git", "apply", "--index"], cwd=project, input=patch, text=True, check=True)


def passes(project: Path, *command: str) -> bool:
    return subprocess.run(command, cwd=project, capture_output=True).returncode == 0


def failing_blocks(project: Path, work: Work, task: str) -> list[int]:
    spec = work.task(task).spec
    assert spec is not None
    assert len(spec.verify) == 2
    return [n for n, it in enumerate(spec.verify, start=1) if not passes(project, *BASH, it)]


def test_it_is_made_the_same_to_the_bit_each_time(tmp_path: Path, project: Path) -> None:
    other = make_project(tmp_path / "other")

    commits = [
        subprocess.run(
            ["git", "log", "--format=%H %an", "main"], cwd=it, capture_output=True, text=True
        ).stdout
        for it in (project, other)
    ]

    assert commits[0] == commits[1]
    assert re.fullmatch(r"[0-9a-f]{40} batonbus\n", commits[0])


def test_it_is_made_whatever_the_users_git_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[commit]\n\tgpgsign = true\n[core]\n\tautocrlf = true\n\thooksPath = /\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(project / ".git"))

    other = make_project(tmp_path / "other")

    assert (other / ".git" / "refs" / "heads" / "main").read_text() == (
        project / ".git" / "refs" / "heads" / "main"
    ).read_text()


def test_a_folder_with_something_in_it_is_left_alone(project: Path) -> None:
    with pytest.raises(FileExistsError, match="is not empty: name a new folder"):
        make_project(project)


def test_nothing_is_wrong_with_its_works_folder(project: Path) -> None:
    report = validate_folder(project / "works")

    assert report.problems == ()
    assert [it.id for it in report.works] == [WORK]


def test_its_plan_is_a_chain_of_four_with_a_diamond(work: Work) -> None:
    plan = plan_of(work)

    assert plan.mode == "full"
    assert dag_problems([(it.id, it.depends_on) for it in plan.tasks]) == []
    assert {it.id: it.depends_on for it in plan.tasks} == {
        "TASK-01": (),
        "TASK-02": ("TASK-01",),
        "TASK-03": ("TASK-01",),
        "TASK-04": ("TASK-02", "TASK-03"),
        "TASK-05": ("TASK-04",),
        "TASK-06": ("TASK-01",),
    }


def test_plan_and_task_files_declare_the_same_files(work: Work) -> None:
    for planned in plan_of(work).tasks:
        spec = work.task(planned.id).spec
        assert spec is not None
        assert [(it.path, it.action) for it in spec.files] == [
            (it.path, it.action) for it in planned.files
        ]


def test_tasks_share_no_declared_file_so_any_may_run_beside_any(work: Work) -> None:
    for one, other in combinations(plan_of(work).tasks, 2):
        assert not {it.path for it in one.files} & {it.path for it in other.files}


def test_a_patch_touches_the_declared_files_of_its_task_alone(
    work: Work, runtime: ScriptRuntime
) -> None:
    for task in plan_of(work).tasks:
        patches = patches_of(runtime, task.id)
        touched = {path for it in patches for path in re.findall(r"(?m)^\+\+\+ b/(.+)$", it)}
        assert touched == {it.path for it in task.files}


def test_the_suite_fails_before_the_work_and_passes_from_its_first_task_on(
    project: Path, runtime: ScriptRuntime
) -> None:
    assert not passes(project, *SUITE)

    for task in TASKS:
        for patch in patches_of(runtime, task):
            apply(project, patch)
        assert passes(project, *SUITE), task


@pytest.mark.parametrize("task", TASKS)
def test_a_tasks_own_checks_fail_without_its_patch_and_pass_with_it(
    project: Path, work: Work, runtime: ScriptRuntime, task: str
) -> None:
    for need in dict.fromkeys(needs(work, task)):
        for patch in patches_of(runtime, need):
            apply(project, patch)
    assert failing_blocks(project, work, task) == [1, 2]

    *first, last = patches_of(runtime, task)
    for patch in first:
        apply(project, patch)
        assert failing_blocks(project, work, task) == [2]
    apply(project, last)

    assert failing_blocks(project, work, task) == []
    assert bool(first) == (task == WRONG_AT_FIRST)


async def attempt(
    runtime: ScriptRuntime, work: Work, project: Path, task: str, number: int
) -> tuple[Check, ...]:
    """One attempt of the builder, and what is checked of it."""
    assignment = Assignment(
        role="builder", work=WORK, task=task, attempt=number, text="", cwd=project
    )
    result = await runtime(assignment)
    assert result.status == "PASS"
    plan, spec = plan_of(work), work.task(task).spec
    assert spec is not None
    planned = next(it for it in plan.tasks if it.id == task)
    files = tuple(FileEntry(it.path) for it in result.files_changed)
    progress = Progress(task=task, status="COMPLETED", files=files)
    return await run_checks(Task(plan=plan, planned=planned, spec=spec), project, progress)


@pytest.mark.anyio
async def test_the_verifiers_checks_find_what_the_first_attempt_left_out(
    project: Path, work: Work, runtime: ScriptRuntime
) -> None:
    before = await attempt(runtime, work, project, "TASK-01", 1)
    first = await attempt(runtime, work, project, WRONG_AT_FIRST, 1)
    second = await attempt(runtime, work, project, WRONG_AT_FIRST, 2)

    assert [verdict(it) for it in (before, first, second)] == ["PASS", "FAIL", "PASS"]
    wrong = [it for it in first if it.status == "FAIL"]
    assert [it.name for it in wrong] == ["verify 2"]
    assert wrong[0].output.endswith("AssertionError: days 2 to 4, both included, gave [2, 3]")
    assert {it.name for it in second if it.status == "N/A"} == {"build", "lint"}


def test_only_the_last_task_is_slow_enough_to_be_killed(runtime: ScriptRuntime) -> None:
    assert {it.task: it.delay for it in runtime.steps if it.delay} == {"TASK-06": 1.5}
