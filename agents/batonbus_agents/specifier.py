"""The specifier: a request in plain text becomes a requirement, and a small one a plan at once."""

from pathlib import Path

from batonbus import Agent, Context
from batonbus_agents.dispatches import ask_planner, stage_dispatch
from batonbus_agents.drafting import adopt, draft
from batonbus_agents.modes import needs_planner
from batonbus_agents.planner import plan_files, plan_problems
from batonbus_agents.routes import Role
from batonbus_agents.works.problems import WorksFileError
from batonbus_agents.works.requirement import Requirement, parse_requirement
from batonbus_agents.workshop import Workshop
from batonbus_schemas import Dispatch, TaskResult, Then

ROLE: Role = "specifier"
REQUIREMENT = "Requirement.md"

WANTED = """\
- `Requirement.md`: `# Requirement — {work}`, `## Original Request` (the request, quoted),
  `## Functional Requirements` (`- FR-01: …`), `## Non-Functional Requirements` (`- NFR-01: …`),
  `## Acceptance Criteria` (`- [ ] …`).
- With one or two functional requirements, no non-functional one and simple criteria, also
  `PLAN.md` and one `TASK-01.md` in execution mode direct."""


def make_specifier(workshop: Workshop, *, id: str | None = None) -> Agent:
    """The specifier's agent."""
    agent = Agent(ROLE, id=id)

    @agent.handles
    async def specify(body: Dispatch, ctx: Context) -> TaskResult | Then:
        work = ctx.envelope.work
        wanted = WANTED.format(work=work)
        result, folder = await draft(workshop, ROLE, ctx, wanted, _problems)
        if result.status == "FAIL":
            return result
        target = workshop.folder(work).path
        adopt(folder, target, [REQUIREMENT])
        if needs_planner(_read(folder)):
            return result.then("planner", ask_planner(work, body.brief))
        adopt(folder, target, plan_files(folder))
        _, plan = workshop.read(work)
        task = workshop.task(work, plan.tasks[0].id)
        return result.then("builder", stage_dispatch(task, "builder"), task=task.id)

    return agent


def _read(folder: Path) -> Requirement:
    return parse_requirement((folder / REQUIREMENT).read_text(encoding="utf-8"))


def _problems(folder: Path) -> list[str]:
    if not (folder / REQUIREMENT).is_file():
        return [f"{REQUIREMENT} is not there"]
    try:
        requirement = _read(folder)
    except WorksFileError as error:
        return [str(it) for it in error.problems]
    if not requirement.functional:
        return [f"{REQUIREMENT} names no functional requirement"]
    return [] if needs_planner(requirement) else plan_problems(folder, mode="direct")
