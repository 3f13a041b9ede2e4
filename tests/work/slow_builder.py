"""A builder for processes that are killed: it writes its file in two halves, slowly."""

import anyio

from batonbus_agents.runtimes import Assignment
from batonbus_schemas import TaskResult

PAUSE = 0.25


async def build(assignment: Assignment) -> TaskResult:
    """Write the task's one file, `<work>-<task>.txt`."""
    name = f"{assignment.work}-{assignment.task}.txt"
    (assignment.cwd / name).write_text("half")
    await anyio.sleep(PAUSE)
    (assignment.cwd / name).write_text(f"{assignment.work} {assignment.task}\n")
    return TaskResult.passed(f"Wrote {name}.", why="Asked.", caution=f"{name} is new.")
