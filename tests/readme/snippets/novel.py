from batonbus import Agent, Context, ResetDone, ResetRequest
from batonbus_schemas import CompactionHandoff, ContextUsage, Dispatch, TaskResult

novelist = Agent("novelist")
session: list[str] = []


@novelist.handles
async def write(task: Dispatch, ctx: Context) -> TaskResult:
    session.append(task.brief)
    level = await ctx.usage(percent=30 * len(session))
    return TaskResult.passed(what=f"{task.brief} The context is {level}.")


@novelist.resets
async def reset(request: ResetRequest) -> ResetDone:
    if request.step == "reset":
        session.clear()
        return ResetDone(usage=ContextUsage(source="measured", percent=20))
    # A model would write this.
    handoff = CompactionHandoff(
        active_project="the novel",
        active_task=f"chapter {len(session) + 1}",
        my_role="novelist",
        current_phase="implement",
        completed=" ".join(session),
        not_completed="the ending",
        evidence_paths="novel.md",
        known_blockers="None",
        next_safe_action="Write the next chapter.",
        do_not_use="earlier drafts",
    )
    return ResetDone(handoff=handoff)
