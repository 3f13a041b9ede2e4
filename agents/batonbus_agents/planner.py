"""The planner: a requirement becomes a plan and its tasks, in the mode that they ask for."""

from functools import partial
from pathlib import Path

from batonbus import Agent, Context
from batonbus_agents.dispatches import schedule_dispatch, stage_dispatch
from batonbus_agents.drafting import adopt, draft
from batonbus_agents.modes import choose_mode, mode_problem
from batonbus_agents.routes import Mode, Role
from batonbus_agents.works.folder import WorkFolder
from batonbus_agents.works.names import task_file
from batonbus_agents.works.plan import Plan
from batonbus_agents.workshop import Workshop
from batonbus_schemas import Dispatch, TaskResult, Then

ROLE: Role = "planner"
PLAN = "PLAN.md"

WANTED = """\
- `PLAN.md`: `# {work}: title`, the lines `> Created:`, `> Requirement:`, `> Execution-Mode:`,
  `> Project:`, `> Tech Stack:`, `> Language:`, `> Status: PLANNED`, `## Goal`, `## Tasks` with
  `### TASK-01: title` and `- **Depends on**: …`, `- **Scope**: …`, `- **Files**: …`.
- `TASK-NN.md` for each task: `## Scope`, `## Files` (a table Path, Action, Description),
  `## Acceptance Criteria`, `## Verify` (fenced commands).
- One simple task: direct. One big task: pipeline. Several, or dependent ones: full."""


def make_planner(workshop: Workshop, *, id: str | None = None) -> Agent:
    """The planner's agent."""
    agent = Agent(ROLE, id=id)

    @agent.handles
    async def plan(body: Dispatch, ctx: Context) -> TaskResult | Then:
        work = ctx.envelope.work
        result, folder = await draft(
            workshop, ROLE, ctx, WANTED.format(work=work), partial(plan_problems, mode=None)
        )
        if result.status == "FAIL":
            return result
        adopt(folder, workshop.folder(work).path, plan_files(folder))
        _, found = workshop.read(work)
        if found.mode == "full":
            return result.then("scheduler", schedule_dispatch(work, found.goal or found.title))
        task = workshop.task(work, found.tasks[0].id)
        return result.then("builder", stage_dispatch(task, "builder"), task=task.id)

    return agent


def plan_files(folder: Path) -> list[str]:
    """The plan and the task files that lie in a folder."""
    specs = [
        it.name
        for it in folder.iterdir()
        if (found := task_file(it.name, folder.name)) is not None and found.kind == "spec"
    ]
    return [PLAN, *sorted(specs)]


def plan_problems(folder: Path, mode: Mode | None) -> list[str]:
    """Everything that is wrong with the plan in a folder; `mode` is the one that it must have, None
    the one that its tasks ask for."""
    reading = WorkFolder(folder).read()
    found = [str(it) for it in reading.problems if not it.warning]
    plan = reading.value.plan
    if plan is None or found:
        return found
    if not plan.tasks:
        return [f"{PLAN} has no tasks"]
    problem = _mode_problem(plan, mode)
    missing = [it.id for it in plan.tasks if reading.value.task(it.id).spec is None]
    return [*([problem] if problem else []), *(f"{task}.md is not there" for task in missing)]


def _mode_problem(plan: Plan, mode: Mode | None) -> str | None:
    if mode is not None and (plan.mode != mode or len(plan.tasks) > 1):
        return (
            f"{PLAN}: what needs no planner is one task in execution mode {mode}, "
            f"and this is {len(plan.tasks)} in {plan.mode}"
        )
    wanted = mode or choose_mode(plan)
    if problem := mode_problem(plan):
        return problem
    if plan.mode != wanted:
        return f"{PLAN}: its tasks ask for execution mode {wanted}, it says {plan.mode}"
    return None
