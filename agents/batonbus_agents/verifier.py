"""The verifier: runs a task's checks on what the builder left, and records what they print."""

from msgspec.structs import replace

from batonbus import Agent, Context
from batonbus_agents.checks import run_checks, verdict
from batonbus_agents.routes import Role
from batonbus_agents.runtimes import PROTOCOL, Assignment
from batonbus_agents.stages import signed, stage_agent
from batonbus_agents.workshop import Task, Workshop, now
from batonbus_agents.worktree import Worktree
from batonbus_schemas import Check, Dispatch, TaskResult
from batonbus_schemas.counts import counted

ROLE: Role = "verifier"


def make_verifier(workshop: Workshop, *, id: str | None = None, slots: int = 2) -> Agent:
    """The verifier's agent. A runtime may judge besides; it cannot turn a failed check around."""

    async def verify(task: Task, body: Dispatch, ctx: Context) -> TaskResult:
        started, work = now(), ctx.envelope.work
        worktree = await workshop.repository.worktree(work, task.id)
        await worktree.restore_latest()
        progress = workshop.folder(work).progress(task.id).value
        checks = await run_checks(task, worktree.path, progress)
        text = (
            f"{ctx.text}\n{workshop.references(body, ctx.envelope.id)}{_report(checks)}\n{PROTOCOL}"
        )
        judged = await _judge(workshop, task, ctx, checks, worktree, text)
        return signed(replace(judged, verification=checks), task, ROLE, started)

    return stage_agent(workshop, ROLE, verify, id=id, slots=slots)


async def _judge(
    workshop: Workshop,
    task: Task,
    ctx: Context,
    checks: tuple[Check, ...],
    worktree: Worktree,
    text: str,
) -> TaskResult:
    runtime = workshop.runtimes.get(ROLE)
    if verdict(checks) == "FAIL" or runtime is None:
        return summarize(task, checks)
    workshop.lay_out(task, worktree.path)
    ctx.lay_out(worktree.path)
    assignment = Assignment(
        role=ROLE,
        work=ctx.envelope.work,
        task=task.id,
        attempt=ctx.attempt,
        text=text,
        cwd=worktree.path,
    )
    return await runtime(assignment)


def summarize(task: Task, checks: tuple[Check, ...]) -> TaskResult:
    """What plain checks say, as a verifier's result."""
    failed = [check for check in checks if check.status == "FAIL"]
    passed = [check.name for check in checks if check.status == "PASS"]
    absent = [_why_not(check) for check in checks if check.status == "N/A"]
    caution = f"Not checked: {'; '.join(absent)}." if absent else ""
    if failed or not passed:
        what = [f"{check.name} failed: {_last_line(check.output)}" for check in failed]
        return TaskResult.failed(
            "\n".join(what) or "Nothing could be checked.",
            why=f"{len(failed)} of {counted(len(checks), 'check')} of {task.id} failed.",
            caution=caution,
        )
    return TaskResult.passed(
        f"{counted(len(passed), 'check')} of {task.id} passed: {', '.join(passed)}.",
        why="Each was run on the files as the builder left them.",
        caution=caution,
    )


def _why_not(check: Check) -> str:
    lines = [line.strip() for line in check.output.splitlines() if line.strip()]
    said = lines[0][:200] if lines else "nothing to run"
    return said if check.name in said else f"{check.name}: {said}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"


def _report(checks: tuple[Check, ...]) -> str:
    rows = [f"- {check.name}: {check.status}" for check in checks]
    return "\n".join(["## Checks that were run", "", *rows])
