"""The checks are run for real, on small projects made for each test."""

from pathlib import Path

import msgspec
import pytest

from batonbus_agents.checks import OUTPUT_BUDGET, run_checks, verdict
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.progress import Progress
from batonbus_agents.works.task import TaskSpec
from batonbus_agents.workshop import Task
from batonbus_schemas import Check

pytestmark = pytest.mark.anyio

DONE = Progress(task="TASK-01", status="COMPLETED", files=(FileEntry("a.py", "CREATE"),))
PASSING_TEST = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n"
SKIPPED_TEST = PASSING_TEST.replace("    def", "    @unittest.skip('later')\n    def")


def make_task(*verify: str, files: tuple[FileEntry, ...] = ()) -> Task:
    spec = TaskSpec(id="TASK-01", verify=verify, files=files)
    return Task(plan=Plan(work="WORK-01"), planned=PlanTask(id="TASK-01"), spec=spec)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def check(
    folder: Path, *verify: str, files: tuple[FileEntry, ...] = (), time_limit: float = 20
) -> dict[str, Check]:
    """The checks of a task by their names, in their order."""
    task = make_task(*verify, files=files)
    return {it.name: it for it in await run_checks(task, folder, DONE, time_limit=time_limit)}


async def test_they_are_run_in_the_fleets_order(tmp_path: Path) -> None:
    write(tmp_path, {"Makefile": "build lint test:\n\t@echo made $@\n", "a.py": ""})

    found = await check(tmp_path, "echo one", "echo two", files=(FileEntry("a.py", "CREATE"),))

    names = ["progress", "build", "lint", "tests", "verify 1", "verify 2", "files"]
    assert list(found) == names
    assert {it.status for it in found.values()} == {"PASS"}
    assert found["tests"].output == "$ make test\nmade test"


async def test_a_project_without_any_command_has_nothing_but_na(tmp_path: Path) -> None:
    found = await check(tmp_path)

    assert [it.status for it in found.values()] == ["PASS", *["N/A"] * 5]
    assert found["lint"].output == "no command for lint"


@pytest.mark.parametrize(
    ("progress", "reason"),
    [
        (None, "progress.md not found"),
        (Progress(task="TASK-01", status="STARTED"), "Status is not COMPLETED"),
        (Progress(task="TASK-01", status="COMPLETED"), "no files changed"),
    ],
)
async def test_a_task_that_is_not_ready_is_not_run_at_all(
    tmp_path: Path, progress: Progress | None, reason: str
) -> None:
    checks = await run_checks(make_task("touch ran"), tmp_path, progress)

    assert (checks[0].status, checks[0].output) == ("FAIL", reason)
    assert checks[-2].output == "not run: progress failed"
    assert not (tmp_path / "ran").exists()
    assert verdict(checks) == "FAIL"


async def test_after_a_failed_build_nothing_else_is_run(tmp_path: Path) -> None:
    write(tmp_path, {"Makefile": "build:\n\t@echo broken; exit 3\ntest:\n\ttouch ran\n"})

    found = await check(tmp_path, "touch ran")

    assert found["build"].status == "FAIL"
    assert "broken" in found["build"].output
    assert [found[it].output for it in ("tests", "verify")] == ["not run: build failed"] * 2
    assert not (tmp_path / "ran").exists()


async def test_a_lint_that_finds_something_warns_and_fails_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"Makefile": "lint:\n\t@echo a.py:1 unused import; exit 1\n"})

    found = await check(tmp_path, "true")

    assert found["lint"].status == "N/A"
    assert found["lint"].output.startswith("warning: exit code 2\n$ make lint\na.py:1 unused")
    assert verdict(found.values()) == "PASS"


async def test_failing_tests_fail_and_their_raw_output_is_recorded(tmp_path: Path) -> None:
    test = PASSING_TEST.replace("pass", "self.assertEqual(1, 2)")
    write(tmp_path, {"tests/test_a.py": test})

    found = await check(tmp_path)

    assert found["tests"].status == "FAIL"
    assert found["tests"].output.startswith("exit code 1\n$ python3 -m unittest")
    assert "AssertionError: 1 != 2" in found["tests"].output
    assert found["tests"].output.endswith("FAILED (failures=1)")


@pytest.mark.parametrize("test", ["", SKIPPED_TEST])
async def test_a_run_in_which_no_test_ran_does_not_pass(tmp_path: Path, test: str) -> None:
    write(tmp_path, {"tests/test_a.py": test})

    found = await check(tmp_path, "python3 -m unittest discover -s tests || test $? = 5")

    assert (found["tests"].status, found["verify"].status) == ("N/A", "N/A")
    assert found["tests"].output.startswith("no test ran\n")


