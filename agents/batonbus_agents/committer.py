"""The committer: the gate, one commit a task, its result file, and the word that it is done."""

from msgspec.structs import replace

from batonbus import Agent, Context
from batonbus_agents.callback import call_back, make_done
from batonbus_agents.projection import make_result
from batonbus_agents.repository import CommitRefusedError
from batonbus_agents.routes import Role
from batonbus_agents.stages import hand_on, task_of
from batonbus_agents.works.execution_log import LogEntry
from batonbus_agents.works.handoff import StageContext, task_context
from batonbus_agents.works.progress import Progress, gate
from batonbus_agents.workshop import Task, Workshop, now
from batonbus_agents.worktree import Snapshot
from batonbus_schemas import ContextHandoff, DetailLevel, Dispatch, TaskResult, Then, WindowEntry

ROLE: Role = "committer"


def make_committer(workshop: Workshop, *, id: str | None = None) -> Agent:
    """The committer's agent. It has one slot: it is the one writer of the branch."""
    agent = Agent(ROLE, id=id)

    @agent.handles
    async def commit(body: Dispatch, ctx: Context) -> TaskResult | Then:
        task = task_of(workshop, ctx)
        result = await Committing(workshop, task, ctx).commit()
        return hand_on(result, task, ROLE, body, ctx.attempt)

    return agent


class Committing:
    """One task at the gate. Killed at any instant and run again, it ends with the same one commit
    and the same files."""

    def __init__(self, workshop: Workshop, task: Task, ctx: Context) -> None:
        self._workshop = workshop
        self._task = task
        self._ctx = ctx
        self._work = ctx.envelope.work
        self._started = now()

    async def commit(self) -> TaskResult:
        """Gate, commit, result file, lists, callback, in this order."""
        repository = self._workshop.repository
        progress = self._workshop.folder(self._work).progress(self._task.id).value
        committed = await repository.commits_of(self._work)
        # What is committed has passed the gate: whoever deletes its progress file gets it no worse.
        reason = None if self._task.id in committed else gate(progress)
        worktree = await repository.worktree(self._work, self._task.id)
        snapshot = await worktree.find_latest()
        if reason is not None or snapshot is None:
            return self._failed(reason or "no files changed")
        try:
            found = await repository.commit_task(
                self._work, self._task.id, snapshot, self._task.declared, self._message(snapshot)
            )
        except CommitRefusedError as error:
            return self._failed(str(error))
        contexts = self._contexts()
        result = self._result(found, snapshot, contexts)
        self._write(result, contexts, progress)
        await self._close_work()
        await self._tell(result)
        return result

    def _failed(self, reason: str) -> TaskResult:
        result = TaskResult.failed(reason, why="The committer's gate did not open.")
        return replace(
            result,
            work=self._work,
            task=self._task.id,
            agent=ROLE,
            started=self._started,
            finished=now(),
        )

    def _message(self, snapshot: Snapshot) -> str:
        files = "\n".join(f"- {change.path}" for change in snapshot.changes)
        return f"{self._task.id}: {self._task.title}\n\n{files}\n"

    def _contexts(self) -> tuple[StageContext, ...]:
        """The stages before, as the result file keeps them: the builder whole, which the window
        shows in short, and the verifier."""
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
        return TaskResult(
            status="PASS",
            summary=context.summary(),
            work=self._work,
            task=self._task.id,
            agent=ROLE,
            files_changed=tuple(declared),
            context_handoff=context,
            commit=commit,
            started=self._started,
            finished=now(),
        )

    def _write(
        self, result: TaskResult, contexts: tuple[StageContext, ...], progress: Progress | None
    ) -> None:
        """The result file is a projection of what is known by now: written again, it is equal."""
        plan, folder = self._task.plan, self._workshop.folder(self._work)
        completed = progress.updated if progress else None
        projected = make_result(plan, self._task.id, result, contexts, completed)
        folder.write_result(projected, plan.language)
        log = folder.read().value.log
        if not any(entry.summary.startswith(f"{self._task.id} ") for entry in log):
            folder.append_log(self._log_entry(result))

    def _log_entry(self, result: TaskResult) -> LogEntry:
        return LogEntry(
            written=result.finished or now(),
            summary=f"{self._task.id} committed",
            phase="implement",
            did=result.summary,
            checks="passed before the commit",
            next="Take the next ready task; after the last one, review and push.",
            context="kept in the result file",
        )

    async def _close_work(self) -> None:
        """DONE when the last task is committed."""
        committed = await self._workshop.repository.commits_of(self._work)
        if not all(it.id in committed for it in self._task.plan.tasks):
            return
        row = self._workshop.works.read_list().value.find(self._work)
        if row is not None and row.status == "IN_PROGRESS":
            self._workshop.works.set_status(self._work, "DONE", now().date())

    async def _tell(self, result: TaskResult) -> None:
        if not self._workshop.on_done:
            return
        problem = await call_back(
            self._workshop.on_done, make_done(self._work, self._task.id, result)
        )
        if problem is not None:
            self._ctx.log.warning("callback.failed", task=self._task.id, error=problem)


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
