"""The agents of the fault tests. Each effect is one line of a log that outlives the process.

Two of each role, so that what one leaves behind the other takes over.
"""

import os

import anyio

from batonbus import Agent, Context, Refuse, gather
from batonbus_schemas import Dispatch, TaskResult, Then

EFFECTS = "FAULTS_EFFECTS"
"""The environment variable that names the log of effects."""

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
    """One line in one write: complete, or not there at all."""
    line = f"{ctx.envelope.id} {ctx._accepted} {os.getpid()}\n"
    log = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, line.encode())
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
    result = TaskResult.passed(what=f"Worked {seconds} s.")
    left = int(more or 0)
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
    """The brief is the seconds of a first handoff, and of each of two side by side that see it; one
    of these is a line of two: "3 0.1"."""
    seconds, _, others = task.brief.partition(" ")
    first = await ctx.send("worker", seconds, key="first")
    await first.result()
    beside = [
        await ctx.send("worker", others, key="left", after=[first]),
        await ctx.send("worker", f"{others} 1", key="right", after=[first]),
    ]
    await gather(*beside)
    note_effect(ctx)
    return TaskResult.passed(what="All three answered.")


@asker_a.handles
async def ask(task: Dispatch, ctx: Context) -> TaskResult:
    """The brief is a question to the lead, who says yes or no."""
    said = await ctx.ask("lead", task.brief, ("yes", "no"), key="question")
    note_effect(ctx)
    return TaskResult.passed(what=f"The lead says {said}.")
