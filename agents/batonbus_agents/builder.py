"""The builder: works on one task in a worktree of its own, and tells what it changed."""

from msgspec.structs import replace

from batonbus import Agent, Context, Refuse
from batonbus_agents.checks import run_checks, verdict
from batonbus_agents.dispatches import listed
from batonbus_agents.git import tree_changes
from batonbus_agents.projection import begin_progress, is_of_attempt, make_progress
from batonbus_agents.routes import Role
from batonbus_agents.runtimes import PROTOCOL, Assignment
from batonbus_agents.stages import signed, stage_agent
from batonbus_agents.verifier import summarize
from batonbus_agents.works.progress import Progress
from batonbus_agents.workshop import Task, Workshop, now
from batonbus_agents.worktree import Snapshot, Worktree
from batonbus_schemas import Dispatch, TaskResult

ROLE: Role = "builder"


def make_builder(workshop: Workshop, *, id: str | None = None, slots: int = 1) -> Agent:
    """The builder's agent. Raises Refuse at its first task where it has no runtime."""

    async def build(task: Task, body: Dispatch, ctx: Context) -> TaskResult:
        return await Building(workshop, task, ctx).build(body)

    return stage_agent(workshop, ROLE, build, id=id, slots=slots)


class Building:
    """One attempt at one task."""

    def __init__(self, workshop: Workshop, task: Task, ctx: Context) -> None:
        self._workshop = workshop
        self._task = task
        self._ctx = ctx
        self._work = ctx.envelope.work
        self._folder = workshop.folder(self._work)
        self._started = now()

    async def build(self, body: Dispatch) -> TaskResult:
        """Work from where the attempt before ended; what a killed builder left is undone first."""
        attempt = self._ctx.attempt
        worktree = await self._open_worktree()
        before = self._folder.progress(self._task.id).value
        is_begun = before is not None and is_of_attempt(before, attempt)
        self._note(begin_progress(self._task.id, before, attempt, self._started))
        goes_on = self._workshop.next_step(self._work, self._task.id) if is_begun else ""
        said = await self._think(body, worktree, goes_on)
        snapshot = await worktree.snapshot(attempt)
        judged = replace(self._judge(said, snapshot), files_changed=snapshot.changes)
        result = signed(judged, self._task, ROLE, self._started)
        self._finish(result)
        if result.status == "PASS" and body.execution_mode == "direct":
            result = await self._check_itself(result, worktree)
        return result

    async def _open_worktree(self) -> Worktree:
        """The task's tree as the newest attempt before this one left it; one that raised left
        nothing. The first attempt, and one after somebody has changed a declared file on the
        branch, start anew from the branch's tip."""
        repository = self._workshop.repository
        names = self._work, self._task.id
        if self._ctx.attempt > 1:
            worktree = await repository.worktree(*names)
            if not await self._is_stale(worktree):
                await _rewind(worktree, self._ctx.attempt)
                return worktree
        await repository.remove_worktree(*names)
        return await repository.worktree(*names)

    async def _is_stale(self, worktree: Worktree) -> bool:
        declared = self._task.declared
        repository = self._workshop.repository
        tip = await repository.tip()
        return bool(declared and await tree_changes(repository.git, worktree.base, tip, declared))

    async def _think(self, body: Dispatch, worktree: Worktree, goes_on: str) -> TaskResult:
        runtime = self._workshop.runtimes.get(ROLE)
        if runtime is None:
            raise Refuse("the builder has no runtime: give one with --runtime builder='command:…'")
        self._workshop.lay_out(self._task, worktree.path)
        self._ctx.lay_out(worktree.path)
        references = self._workshop.references(body, self._ctx.envelope.id)
        assignment = Assignment(
            role=ROLE,
            work=self._work,
            task=self._task.id,
            attempt=self._ctx.attempt,
            text=f"{self._ctx.text}\n{references}{goes_on}{PROTOCOL}",
            cwd=worktree.path,
        )
        return await runtime(assignment)

    def _judge(self, said: TaskResult, snapshot: Snapshot) -> TaskResult:
        """An edit that was not declared is a FAIL that names it, whatever the runtime says."""
        undeclared = snapshot.undeclared(self._task.declared)
        if not undeclared:
            return said
        return TaskResult.failed(
            f"Changed files that {self._task.id} does not declare: {listed(undeclared)}.",
            why="A commit holds the declared files only.",
            caution="Undo these edits, or declare the files in the task.",
        )

    async def _check_itself(self, result: TaskResult, worktree: Worktree) -> TaskResult:
        """In direct mode nobody verifies after the builder."""
        progress = self._folder.progress(self._task.id).value
        checks = await run_checks(self._task, worktree.path, progress)
        # What they have left in the tree is no work of the task.
        await worktree.restore(self._ctx.attempt)
        if verdict(checks) == "PASS":
            return replace(result, verification=checks)
        failed = replace(
            summarize(self._task, checks), verification=checks, files_changed=result.files_changed
        )
        failed = signed(failed, self._task, ROLE, self._started)
        self._finish(failed)
        return failed

    def _finish(self, result: TaskResult) -> None:
        if result.context_handoff is not None:
            self._workshop.note_context(self._work, self._task.id, result.context_handoff)
        self._note(make_progress(self._task.id, result, self._ctx.attempt))

    def _note(self, progress: Progress) -> None:
        self._folder.write_progress(progress)


async def _rewind(worktree: Worktree, attempt: int) -> None:
    for before in range(attempt - 1, 0, -1):
        if await worktree.find_snapshot(before) is not None:
            return await worktree.restore(before)
    return await worktree.restore(0)
