"""How a work is: what its files, its commits and the ledger say of each task."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from batonbus.run.core import Core
from batonbus.run.history import History, read_work
from batonbus.work.runner import RUNNER
from batonbus_agents.projection import make_progress, make_result
from batonbus_agents.works.folder import work_folders
from batonbus_agents.works.handoff import StageContext
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.problems import Problem
from batonbus_agents.works.validation import validate_folder
from batonbus_agents.works.work import Work
from batonbus_agents.workshop import Workshop
from batonbus_schemas import TaskResult


class TaskStatus(Struct, frozen=True, kw_only=True):
    """One task: `stage` is where it is now (a role and the state of its handoff), `reason` why it
    is FAILED or BLOCKED."""

    task: str
    title: str
    status: str
    stage: str = ""
    attempts: int = 0
    commit: str = ""
    reason: str = ""


class Stage(Struct, frozen=True, kw_only=True):
    """One handoff of a work: to which role, with which history; `task` is blank where it is about
    the whole work."""

    task: str
    role: str
    history: History

    @property
    def result(self) -> TaskResult | None:
        """What it answered, if it did."""
        return self.history.settlement.result if self.history.settlement else None


async def read_stages(core: Core, works: Collection[str]) -> dict[str, list[Stage]]:
    """All handoffs of each of these works, in the order in which they began."""
    return {work: list(_stages(await read_work(core.ledger, work))) for work in works}


def _stages(histories: Iterable[History]) -> Iterable[Stage]:
    for history in histories:
        envelope = history.completed
        if envelope is not None:
            yield Stage(task=envelope.task or "", role=envelope.to, history=history)


def newest_run(stages: Sequence[Stage]) -> Sequence[Stage]:
    """The stages from the newest first handoff of a run on."""
    starts = [at for at, it in enumerate(stages) if it.history.chain.sender == RUNNER]
    return stages[starts[-1] :] if starts else stages


def task_statuses(
    plan: Plan, commits: Mapping[str, str], stages: Sequence[Stage], files: Mapping[str, str]
) -> list[TaskStatus]:
    """Each task of a plan. A commit decides; then the newest run in the ledger; then what the files
    say."""
    run = newest_run(stages)
    ending, verdicts = _ending(run), _verdicts(run)
    found: list[TaskStatus] = []
    for task in plan.tasks:
        own = [stage for stage in run if stage.task == task.id]
        last = own[-1] if own else None
        commit, verdict = commits.get(task.id, ""), verdicts.get(task.id, "")
        status = "DONE" if commit else _status(last, ending, verdict, files.get(task.id, ""))
        built = _last(own, "builder")
        found.append(
            TaskStatus(
                task=task.id,
                title=task.title,
                status=status,
                stage=f"{last.role} {last.history.chain.stage}" if last else "",
                attempts=built.history.chain.attempt if built else 0,
                commit=commit,
                reason=_reason(last, verdict) if status in {"FAILED", "BLOCKED"} else "",
            )
        )
    return found


def _ending(stages: Sequence[Stage]) -> Literal["", "CANCELLED", "FAILED"]:
    """How tasks without a commit have ended with a run; blank while anything of it is open. What a
    settled handoff hands on is open at once."""
    chains = {stage.history.chain.id: stage.history.chain for stage in stages}
    if any(not it.final or (it.child and it.child not in chains) for it in chains.values()):
        return ""
    cancelled = any(it.stage == "cancelled" for it in chains.values())
    return "CANCELLED" if cancelled else "FAILED"


def _verdicts(stages: Sequence[Stage]) -> dict[str, str]:
    """What the scheduler reported of each task that it did not bring to its commit."""
    reported = _last(stages, "scheduler")
    checks = reported.result.verification if reported and reported.result else ()
    return {it.name: it.output for it in checks if it.status != "PASS"}


def _status(last: Stage | None, ending: str, verdict: str, file: str) -> str:
    if verdict.startswith("BLOCKED"):
        return "BLOCKED"
    return (ending or "IN_PROGRESS") if last else (file or "PENDING")


def _reason(last: Stage | None, verdict: str) -> str:
    if verdict:
        return verdict.partition(": ")[2]
    if last is None:
        return ""
    return last.result.summary if last.result else last.history.chain.reason


def restore_files(workshop: Workshop, plan: Plan, stages: Sequence[Stage]) -> list[str]:
    """Write again the status files that somebody deleted, as the ledger tells them; returns their
    names."""
    folder = workshop.folder(plan.work)
    restored: list[str] = []
    for task in plan.tasks:
        own = [stage for stage in stages if stage.task == task.id]
        built, closed = _last(own, "builder"), _last(own, "committer")
        if built is None or built.result is None:
            continue  # a builder that works writes its file itself
        if folder.progress(task.id).value is None:
            attempt = built.history.chain.attempt
            folder.write_progress(make_progress(task.id, built.result, attempt))
            restored.append(f"{task.id}_progress.md")
        done = closed.result if closed else None
        if done is not None and done.commit and folder.result(task.id).value is None:
            contexts = _contexts(built, _last(own, "verifier"))
            result = make_result(plan, task.id, done, contexts, built.result.finished)
            folder.write_result(result, plan.language)
            restored.append(f"{task.id}_result.md")
    return restored


def _last(stages: Sequence[Stage], role: str) -> Stage | None:
    return next((it for it in reversed(stages) if it.role == role), None)


def _contexts(*stages: Stage | None) -> tuple[StageContext, ...]:
    return tuple(
        StageContext(role=stage.role, handoff=stage.result.context_handoff)
        for stage in stages
        if stage is not None and stage.result is not None and stage.result.context_handoff
    )


class WorkReport(Struct, frozen=True, kw_only=True):
    """One work: its tasks, what cannot be read of its files, what was written again."""

    work: str
    tasks: tuple[TaskStatus, ...]
    problems: tuple[Problem, ...]
    restored: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether some file cannot be read."""
        return any(not it.warning for it in self.problems)

    @property
    def is_open(self) -> bool:
        """Whether a task began, and is not DONE."""
        return any(it.status not in {"DONE", "PENDING"} for it in self.tasks)


