"""What the three stages of a task share: their agent, signing a result, and handing it on."""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from batonbus import Agent, Context, Refuse
from batonbus_agents.checks import OUTPUT_BUDGET
from batonbus_agents.dispatches import stage_dispatch
from batonbus_agents.excerpt import shortened
from batonbus_agents.routes import Role, route
from batonbus_agents.works.words import is_nothing
from batonbus_agents.workshop import Task, Workshop, now
from batonbus_schemas import Check, ContextHandoff, Dispatch, FileChange, TaskResult, Then
from batonbus_schemas.counts import counted

FIELD_LIMIT = 4_000
"""Bytes of JSON of each field of a context handoff: several of them have to find room in one
window."""

NOTES_LIMIT = 1_000
"""Bytes of JSON of a summary, and of the notes."""

FILES_LIMIT = 8_000
"""Bytes of JSON of the files that a result lists."""

UNSAID = "It was not said what was done."
"""In the place of a `what` such as `None`: to those who read a result file, that is no context."""


Do = Callable[[Task, Dispatch, Context], Awaitable[TaskResult]]
"""The work of a stage on one task."""


def stage_agent(
    workshop: Workshop, role: Role, do: Do, *, id: str | None = None, slots: int = 1
) -> Agent:
    """The agent of a stage. Its result goes to whoever is next: the waiter in full mode, the next
    stage in the others. It refuses what names no task, or an unknown one."""
    agent = Agent(role, id=id, slots=slots)

    @agent.handles
    async def handle(body: Dispatch, ctx: Context) -> TaskResult | Then:
        if ctx.envelope.task is None:
            raise Refuse("a stage needs a task: send it with task=TASK-NN")
        task = workshop.task(ctx.envelope.work, ctx.envelope.task)
        result = await do(task, body, ctx)
        following = route(body.execution_mode, role, result.status, ctx.attempt)
        if following.to == "reply":
            return result
        dispatch = stage_dispatch(task, following.to)
        return result.then(following.to, dispatch, attempt=following.attempt)

    return agent


def signed(result: TaskResult, task: Task, role: Role, started: datetime) -> TaskResult:
    """The result with whose it is and when it was made, as a message can hold it."""
    return fitted(
        replace(
            result, work=task.plan.work, task=task.id, agent=role, started=started, finished=now()
        )
    )


def fitted(result: TaskResult) -> TaskResult:
    """The result, with what is too long for a message cut in the middle."""
    context, files = result.context_handoff, _fitted_files(result.files_changed)
    unlisted = len(result.files_changed) - len(files)
    notes = [
        result.notes,
        f"{counted(unlisted, 'more file')} not listed here." if unlisted else "",
    ]
    return replace(
        result,
        summary=shortened(result.summary, NOTES_LIMIT),
        notes="\n".join(shortened(it, NOTES_LIMIT) for it in notes if it),
        context_handoff=None if context is None else _fitted_context(context),
        verification=_fitted_checks(result.verification),
        files_changed=files,
        ref_cache={},
    )


def _fitted_context(context: ContextHandoff) -> ContextHandoff:
    what = UNSAID if is_nothing(context.what) else context.what
    return ContextHandoff(
        what=shortened(what, FIELD_LIMIT),
        why=shortened(context.why, FIELD_LIMIT),
        caution=shortened(context.caution, FIELD_LIMIT),
        incomplete=shortened(context.incomplete, FIELD_LIMIT),
    )


def _fitted_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    share = OUTPUT_BUDGET // max(len(checks), 1)
    return tuple(replace(it, output=shortened(it.output, share)) for it in checks)


def _fitted_files(changes: Sequence[FileChange]) -> tuple[FileChange, ...]:
    sizes = accumulate(len(msgspec.json.encode(it)) for it in changes)
    return tuple(changes[: bisect_right(list(sizes), FILES_LIMIT)])
