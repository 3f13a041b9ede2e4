"""The agents of the fault tests. Each effect is one line of a log that outlives the process.

Two of each role, so that what one leaves behind the other takes over.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import anyio

from batonbus import Agent, Context, Refuse, Sent, gather
from batonbus_schemas import Dispatch, TaskResult, Then

EFFECTS = "FAULTS_EFFECTS"
"""The environment variable that names the log of effects."""

ACKNOWLEDGED = "FAULTS_ACKNOWLEDGED"
"""The one that names the file of the handoffs that handlers know to be stored."""

SLOTS = 25

worker_a = Agent("worker", id="worker-a", slots=SLOTS)
worker_b = Agent("worker", id="worker-b", slots=SLOTS)
worker_c = Agent("worker", id="worker-c", slots=SLOTS)
asker_a = Agent("asker", id="asker-a")
planner_a = Agent("planner", id="planner-a", slots=SLOTS)
planner_b = Agent("planner", id="planner-b", slots=SLOTS)
single_a = Agent("single", id="single-a")
single_b = Agent("single", id="single-b")
moody_a = Agent("moody", id="moody-a")
moody_b = Agent("moody", id="moody-b")

ROLES = {
    "worker": {"worker-a", "worker-b", "worker-c"},
    "asker": {"asker-a"},
    "planner": {"planner-a", "planner-b"},
    "single": {"single-a", "single-b"},
    "moody": {"moody-a", "moody-b"},
}
"""Who may answer for which role."""


def note_effect(ctx: Context) -> None:
    """What the handler does to the world."""
    write_line(os.environ[EFFECTS], f"{ctx.envelope.id} {ctx._accepted} {os.getpid()}")


def write_line(file: str | Path, line: str) -> None:
    """One line in one write: complete, or not there at all."""
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, f"{line}\n".encode())
    finally:
        os.close(log)


@worker_a.handles
@worker_b.handles
@worker_c.handles
@single_a.handles
@single_b.handles
async def work(task: Dispatch, ctx: Context) -> TaskResult | Then:
    """The brief is `seconds` and, for a line, how many more steps are to follow: "0.1 2"."""
    seconds, _, more = task.brief.partition(" ")
    await anyio.sleep(float(seconds))
    note_effect(ctx)
    left = int(more or 0)
    result = TaskResult.passed(
        what=f"Worked {seconds} s\non {ctx.envelope.id}\n\nfor {ctx.envelope.sender}.\nNo more.",
        why="It was asked for.",
        caution="None of it is real.",
        incomplete=f"{left} more" if left else "",
    )
    return result.then(ctx.envelope.to, f"{seconds} {left - 1}") if left else result


@moody_a.handles
@moody_b.handles
async def sulk(task: Dispatch, ctx: Context) -> TaskResult:
    """The brief is what it does not do: "refuse", or how many attempts fail."""
    if task.brief == "refuse":
        raise Refuse("not today")
    if ctx.attempt <= int(task.brief):
        raise RuntimeError(f"attempt {ctx.attempt} fails")
    note_effect(ctx)
    return TaskResult.passed(what=f"Did it in attempt {ctx.attempt}.")


@planner_a.handles
@planner_b.handles
async def plan(task: Dispatch, ctx: Context) -> TaskResult:
    """The brief is the seconds of a first handoff, and of each of those that follow: two side by
    side that see it, of which one is a line of two, and one that sees both: "3 0.1"."""
    seconds, _, others = task.brief.partition(" ")
    first = await ask_worker(ctx, seconds, key="first")
    await first.result()
    beside = [
        await ask_worker(ctx, others, key="left", after=[first]),
        await ask_worker(ctx, f"{others} 1", key="right", after=[first]),
    ]
    await gather(*beside)
    join = await ask_worker(ctx, others, key="join", after=beside)
    await join.result()
    note_effect(ctx)
    return TaskResult.passed(what="All four answered.")


async def ask_worker(
    ctx: Context, brief: str, *, key: str, after: Sequence[Sent] | None = None
) -> Sent:
    """Ask a worker, and note that it is asked."""
    sent = await ctx.send("worker", brief, key=key, after=after)
    write_line(os.environ[ACKNOWLEDGED], str(sent.handoff_id))
    return sent


@asker_a.handles
async def ask(task: Dispatch, ctx: Context) -> TaskResult:
    """The brief is a question to the lead, who says yes or no."""
    said = await ctx.ask("lead", task.brief, ("yes", "no"), key="question")
    note_effect(ctx)
    return TaskResult.passed(what=f"The lead says {said}.")