async def survey(
    path: Path, workshop: Workshop | None = None, core: Core | None = None
) -> list[WorkReport]:
    """Every work at or below a path. Commits count for the works of `workshop`, the ledger besides
    where a bus is up: then status files that somebody deleted are written again."""
    surveyed = [(folder, validate_folder(folder)) for folder in work_folders(path) or [path]]
    works = {work.id for _, found in surveyed for work in found.works}
    stages = await read_stages(core, works) if core else {}
    reports: list[WorkReport] = []
    for folder, found in surveyed:
        tasks: list[TaskStatus] = []
        restored: list[str] = []
        for work in found.works:
            if workshop is not None and work.plan and _is_own(workshop, folder):
                handoffs = stages.get(work.id, [])
                restored += restore_files(workshop, work.plan, handoffs)
                commits = await workshop.repository.commits_of(work.id)
                files = {task.id: task.status for task in work.tasks}
                tasks += task_statuses(work.plan, commits, handoffs, files)
            else:
                tasks += _from_files(work)
        reports.append(
            WorkReport(
                work=folder.name,
                tasks=tuple(tasks),
                problems=found.problems,
                restored=tuple(restored),
            )
        )
    return reports


def _is_own(workshop: Workshop, folder: Path) -> bool:
    return folder.resolve().parent == workshop.works.path


def _from_files(work: Work) -> list[TaskStatus]:
    titles = {task.id: task.title for task in work.plan.tasks} if work.plan else {}
    known = dict.fromkeys([*titles, *(task.id for task in work.tasks)])
    return [
        TaskStatus(task=task, title=titles.get(task, ""), status=work.task(task).status)
        for task in known
    ]
