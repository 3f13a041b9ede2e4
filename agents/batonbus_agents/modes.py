"""Which execution mode a work needs: the rules of the specifier and of the planner."""

from batonbus_agents.routes import Mode
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.requirement import Requirement

SIMPLE_REQUIREMENTS = 2
"""Functional requirements that are still done directly; one more is planned."""

SIMPLE_CRITERION = 200
"""Characters of an acceptance criterion that is still simple."""

BIG_FILES = 3
"""Files that one task may declare and be simple; with more it is verified by somebody else."""


def needs_planner(requirement: Requirement) -> bool:
    """Whether a requirement is more than the specifier may do without a planner: three functional
    ones, any non-functional one, or a complex criterion."""
    return (
        len(requirement.functional) > SIMPLE_REQUIREMENTS
        or bool(requirement.non_functional)
        or any(len(text) > SIMPLE_CRITERION for text in requirement.acceptance_criteria)
    )


def choose_mode(plan: Plan) -> Mode:
    """The mode that a plan's tasks ask for: one simple task direct, one big task pipeline, several
    or dependent ones full."""
    if len(plan.tasks) > 1 or any(task.depends_on for task in plan.tasks):
        return "full"
    return "pipeline" if any(len(task.files) > BIG_FILES for task in plan.tasks) else "direct"


def mode_problem(plan: Plan) -> str | None:
    """Why a plan cannot run in the mode that it names, or None. One task may run in any mode,
    several only in full."""
    if plan.mode == "full" or choose_mode(plan) != "full":
        return None
    return (
        f"execution mode {plan.mode} runs one task, this plan has {len(plan.tasks)}: "
        "write `> Execution-Mode: full`"
    )
