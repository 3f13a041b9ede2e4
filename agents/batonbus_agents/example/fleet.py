"""The five agents. A line goes coder → reviewer → coder → tester → closer by `then`; the coder asks
the researcher on the way by `ctx.send`; the closer runs a diamond of tasks by `ctx.send`."""

import anyio

from batonbus import Agent, Context, gather
from batonbus_schemas import Dispatch, HandoffV1, TaskResult, Then

THINKING = 0.15
"""Seconds that a step takes here instead of a model's minutes."""

TESTING = 1.2
"""Seconds that the tests take: long enough to be killed in the middle."""

researcher = Agent("researcher", id="researcher", slots=4)
coder = Agent("coder", id="worker-code", capabilities=("terminal", "file", "python"), slots=2)
reviewer = Agent("reviewer", id="reviewer", slots=2)
tester = Agent("tester", id="tester")
relief = Agent("tester", id="tester-relief")
closer = Agent("closer", id="closer", slots=4)


@researcher.handles
async def research(task: Dispatch, ctx: Context) -> TaskResult:
    """Answer a question of fact."""
    await anyio.sleep(THINKING)
    return TaskResult.passed(
        what=f"Looked into: {first_line(task.brief)}\nThe spread is 0.04 % of the price.\n"
        "It belongs in the commission.\nSources: brent_2024.csv, columns bid and ask.",
        why="Without the spread the backtest overstates the return by a fifth.",
        caution="Only the data of 2024 was looked at.",
    )


@coder.handles
async def code(task: HandoffV1 | Dispatch, ctx: Context) -> TaskResult | Then:
    """Write the code that a contract asks for, or mend what a review found."""
    await anyio.sleep(THINKING)
    if isinstance(task, HandoffV1):
        bundle = task.contract.bundle
        asked = [await ctx.send("researcher", question) for question in bundle.open_questions]
        answers = await gather(*asked)
        return TaskResult.passed(
            what="Wrote ema.py: a crossover of EMA(3,10).\n"
            "Wrote test_ema.py with seven cases.\nThe commission counts the spread.",
            why="\n".join(it.summary for it in answers),
            caution="; ".join(bundle.constraints.must_not_change),
            incomplete="The docstring has no example yet.",
        ).then("reviewer", "Review ema.py against the acceptance criteria.")
    mended = TaskResult.passed(
        what=f"Did: {first_line(task.brief)}\nThe docstring shows a run on brent_2024.csv.",
        why="The review asked for it.",
    )
    return mended if ctx.envelope.task else mended.then("tester", "Run test_ema.py.")


@reviewer.handles
async def review(task: Dispatch, ctx: Context) -> TaskResult | Then:
    """Read what came before, and send it back where something is missing."""
    await anyio.sleep(THINKING)
    seen = ", ".join(f"{it.from_} {it.level.value}" for it in ctx.window)
    found = TaskResult.passed(
        what=f"Read the change with the context of {seen or 'nobody'}.\n"
        "One finding: the docstring has no example.",
        why="The third acceptance criterion asks for documentation in the docstring.",
        caution="The signature of run_single_pass() is unchanged, keep it so.",
    )
    return found if ctx.envelope.task else found.then("coder", "Add an example to the docstring.")


@tester.handles
@relief.handles
async def test(task: Dispatch, ctx: Context) -> TaskResult | Then:
    """Run the tests, which takes a while."""
    await anyio.sleep(TESTING)
    tested = TaskResult.passed(
        what="Ran seven tests: all pass.\nThe backtest on Brent returns 4.1 %.",
        why="The return is above 0 %, as the criteria ask.",
        incomplete="The backtest covers one year.",
    )
    return tested if ctx.envelope.task else tested.then("closer", "Close the work.")


@closer.handles
async def close(task: Dispatch, ctx: Context) -> TaskResult:
    """Sum a line up, or run a diamond of tasks: one, two beside each other, one after both."""
    await anyio.sleep(THINKING)
    if ctx.envelope.work == "adhoc":
        return TaskResult.passed(what="Closed: the strategy is in, reviewed and tested.")
    first = await ctx.send("researcher", "Which spread do the data show?", task="TASK-01")
    await first.result()
    beside = [
        await ctx.send("coder", "Count the spread in.", task="TASK-02", after=[first]),
        await ctx.send("tester", "Test the commission by hand.", task="TASK-03", after=[first]),
    ]
    await gather(*beside)
    last = await ctx.send("reviewer", "Review both.", task="TASK-04", after=beside)
    verdict = await last.result()
    return TaskResult.passed(what=f"Four tasks, one diamond.\n{verdict.summary}")


def first_line(text: str) -> str:
    """A text's first line."""
    return text.strip().splitlines()[0]
