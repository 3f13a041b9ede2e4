"""The assignments that the roles give each other: short, with references instead of text."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from batonbus_agents.routes import Role
from batonbus_agents.workshop import Task
from batonbus_schemas import Dispatch, PreviousResult
from batonbus_schemas.counts import counted

ACTIONS: Mapping[Role, str] = {
    "specifier": "route",
    "planner": "plan",
    "scheduler": "route",
    "builder": "implement",
    "verifier": "verify",
    "committer": "commit",
}
LISTED = 20
"""Paths that a sentence names."""

BRIEFS: Mapping[Role, str] = {
    "builder": "Implement {id}: {title}. Change only its declared files.",
    "verifier": "Verify {id}: {title}. Run its checks, change nothing.",
    "committer": "Commit {id}: {title}.",
}
BOUNDARIES: Mapping[Role, str] = {
    "builder": "Edit only the declared files: {files}. Do not commit.",
    "verifier": "Read and run; edit nothing.",
    "committer": "Commit the declared files only: {files}.",
}

ATTENTION: Mapping[Role, str] = {
    "builder": "The scope, the acceptance criteria, and the cautions of the steps before.",
    "verifier": "Each acceptance criterion and each verify command; what was left incomplete.",
    "committer": "The declared files, and the three conditions of the gate.",
}
SKILLS: Mapping[Role, tuple[str, ...]] = {
    "builder": ("implementation", "testing"),
    "verifier": ("verification", "review"),
    "committer": ("git",),
}


def listed(paths: Sequence[str]) -> str:
    """Paths in a sentence; of very many, the first ones and how many more there are."""
    shown, more = ", ".join(paths[:LISTED]), len(paths) - LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown


def stage_dispatch(task: Task, role: Role) -> Dispatch:
    """What a stage of a task is asked: all that a dispatch should contain, and files by reference
    (seed 001, dispatch payload)."""
    work, name = task.plan.work, task.id
    words = {"id": name, "title": task.title, "files": listed(task.declared) or "none"}
    return Dispatch(
        brief=BRIEFS[role].format(**words),
        title=task.title,
        action=ACTIONS[role],
        execution_mode=task.plan.mode,
        project=task.plan.project,
        language=task.plan.language,
        plan_file=f"works/{work}/PLAN.md",
        task_file=f"works/{work}/{name}.md",
        permission_boundary=BOUNDARIES[role].format(**words),
        expected_evidence=(f"works/{work}/{name}_progress.md",),
        attention=ATTENTION[role],
        context_pack=_context_pack(task),
        skills=SKILLS[role],
        refs=(f"works/{work}/{name}_progress.md",),
    )


def _context_pack(task: Task) -> str:
    """The task among the others, in a line."""
    needs = listed(task.planned.depends_on)
    after = f"after {needs}" if needs else "after no other task"
    tasks, files = len(task.plan.tasks), len(task.declared)
    return f"One of {counted(tasks, 'task')}, {after}; {counted(files, 'declared file')}."


def skipped(task: str, commit: str) -> PreviousResult:
    """A task that an earlier run brought to its commit."""
    return PreviousResult(task=task, status="SKIP", summary=f"committed as {commit}")


def recall_dispatch(task: Task, before: PreviousResult) -> Dispatch:
    """What the committer is asked of a task that an earlier run committed: to find its commit, so
    that its context stands in the windows of those that need it."""
    return replace(stage_dispatch(task, "committer"), previous_results=(before,))


def schedule_dispatch(work: str, brief: str, committed: Mapping[str, str] = {}) -> Dispatch:
    """What the scheduler is asked. `committed` are the tasks that an earlier run brought to their
    commit: they are not done again."""
    return Dispatch(
        brief=brief,
        previous_results=tuple(skipped(*it) for it in sorted(committed.items())),
        action=ACTIONS["scheduler"],
        execution_mode="full",
        plan_file=f"works/{work}/PLAN.md",
    )


def ask_planner(work: str, request: str) -> Dispatch:
    """What the planner is asked."""
    return Dispatch(
        brief=request,
        action=ACTIONS["planner"],
        plan_file=f"works/{work}/PLAN.md",
        refs=(f"works/{work}/Requirement.md",),
    )