async def test_one_test_that_runs_beside_a_skipped_one_passes(tmp_path: Path) -> None:
    write(tmp_path, {"tests/test_a.py": PASSING_TEST, "tests/test_b.py": SKIPPED_TEST})

    assert (await check(tmp_path))["tests"].status == "PASS"


@pytest.mark.parametrize(
    "block",
    [
        "false\ntrue",
        "false | true",
        'echo "$not_set_anywhere"',
        "no-such-program-anywhere",
    ],
)
async def test_a_block_does_not_pass_by_its_last_line_alone(tmp_path: Path, block: str) -> None:
    assert (await check(tmp_path, block))["verify"].status == "FAIL"


async def test_a_block_runs_verbatim_in_the_folder(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "here"})

    found = await check(tmp_path, 'cat <<"EOF"\n$HOME `and` "more"\nEOF\ncat a.txt')

    assert found["verify"].output.endswith('\n$HOME `and` "more"\nhere')


@pytest.mark.parametrize("block", ["", "  \n", "# look at the page\n\n# by hand"])
async def test_a_block_without_a_command_passes_nothing(tmp_path: Path, block: str) -> None:
    assert (await check(tmp_path, block))["verify"].status == "N/A"


async def test_a_command_that_cannot_be_started_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"Makefile": "test:\n\ttrue\n"})
    monkeypatch.setenv("PATH", str(tmp_path))

    found = await check(tmp_path)

    assert found["tests"].status == "FAIL"
    assert "make cannot be started" in found["tests"].output


async def test_a_command_that_takes_too_long_fails(tmp_path: Path) -> None:
    found = await check(tmp_path, "sleep 60", time_limit=0.2)

    assert found["verify"].status == "FAIL"
    assert "did not end within 0.2 s" in found["verify"].output


async def test_a_command_sees_no_variable_that_was_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "c4n4ry")
    task = make_task("env")

    hidden = await run_checks(task, tmp_path, DONE)
    shown = await run_checks(task, tmp_path, DONE, variables=("CANARY_TOKEN",))

    assert "c4n4ry" not in hidden[-2].output
    assert "CANARY_TOKEN=c4n4ry" in shown[-2].output


async def test_declared_files_must_be_there_and_deleted_ones_must_not(tmp_path: Path) -> None:
    write(tmp_path, {"kept.py": "", "old.py": "", "folder/in.py": ""})
    (tmp_path / "dangling.py").symlink_to("nowhere")
    files = (
        FileEntry("kept.py", "MODIFY"),
        FileEntry("new.py", "CREATE"),
        FileEntry("folder"),
        FileEntry("old.py", "DELETE"),
        FileEntry("gone.py", "DELETE"),
        FileEntry("dangling.py", "DELETE"),
    )

    found = await check(tmp_path, files=files)

    assert found["files"].status == "FAIL"
    assert found["files"].output.splitlines() == [
        "new.py is declared, and is no file there",
        "folder is declared, and is no file there",
        "old.py is to be deleted, and is there",
        "dangling.py is to be deleted, and is there",
    ]


async def test_where_the_task_file_declares_nothing_the_plan_does(tmp_path: Path) -> None:
    planned = PlanTask(id="TASK-01", files=(FileEntry("a.py", "CREATE"),))
    task = Task(plan=Plan(work="WORK-01"), planned=planned, spec=TaskSpec(id="TASK-01"))

    checks = await run_checks(task, tmp_path, DONE)

    assert checks[-1].output == "a.py is declared, and is no file there"


async def test_the_outputs_of_all_checks_fit_in_half_a_message(tmp_path: Path) -> None:
    noise = 'python3 -c \'print("begun"); print("\\x1b\\n" * 40_000); print("ended")\''

    found = await check(tmp_path, *[noise] * 4)

    sizes = [len(msgspec.json.encode(it.output)) for it in found.values()]
    assert sum(sizes) <= OUTPUT_BUDGET
    assert "\nbegun\n" in found["verify 1"].output
    assert found["verify 1"].output.endswith("\nended")


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], "FAIL"),
        (["N/A"], "FAIL"),
        (["N/A", "N/A"], "FAIL"),
        (["PASS"], "PASS"),
        (["N/A", "PASS"], "PASS"),
        (["PASS", "FAIL", "PASS"], "FAIL"),
        (["FAIL"], "FAIL"),
    ],
)
async def test_na_fails_nothing_and_passes_nothing_alone(
    statuses: list[str], expected: str
) -> None:
    checks = msgspec.convert([{"name": "a", "status": it} for it in statuses], list[Check])

    assert verdict(checks) == expected
