"""The builder: works on one task in a worktree of its own, and tells what it changed."""

from msgspec.structs import replace

from batonbus import Agent, Context, Refuse
from batonbus_agents.checks import run_checks, verdict
from batonbus_agents.projection import make_progress
from batonbus_agents.routes import Role
from batonbus_agents.runtimes import PROTOCOL, Assignment
from batonbus_agents.stages import hand_on, task_of
from batonbus_agents.works.progress import Progress
from batonbus_agents.workshop import Task, Workshop, now
from batonbus_agents.worktree import Snapshot, Worktree
from batonbus_schemas import Dispatch, TaskResult, Then

ROLE: Role = "builder"


def make_builder(workshop: Workshop, *, id: str | None = None, slots: int = 1) -> Agent:
    """The builder's agent. Raises Refuse at its first task where it has no runtime."""
    agent = Agent(ROLE, id=id, slots=slots)

    @agent.handles
    async def build(body: Dispatch, ctx: Context) -> TaskResult | Then:
        task = task_of(workshop, ctx)
        result = await Building(workshop, task, ctx).build(body)
        return hand_on(result, task, ROLE, body, ctx.attempt)

    return agent


class Building:
    """One attempt at one task."""

    def __init__(self, workshop: Workshop, task: Task, ctx: Context) -> None:
        self._workshop = workshop
        self._task = task
        self._ctx = ctx
        self._started = now()

    async def build(self, body: Dispatch) -> TaskResult:
        """Work from where the attempt before ended; what a killed builder left is undone first."""
        work, attempt = self._ctx.envelope.work, self._ctx.attempt
        worktree = await self._workshop.repository.worktree(work, self._task.id)
        await _rewind(worktree, attempt)
        self._note(Progress(task=self._task.id, status="IN_PROGRESS", started=self._started))
        said = await self._think(worktree)
        snapshot = await worktree.snapshot(attempt)
        result = replace(
            self._judge(said, snapshot),
            work=work,
            task=self._task.id,
            agent=ROLE,
            files_changed=snapshot.changes,
            started=self._started,
            finished=now(),
        )
        self._finish(result)
        if result.status == "PASS" and body.execution_mode == "direct":
            result = await self._check_itself(result, worktree)
        return result

    async def _think(self, worktree: Worktree) -> TaskResult:
        runtime = self._workshop.runtimes.get(ROLE)
        if runtime is None:
            raise Refuse("the builder has no runtime: give one with --runtime builder='command:…'")
        assignment = Assignment(
            role=ROLE,
            work=self._ctx.envelope.work,
            task=self._task.id,
            attempt=self._ctx.attempt,
            text=f"{self._ctx.text}\n{PROTOCOL}",
            cwd=worktree.path,
        )
        return await runtime(assignment)

    def _judge(self, said: TaskResult, snapshot: Snapshot) -> TaskResult:
        """An edit that was not declared is a FAIL that names it, whatever the runtime says."""
        undeclared = snapshot.undeclared(self._task.declared)
        if not undeclared:
            return said
        return TaskResult.failed(
            f"Changed files that {self._task.id} does not declare: {', '.join(undeclared)}.",
            why="A commit holds the declared files only.",
            caution="Undo these edits, or declare the files in the task.",
        )

    async def _check_itself(self, result: TaskResult, worktree: Worktree) -> TaskResult:
        """In direct mode nobody verifies after the builder."""
        progress = self._workshop.folder(self._ctx.envelope.work).progress(self._task.id).value
        checks = await run_checks(self._task, worktree.path, progress)
        return replace(result, status=verdict(checks), verification=checks, finished=now())

    def _finish(self, result: TaskResult) -> None:
        if result.context_handoff is not None:
            self._workshop.note_context(
                self._ctx.envelope.work, self._task.id, result.context_handoff
            )
        self._note(make_progress(self._task.id, result, self._ctx.attempt))

    def _note(self, progress: Progress) -> None:
        self._workshop.folder(self._ctx.envelope.work).write_progress(progress)


async def _rewind(worktree: Worktree, attempt: int) -> None:
    """The tree as the newest attempt before this one left it; one that raised left nothing."""
    for before in range(attempt - 1, 0, -1):
        if await worktree.find_snapshot(before) is not None:
            return await worktree.restore(before)
    return await worktree.restore(0)
