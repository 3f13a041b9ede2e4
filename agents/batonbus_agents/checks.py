"""What is checked of a task, really run: progress, build, lint, tests, its own commands, its files.

The order and the weights are seed 002's fleet's. A build that fails ends it: what would follow is
N/A, not run. A command that the project has not got is N/A. A lint that finds something is N/A with
a warning in its output, for N/A has the weight that a warning has: it fails nothing, and passes
nothing alone. A test run in which no test ran is N/A too. Everything else that does not end with
exit code 0 in time, or cannot be started, is FAIL.

A task's own commands are each block of its `## Verify`, verbatim, by `bash -euo pipefail`: without
these options a block passes by its last line alone. So a block may use no variable that is not set.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from batonbus import Ended, ProgramError, run_program
from batonbus_agents.commands import Command, find_commands
from batonbus_agents.excerpt import shortened
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.progress import Progress, gate
from batonbus_agents.workshop import Task
from batonbus_schemas import Check

OUTPUT_BUDGET = 32_768
"""Bytes of JSON that the outputs of all checks may take: half of a message. Each gets its share."""

CHECK_TIMEOUT = 600.0
"""Seconds that one command may take."""

BASH = ("bash", "-euo", "pipefail", "-c")

_CRITICAL = ("progress", "build")
_NO_TEST_RAN = re.compile(
    r"^Ran 0 tests in "
    r"|^Ran (\d+) tests? in .*\n+OK \(skipped=\1\)"
    r"|^=*\s*(?:no tests ran|\d+ (?:skipped|deselected)) in ",
    re.MULTILINE,
)
_NO_TEST_EXIT = 5
"""The exit code of pytest, and of unittest since Python 3.12, where no test ran."""

Status = Literal["PASS", "FAIL", "N/A"]


def verdict(checks: Iterable[Check]) -> Literal["PASS", "FAIL"]:
    """PASS where at least one check passed and none failed; N/A never passes alone."""
    statuses = {check.status for check in checks}
    return "PASS" if "PASS" in statuses and "FAIL" not in statuses else "FAIL"


async def run_checks(
    task: Task,
    project: Path,
    progress: Progress | None,
    *,
    time_limit: float = CHECK_TIMEOUT,
    variables: Sequence[str] = (),
) -> tuple[Check, ...]:
    """Check a task in the folder of the project as the builder left it.

    Each command gets `time_limit` seconds and a scrubbed environment, with those of our variables
    that `variables` names. Its output is recorded raw, to its share of OUTPUT_BUDGET: the beginning
    and the end, and how much was cut between them.
    """
    checks = [_check_progress(progress)]
    for name, command in _programs(task, project):
        blocker = next((it for it in checks if it.status == "FAIL" and it.name in _CRITICAL), None)
        if blocker:
            checks.append(Check(name=name, status="N/A", output=f"not run: {blocker.name} failed"))
        else:
            checks.append(await _run(name, command, project, time_limit, variables))
    checks.append(_check_files(task.files, project))
    share = OUTPUT_BUDGET // len(checks)
    return tuple(
        Check(name=it.name, status=it.status, output=shortened(it.output, share)) for it in checks
    )


def _programs(task: Task, project: Path) -> Iterator[tuple[str, Command | None]]:
    """The commands to run, in order, each under the name of its check; None where there is none."""
    found = find_commands(project)
    for name in ("build", "lint", "tests"):
        yield name, found.get(name)
    blocks = [(*BASH, block) if _is_said(block) else None for block in task.spec.verify]
    for number, command in enumerate(blocks or [None], start=1):
        yield (f"verify {number}" if len(blocks) > 1 else "verify"), command


def _is_said(block: str) -> bool:
    """Whether a block has a line that is neither blank nor a comment."""
    lines = (line.strip() for line in block.splitlines())
    return any(line and not line.startswith("#") for line in lines)


async def _run(
    name: str, command: Command | None, project: Path, time_limit: float, variables: Sequence[str]
) -> Check:
    if command is None:
        return Check(name=name, status="N/A", output=f"no command for {name}")
    try:
        ended = await run_program(
            command, cwd=project, time_limit=time_limit, variables=variables, merged=True
        )
    except ProgramError as error:
        return _judged(name, command, "FAIL", str(error), "")
    status, outcome = _outcome(name, ended)
    return _judged(name, command, status, outcome, ended.stdout)


def _outcome(name: str, ended: Ended) -> tuple[Status, str]:
    """How a command ended, and the same in words; a PASS needs none."""
    no_test = _NO_TEST_RAN.search(ended.stdout) is not None
    if ended.code == 0:
        return ("N/A", "no test ran") if no_test and name != "lint" else ("PASS", "")
    if name == "tests" and no_test and ended.code == _NO_TEST_EXIT:
        return "N/A", "no test ran"
    return "FAIL", f"exit code {ended.code}"


def _judged(name: str, command: Command, status: Status, outcome: str, output: str) -> Check:
    if name == "lint" and status == "FAIL":
        status, outcome = "N/A", f"warning: {outcome}"
    parts = (outcome, f"$ {shlex.join(command)}", output.rstrip())
    return Check(name=name, status=status, output="\n".join(part for part in parts if part))


def _check_progress(progress: Progress | None) -> Check:
    """The committer's gate, asked before anything is run (seed 000)."""
    if reason := gate(progress):
        return Check(name="progress", status="FAIL", output=reason)
    count = len(progress.files) if progress else 0
    return Check(name="progress", status="PASS", output=f"COMPLETED, files changed: {count}")


def _check_files(files: Sequence[FileEntry], project: Path) -> Check:
    """Whether the declared files are there, and the deleted ones are not."""
    if not files:
        return Check(name="files", status="N/A", output="the task declares no file")
    wrong = [problem for it in files if (problem := _file_problem(it, project / it.path))]
    return Check(
        name="files",
        status="FAIL" if wrong else "PASS",
        output="\n".join(wrong) or f"as declared: {', '.join(it.path for it in files)}",
    )


def _file_problem(file: FileEntry, path: Path) -> str:
    if file.action == "DELETE":
        there = path.exists() or path.is_symlink()
        return f"{file.path} is to be deleted, and is there" if there else ""
    return "" if path.is_file() else f"{file.path} is declared, and is no file there"
