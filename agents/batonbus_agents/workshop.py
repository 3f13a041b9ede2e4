"""Where the reference fleet works: a repository, its `works/` folder, how each role thinks."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

from batonbus import Refuse
from batonbus_agents.excerpt import shortened
from batonbus_agents.git import state_folder
from batonbus_agents.references import lay_out_references
from batonbus_agents.repository import Repository
from batonbus_agents.routes import Role
from batonbus_agents.runtimes import Runtime
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.folder import LOG, WorkFolder, WorksRoot, write_whole
from batonbus_agents.works.markdown import one_line
from batonbus_agents.works.names import task_file
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.problems import Problem
from batonbus_agents.works.task import TaskSpec
from batonbus_agents.works.work import Work
from batonbus_schemas import ContextHandoff, Dispatch

DOCUMENTS = ("Requirement.md", "PLAN.md")
"""What of a work its tasks refer to, beside their own files."""


NEXT_LIMIT = 300
"""Bytes of JSON of the next step that a runtime is told."""


class Workshop(Struct, frozen=True, kw_only=True):
    """The repository, the runtimes by role (a role without one thinks in plain code), and whom to
    tell of each finished task."""

    repository: Repository
    runtimes: Mapping[Role, Runtime] = {}
    on_done: str = ""

    def references(self, body: Dispatch, handoff_id: UUID) -> str:
        """What a runtime is told of a dispatch's reference files, which lie ready for it for as
        long as its handoff is open."""
        return lay_out_references(body, self.repository.path, handoff_id)

    @property
    def works(self) -> WorksRoot:
        """The folder of all works."""
        return WorksRoot(self.repository.path / "works")

    def folder(self, work: str) -> WorkFolder:
        """A work's folder."""
        return self.works.folder(work)

    def read(self, work: str) -> tuple[Work, Plan]:
        """A work and its plan. Raises Refuse with every problem's file, line and reason; those of
        status files count for their readers alone."""
        reading = self.folder(work).read()
        problems = [it for it in reading.problems if not it.warning and not _is_status(it, work)]
        if problems:
            raise Refuse(f"{work} cannot be read:\n" + "\n".join(map(str, problems)))
        if reading.value.plan is None:
            raise Refuse(f"{work} has no PLAN.md: write one, or ask the planner")
        return reading.value, reading.value.plan

    def tasks(self, work: str) -> "dict[str, Task]":
        """The tasks of a work's plan, each with all that its files say. Raises Refuse."""
        found, plan = self.read(work)
        tasks: dict[str, Task] = {}
        for planned in plan.tasks:
            files = found.task(planned.id)
            tasks[planned.id] = Task(
                plan=plan,
                planned=planned,
                spec=files.spec or TaskSpec(id=planned.id, title=planned.title),
                names=tuple(files.names.values()),
            )
        return tasks

    def task(self, work: str, task: str) -> "Task":
        """One of them. Raises Refuse."""
        tasks = self.tasks(work)
        if task not in tasks:
            raise Refuse(f"{work} has no {task} (its tasks: {', '.join(tasks)})")
        return tasks[task]

    async def is_committed(self, work: str, plan: Plan) -> bool:
        """Whether every task of a work's plan has its commit."""
        committed = await self.repository.commits_of(work)
        return all(task.id in committed for task in plan.tasks)

    def lay_out(self, task: "Task", folder: Path) -> None:
        """Write a task's documents into a folder, at the paths by which a dispatch refers to them:
        in a work tree they are not there, or as old as its commit."""
        source = self.folder(task.plan.work).path
        target = folder / "works" / task.plan.work
        target.mkdir(parents=True, exist_ok=True)
        for name in (*DOCUMENTS, *task.names):
            if (source / name).is_file():
                (target / name).write_bytes((source / name).read_bytes())

    def note_context(self, work: str, task: str, context: ContextHandoff) -> None:
        """Keep a builder's four fields for the committer, whose window shows but their summary."""
        path = self._context_file(work, task)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.encode(context).decode())

    def read_context(self, work: str, task: str) -> ContextHandoff | None:
        """What `note_context` kept."""
        try:
            return msgspec.json.decode(
                self._context_file(work, task).read_bytes(), type=ContextHandoff
            )
        except FileNotFoundError:
            return None

    def forget_contexts(self, plan: Plan) -> None:
        """Remove what `note_context` kept of a work whose tasks are all committed: their result
        files have it; where one has it not yet, its committer is run again and needs it. Raises
        OSError."""
        for task in plan.tasks:
            result = self.folder(plan.work).result(task.id).value
            if result is not None and result.contexts:
                self._context_file(plan.work, task.id).unlink(missing_ok=True)
        home = self._context_file(plan.work, "").parent
        if home.is_dir() and not any(home.iterdir()):
            home.rmdir()

    def next_step(self, work: str, task: str) -> str:
        """What a runtime that begins again in the middle of a task is told: the next step of the
        task's last checkpoint. Blank where it has none."""
        entries = [it for it in self.folder(work).log() if it.summary.startswith(f"{task} ")]
        if not entries:
            return ""
        told = shortened(one_line(entries[-1].next), NEXT_LIMIT)
        return f"\n## Next step, by the last checkpoint of {task}\n\n{told}\n"

    def _context_file(self, work: str, task: str) -> Path:
        return state_folder(self.repository.path) / "contexts" / work / f"{task}.json"


class Task(Struct, frozen=True, kw_only=True):
    """One task: its plan, its row there, its own file, and the names of its files."""

    plan: Plan
    planned: PlanTask
    spec: TaskSpec
    names: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """TASK-NN."""
        return self.planned.id

    @property
    def title(self) -> str:
        """What it is called."""
        return self.planned.title or self.spec.title

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files that it declares: those of its own file, else those of the plan."""
        return self.spec.files or self.planned.files

    @property
    def declared(self) -> tuple[str, ...]:
        """The paths of its files."""
        return tuple(entry.path for entry in self.files)


def _is_status(problem: Problem, work: str) -> bool:
    name = problem.file.removeprefix(f"{work}/")
    if name == LOG:
        return True
    try:
        found = task_file(name, work)
    except ValueError:
        return False  # it may be a task that is misspelt
    return found is not None and found.kind != "spec"


def now() -> datetime:
    """This moment, in whole seconds, as the works files write it."""
    return datetime.now(UTC).replace(microsecond=0)
