from batonbus import Agent, Context, gather
from batonbus_schemas import Dispatch, TaskResult

chief = Agent("chief")


@chief.handles
async def run_story(task: Dispatch, ctx: Context) -> TaskResult:
    facts = await ctx.send("researcher", f"Facts about {task.brief}", key="facts")
    await facts.result()
    # Two at a time, both with the researcher's context before them.
    parts = [
        await ctx.send("writer", "The first half", key="first", after=[facts]),
        await ctx.send("writer", "The second half", key="second", after=[facts]),
    ]
    texts = await gather(*parts)
    return TaskResult.passed(what="\n".join(text.summary for text in texts))
