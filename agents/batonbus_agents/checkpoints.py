"""The fleet's Checkpoints: compared with the files of the work, kept in its execution log."""

from msgspec.structs import replace

from batonbus import Agent, CheckpointRequest, Entry, Evidence, Handled
from batonbus_agents.excerpt import shortened
from batonbus_agents.git import GitError
from batonbus_agents.projection import is_of_attempt
from batonbus_agents.routes import ATTEMPTS, STAGES, Role
from batonbus_agents.works.execution_log import LogEntry, render_entry
from batonbus_agents.works.folder import WorkFolder
from batonbus_agents.works.words import is_nothing
from batonbus_agents.workshop import Workshop
from batonbus_schemas import Checkpoint, Dispatch, TaskResult

AFTER_COMMIT = "Take the next ready task; after the last one, review and push."

REASON_LIMIT = 300
"""Bytes of JSON of a reason in a next step."""

NOBODY = frozenset[str]()


def committed(task: str) -> str:
    """The title of the entry that the committer itself writes for a task."""
    return f"{task} committed"


def keep_checkpoints(agent: Agent, workshop: Workshop, role: Role) -> None:
    """Let an agent of the fleet keep its Checkpoints in the files of each work."""

    @agent.checkpoints
    async def keep(request: CheckpointRequest) -> Evidence:
        checkpoint, last = request.checkpoint, request.last
        folder = workshop.folder(checkpoint.work)
        if request.step == "write":
            return Evidence(entry=await _write(folder, checkpoint, role))
        if last is None or last.result is None:
            return Evidence()
        result = last.result
        evidence = replace(
            _marks(folder, role, last, result),
            next=_next_step(role, checkpoint, last, result),
        )
        if role == "builder" and checkpoint.task:
            changed = await _unsaved(workshop, checkpoint.work, checkpoint.task, last.attempt)
            return replace(evidence, changed_files=changed)
        return evidence


def _marks(folder: WorkFolder, role: Role, last: Handled, result: TaskResult) -> Evidence:
    """Which tasks are done by the result that the ledger has, and which by the files. The others of
    the six mark none."""
    task = last.envelope.task or ""
    done = frozenset({task} if result.status == "PASS" else NOBODY)
    if role == "builder":
        progress = folder.progress(task).value
        if progress is None:
            return Evidence(done=done, marked=NOBODY)
        if not is_of_attempt(progress, last.attempt) or progress.started != result.started:
            return Evidence()  # another attempt has begun since
        is_marked = progress.status == "COMPLETED"
        return Evidence(done=done, marked=frozenset({task} if is_marked else NOBODY))
    if role == "committer":
        is_marked = bool(result.commit) and _commit(folder, task) == result.commit
        return Evidence(done=done, marked=frozenset({task} if is_marked else NOBODY))
    if role == "scheduler":
        done = frozenset(it.name for it in result.verification if it.status == "PASS")
        return Evidence(done=done, marked=frozenset(it for it in done if _commit(folder, it)))
    return Evidence()


def _commit(folder: WorkFolder, task: str) -> str:
    result = folder.result(task).value
    return result.commit if result else ""


async def _unsaved(
    workshop: Workshop, work: str, task: str, attempt: int
) -> tuple[str, ...] | None:
    try:
        return await workshop.repository.unsaved(work, task, attempt)
    except GitError:
        return None  # a tree that git cannot read is made anew by the next attempt


def _next_step(role: Role, checkpoint: Checkpoint, last: Handled, result: TaskResult) -> str:
    work, task = checkpoint.work, checkpoint.task
    is_pass, reason = result.status == "PASS", shortened(result.text, REASON_LIMIT)
    if role == "specifier" and is_pass:
        return f"Plan {work}, or build it where it has its plan."
    if role == "planner" and is_pass:
        return f"Build the tasks of {work}."
    if role == "scheduler" and is_pass:
        return "Review and push."
    if task is None:
        return f"Mend what failed, and run {work} again: {reason}"
    if not is_pass:
        again = "Build {} again: {}" if last.attempt < ATTEMPTS else "Mend {}, it FAILED: {}"
        return again.format(task, reason)
    if role == "committer":
        return AFTER_COMMIT
    body = last.envelope.body
    stages = STAGES[body.execution_mode if isinstance(body, Dispatch) else "full"]
    following = stages[stages.index(role) + 1]
    return f"{'Verify' if following == 'verifier' else 'Commit'} {task}."


async def _write(folder: WorkFolder, checkpoint: Checkpoint, role: Role) -> Entry | None:
    """The committer has told of its commit already, with the commit."""
    subject = checkpoint.task or checkpoint.work
    entry = LogEntry(
        written=checkpoint.written.replace(microsecond=0),
        summary=f"{subject} left by {checkpoint.agent}",
        phase=checkpoint.phase,
        did=checkpoint.did,
        checks=checkpoint.checks,
        next=checkpoint.next,
        context=checkpoint.context,
    )

    def is_same(other: LogEntry) -> bool:
        if role == "committer" and other.summary == committed(subject):
            return True
        return render_entry(other) == render_entry(entry)

    kept = await folder.keep_in_log(entry, is_same)
    if kept is None:
        return None
    return Entry(
        phase=kept.phase,
        did=kept.did,
        checks=kept.checks,
        next="" if is_nothing(kept.next) else kept.next,
        context=kept.context,
    )
