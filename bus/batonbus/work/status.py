"""How a work is: what its files, its commits and the ledger say of each task."""

from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from batonbus.run.core import Core
from batonbus.run.history import History, make_history
from batonbus.wire.ledger import Stored
from batonbus.wire.reader import read_to_head
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
    """One task: `stage` is where it is now (a role and the state of its handoff)."""

    task: str
    title: str
    status: str
    stage: str = ""
    attempts: int = 0
    commit: str = ""


class Stage(Struct, frozen=True, kw_only=True):
    """One handoff of a task: to which role, in which state, as which attempt, with which result."""

    task: str
    role: str
    history: History

    @property
    def result(self) -> TaskResult | None:
        """What it answered, if it did."""
        return self.history.settlement.result if self.history.settlement else None


async def read_stages(core: Core, work: str) -> list[Stage]:
    """Every task's handoffs of a work, in the order of the ledger."""
    by_handoff: dict[UUID, list[Stored]] = {}

    def hear(stored: Stored) -> None:
        if stored.event.work == work:
            by_handoff.setdefault(stored.subject.handoff_id, []).append(stored)

    await read_to_head(core.ledger, hear, headers_only=False)
    return list(_stages(by_handoff.items()))


def _stages(handoffs: Iterable[tuple[UUID, list[Stored]]]) -> Iterable[Stage]:
    for handoff_id, events in handoffs:
        history = make_history(handoff_id, events)
        envelope = history.delivery.envelope if history.delivery else history.envelope
        if envelope is not None and envelope.task is not None:
            yield Stage(task=envelope.task, role=envelope.to, history=history)


def task_statuses(
    plan: Plan, commits: dict[str, str], stages: list[Stage], files: dict[str, str]
) -> list[TaskStatus]:
    """Each task of a plan. A commit decides; then the ledger; then what its files say."""
    return [
        _status(task.id, task.title, commits.get(task.id, ""), stages, files.get(task.id, ""))
        for task in plan.tasks
    ]


def _status(task: str, title: str, commit: str, stages: list[Stage], file: str) -> TaskStatus:
    own = [stage for stage in stages if stage.task == task]
    last = own[-1] if own else None
    building = [it.history.chain.attempt for it in own if it.role == "builder"]
    where = f"{last.role} {last.history.chain.stage}" if last else ""
    if commit:
        status = "DONE"
    elif last is None:
        status = file or "PENDING"
    else:
        status = "FAILED" if _given_up(last) else "IN_PROGRESS"
    return TaskStatus(
        task=task,
        title=title,
        status=status,
        stage=where,
        attempts=max(building, default=0),
        commit=commit,
    )


def _given_up(last: Stage) -> bool:
    """Its newest handoff ended without a PASS, and nobody has sent another one."""
    return last.history.chain.final and (last.result is None or last.result.status == "FAIL")


def restore_files(workshop: Workshop, plan: Plan, stages: list[Stage]) -> list[str]:
    """Write again the status files that somebody deleted, as the ledger tells them; returns their
    tasks' names."""
    folder = workshop.folder(plan.work)
    restored: list[str] = []
    for task in plan.tasks:
        own = [it for it in stages if it.task == task.id and it.result is not None]
        built = _last(own, "builder")
        if built is None or built.result is None:
            continue
        if folder.progress(task.id).value is None:
            attempt = built.history.chain.attempt
            folder.write_progress(make_progress(task.id, built.result, attempt))
            restored.append(f"{task.id}_progress.md")
        closed = _last(own, "committer")
        if closed and closed.result and closed.result.commit and not folder.result(task.id).value:
            contexts = _contexts(built, _last(own, "verifier"))
            folder.write_result(
                make_result(plan, task.id, closed.result, contexts, built.result.finished),
                plan.language,
            )
            restored.append(f"{task.id}_result.md")
    return restored


def _last(stages: list[Stage], role: str) -> Stage | None:
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


async def survey(
    path: Path, workshop: Workshop | None = None, core: Core | None = None
) -> list[WorkReport]:
    """Every work at or below a path. Commits count for the works of `workshop`, the ledger besides
    where a bus is up: then status files that somebody deleted are written again."""
    reports: list[WorkReport] = []
    for folder in work_folders(path) or [path]:
        found = validate_folder(folder)
        tasks: list[TaskStatus] = []
        restored: list[str] = []
        for work in found.works:
            if workshop is not None and work.plan and _is_own(workshop, folder):
                stages = await read_stages(core, work.id) if core else []
                restored += restore_files(workshop, work.plan, stages)
                commits = await workshop.repository.commits_of(work.id)
                files = {task.id: task.status for task in work.tasks}
                tasks += task_statuses(work.plan, commits, stages, files)
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
    return folder.absolute().parent == workshop.works.path.absolute()


def _from_files(work: Work) -> list[TaskStatus]:
    titles = {task.id: task.title for task in work.plan.tasks} if work.plan else {}
    known = dict.fromkeys([*titles, *(task.id for task in work.tasks)])
    return [
        TaskStatus(task=task, title=titles.get(task, ""), status=work.task(task).status)
        for task in known
    ]
