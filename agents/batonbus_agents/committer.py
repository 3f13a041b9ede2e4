"""The committer: the gate, one commit a task, its result file, and the word that it is done."""

from batonbus import Agent, Context, Refuse
from batonbus_agents.callback import call_back, make_done
from batonbus_agents.checkpoints import AFTER_COMMIT, committed
from batonbus_agents.commit import CommitRefusedError, LocalEditsError
from batonbus_agents.git import RepositoryError, tree_changes
from batonbus_agents.projection import make_result
from batonbus_agents.routes import Role
from batonbus_agents.stages import signed, stage_agent
from batonbus_agents.works.execution_log import LogEntry
from batonbus_agents.works.handoff import StageContext, task_context
from batonbus_agents.works.problems import WorksFileError
from batonbus_agents.works.progress import Progress, gate
from batonbus_agents.workshop import Task, Workshop, now
from batonbus_agents.worktree import Snapshot, file_changes
from batonbus_schemas import ContextHandoff, DetailLevel, Dispatch, TaskResult, WindowEntry

ROLE: Role = "committer"


def make_committer(workshop: Workshop, *, id: str | None = None) -> Agent:
    """The committer's agent. It has one slot: it is the one writer of the branch."""

    async def commit(task: Task, body: Dispatch, ctx: Context) -> TaskResult:
        return await Committing(workshop, task, ctx).commit(body)

    return stage_agent(workshop, ROLE, commit, id=id)


class Committing:
    """One task at the gate. Killed at any instant and run again, it ends with the same one commit
    and the same files."""

    def __init__(self, workshop: Workshop, task: Task, ctx: Context) -> None:
        self._workshop = workshop
        self._task = task
        self._ctx = ctx
        self._work = ctx.envelope.work
        self._folder = workshop.folder(ctx.envelope.work)
        self._started = now()

    async def commit(self, body: Dispatch) -> TaskResult:
        """Gate, commit, result file, lists, callback, in this order."""
        progress = self._folder.progress(self._task.id).value
        done = (await self._workshop.repository.commits_of(self._work)).get(self._task.id)
        # What is committed has passed the gate: whoever deletes its progress file gets it no worse.
        reason = None if done else gate(progress)
        snapshot = await self._snapshot(done)
        if reason is not None or snapshot is None:
            return self._failed(reason or "no files changed")
        try:
            commit = await self._workshop.repository.commit_task(
                self._work, self._task.id, snapshot, self._task.declared, self._message(snapshot)
            )
        except LocalEditsError as error:
            raise Refuse(str(error)) from error  # to build it again would not help
        except CommitRefusedError as error:
            return self._failed(str(error))
        contexts = self._contexts(commit)
        result = self._result(commit, snapshot, contexts)
        await self._write(result, contexts, progress)
        # Asked after the commit: of two committers at once, the later one sees both commits.
        if await self._workshop.is_committed(self._work, self._task.plan):
            await self._close_work()
        if not _is_recalled(body, self._task.id):
            await self._tell(result)
        return result

    async def _snapshot(self, done: str | None) -> Snapshot | None:
        """What the builder left; of a commit that is made already, what it changed."""
        repository = self._workshop.repository
        if done is None:
            worktree = await repository.worktree(self._work, self._task.id)
            return await worktree.find_latest()
        changes = await tree_changes(repository.git, f"{done}^", done)
        return Snapshot(commit=done, changes=file_changes(changes))

    def _failed(self, reason: str) -> TaskResult:
        result = TaskResult.failed(reason, why="The committer's gate did not open.")
        return signed(result, self._task, ROLE, self._started)

    def _message(self, snapshot: Snapshot) -> str:
        files = "\n".join(f"- {change.path}" for change in snapshot.changes)
        return f"{self._task.id}: {self._task.title}\n\n{files}\n"

    def _contexts(self, commit: str) -> tuple[StageContext, ...]:
        """The stages before, as the result file keeps them: the builder whole, which the window
        shows in short, and the verifier. A file that tells of this commit already has them."""
        known = self._folder.result(self._task.id).value
        if known is not None and known.commit == commit and known.contexts:
            return known.contexts
        built = self._workshop.read_context(self._work, self._task.id)
        found = [StageContext(role="builder", handoff=built)] if built else []
        for entry in reversed(self._ctx.window):
            if entry.edge.value == "stage" and not (entry.from_ == "builder" and built):
                found.append(_stage(entry))
        return tuple(found)

    def _result(
        self, commit: str, snapshot: Snapshot, contexts: tuple[StageContext, ...]
    ) -> TaskResult:
        context = task_context(contexts) or ContextHandoff(what=f"Committed {self._task.title}.")
        declared = [it for it in snapshot.changes if it.path in self._task.declared]
        result = TaskResult(
            status="PASS",
            summary=context.summary(),
            files_changed=tuple(declared),
            context_handoff=context,
            commit=commit,
        )
        return signed(result, self._task, ROLE, self._started)

    async def _write(
        self, result: TaskResult, contexts: tuple[StageContext, ...], progress: Progress | None
    ) -> None:
        """The result file is a projection of what is known by now: written again, it is equal."""
        plan, known = self._task.plan, self._folder.result(self._task.id).value
        if known is None or known.commit != result.commit:
            completed = progress.updated if progress else None
            projected = make_result(plan, self._task.id, result, contexts, completed)
            self._folder.write_result(projected, plan.language)
        entry = self._log_entry(result)
        await self._folder.keep_in_log(entry, lambda it: it.summary == entry.summary)

    def _log_entry(self, result: TaskResult) -> LogEntry:
        return LogEntry(
            written=result.finished or now(),
            summary=committed(self._task.id),
            phase="close",
            did=result.summary,
            checks="passed before the commit",
            next=AFTER_COMMIT,
            context="kept in the result file",
        )

    async def _close_work(self) -> None:
        """DONE when the last task is committed; work trees and contexts are not needed any more."""
        repository, works = self._workshop.repository, self._workshop.works
        row = works.read_list().value.find(self._work)
        try:
            if row is not None and row.status == "IN_PROGRESS":
                await works.set_status(self._work, "DONE", now().date())
            await repository.clean(self._work)
            self._workshop.forget_contexts(self._task.plan)
        # The commit is made. A file error too: another process may hold the list.
        except (WorksFileError, RepositoryError, OSError, ValueError) as error:
            self._ctx.log.warning("work.not_closed", error=str(error))

    async def _tell(self, result: TaskResult) -> None:
        if not self._workshop.on_done:
            return
        problem = await call_back(
            self._workshop.on_done, make_done(self._work, self._task.id, result)
        )
        if problem is not None:
            self._ctx.log.warning("callback.failed", task=self._task.id, error=problem)


def _is_recalled(body: Dispatch, task: str) -> bool:
    """Whether an earlier run has committed the task, and told of it."""
    return any(it.task == task and it.status == "SKIP" for it in body.previous_results)


def _stage(entry: WindowEntry) -> StageContext:
    return StageContext(
        role=entry.from_,
        level=DetailLevel(entry.level.value),
        handoff=ContextHandoff(
            what=entry.what,
            why=entry.why or "",
            caution=entry.caution or "",
            incomplete=entry.incomplete or "",
        ),
    )
