"""The status files as a projection of results: whoever deletes one gets the same one back."""

from datetime import datetime

import msgspec

from batonbus_agents.works.files import FileEntry, path_problem
from batonbus_agents.works.handoff import StageContext
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.progress import Progress
from batonbus_agents.works.result import Result
from batonbus_schemas import FileChange, TaskResult

_ATTEMPTS = "builder_attempts"

ACTIONS = {"created": "CREATE", "modified": "MODIFY", "deleted": "DELETE"}


def begin_progress(task: str, before: Progress | None, attempt: int, started: datetime) -> Progress:
    """`TASK-NN_progress.md` while the builder works: a rebuild goes on with the files of the
    attempts before."""
    return Progress(
        task=task,
        status="IN_PROGRESS",
        started=started,
        files=before.files if before and attempt > 1 else (),
        attempts={_ATTEMPTS: attempt},
    )


def is_of_attempt(progress: Progress, attempt: int) -> bool:
    """Whether this attempt wrote it."""
    return progress.attempts.get(_ATTEMPTS) == attempt


def make_progress(task: str, result: TaskResult, attempt: int) -> Progress:
    """`TASK-NN_progress.md`, of the builder's result of this attempt."""
    return Progress(
        task=task,
        status="COMPLETED" if result.status == "PASS" else "IN_PROGRESS",
        started=result.started,
        updated=result.finished,
        files=entries(result.files_changed),
        attempts={_ATTEMPTS: attempt},
    )


def make_result(
    plan: Plan,
    task: str,
    result: TaskResult,
    contexts: tuple[StageContext, ...],
    completed: datetime | None,
) -> Result:
    """`TASK-NN_result.md`, of the committer's result and what the stages before it handed on."""
    verified = [it.handoff.what for it in contexts if it.role == "verifier"]
    return Result(
        task=task,
        work=f"{plan.work} — {plan.title}",
        completed=completed,
        mode="direct" if plan.mode == "direct" else "",
        commit=result.commit,
        summary=result.summary,
        verification="\n".join(verified),
        files=entries(result.files_changed),
        contexts=contexts,
    )


def entries(changes: tuple[FileChange, ...]) -> tuple[FileEntry, ...]:
    """Changed files as the works files list them. What no works file can name is left out: no task
    declares it."""
    rows = [
        {"path": it.path, "action": ACTIONS[it.action], "description": it.description}
        for it in changes
        if path_problem(it.path) is None
    ]
    return msgspec.convert(rows, tuple[FileEntry, ...])
