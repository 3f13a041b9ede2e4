"""When a task may start: its dependencies, and whoever writes the same files before it."""

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Literal

from msgspec import Struct

from batonbus_agents.works.plan_tasks import PlanTask


class Slot(Struct, frozen=True):
    """What a task waits for: `needs` gives it context, `behind` only keeps files apart."""

    needs: tuple[str, ...]
    behind: tuple[str, ...]


def make_schedule(tasks: Sequence[PlanTask]) -> dict[str, Slot]:
    """What each task waits for, in an order in which all can be done. Tasks that declare the same
    file run one after the other, in that order. The plan has no cycle (it was refused otherwise).
    """
    by_id = {task.id: task for task in sorted(tasks, key=lambda task: task.id)}
    graph = {task.id: set(task.depends_on) for task in by_id.values()}
    order = list(TopologicalSorter(graph).static_order())
    schedule: dict[str, Slot] = {}
    for place, task in enumerate(order):
        files = {entry.path for entry in by_id[task].files}
        behind = [
            earlier
            for earlier in order[:place]
            if files & {entry.path for entry in by_id[earlier].files}
        ]
        schedule[task] = Slot(by_id[task].depends_on, tuple(behind))
    return schedule


class Outcome(Struct, frozen=True, kw_only=True):
    """How a task ended: committed, FAILED after its attempts, or BLOCKED by another's failure."""

    task: str
    status: Literal["PASS", "FAILED", "BLOCKED"]
    reason: str = ""
    commit: str = ""


def blocked_reason(slot: Slot, outcomes: Mapping[str, Outcome]) -> str | None:
    """Why a task will not start, or None. A failure halts the pipeline for everybody."""
    for task in (*slot.needs, *slot.behind):
        outcome = outcomes.get(task)
        if outcome is not None and outcome.status != "PASS":
            return f"{task} is {outcome.status}"
    failed = [it.task for it in outcomes.values() if it.status == "FAILED"]
    return f"the pipeline is halted: {', '.join(sorted(failed))} FAILED" if failed else None
