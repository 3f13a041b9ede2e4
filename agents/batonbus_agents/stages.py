"""What the three stages of a task share: reading it, and handing its result on by the route."""

from batonbus import Context, Refuse
from batonbus_agents.dispatches import stage_dispatch
from batonbus_agents.routes import Role, route
from batonbus_agents.workshop import Task, Workshop
from batonbus_schemas import Dispatch, TaskResult, Then


def task_of(workshop: Workshop, ctx: Context) -> Task:
    """The task that a handoff is about. Raises Refuse where it names none, or an unknown one."""
    if ctx.envelope.task is None:
        raise Refuse("a stage needs a task: send it with task=TASK-NN")
    return workshop.task(ctx.envelope.work, ctx.envelope.task)


def hand_on(
    result: TaskResult, task: Task, role: Role, body: Dispatch, attempt: int
) -> TaskResult | Then:
    """The result, to whoever is next: the waiter in full mode, the next stage in the others."""
    following = route(body.execution_mode, role, result.status, attempt)
    if following.to == "reply":
        return result
    return result.then(following.to, stage_dispatch(task, following.to), attempt=following.attempt)
