from batonbus import Agent, Context
from batonbus_schemas import Dispatch, TaskResult

publisher = Agent("publisher")


@publisher.handles
async def publish(task: Dispatch, ctx: Context) -> TaskResult:
    answer = await ctx.ask("lead", f"Publish {task.brief}?", options=("now", "never"))
    return TaskResult.passed(what=f"The lead says {answer}.")
