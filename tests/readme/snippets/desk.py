from batonbus import Agent, Context
from batonbus_schemas import Dispatch, TaskResult, Then

writer, checker, editor = Agent("writer"), Agent("checker"), Agent("editor")


@writer.handles
async def write(task: Dispatch, ctx: Context) -> Then:
    written = TaskResult.passed(what=f"Wrote: {task.brief}", caution="The year is a guess.")
    return written.then("checker", "Check the facts.")


@checker.handles
async def check(task: Dispatch, ctx: Context) -> Then:
    checked = TaskResult.passed(what="It was in 1969.", why="Two sources say so.")
    return checked.then("editor", "Correct the text.")


@editor.handles
async def edit(task: Dispatch, ctx: Context) -> Then:
    edited = TaskResult.passed(what="Corrected the year.", incomplete="It has no headline.")
    return edited.then("printer", "Print it.")
