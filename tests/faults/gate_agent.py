"""A builder whose usage climbs, and whose process is killed with -9 once at each step of a reset.

`python gate_agent.py`: FAULTS_SESSION names the folder where each crash leaves a file, and where
the session is kept: its usage, and a log of what was asked of it. Both outlive the process, as a
session of a program does.
"""

import os
import signal
from pathlib import Path

import anyio

from batonbus import Agent, Context, ResetDone, ResetRequest
from batonbus.run.bus import serve
from batonbus.wire.checkpoints import Checkpoints
from batonbus_schemas import CompactionHandoff, ContextUsage, Dispatch, ResetJournal, TaskResult

SESSION = "FAULTS_SESSION"
FOLDER = Path(os.environ.get(SESSION, "."))
GROWTH = 4.0
FRESH = 20.0

agent = Agent("builder", id="builder-1")


def note(line: str) -> None:
    """One line of the session's log, in one write."""
    log = os.open(FOLDER / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, f"{line}\n".encode())
    finally:
        os.close(log)


def percent() -> float:
    file = FOLDER / "usage"
    return float(file.read_text()) if file.exists() else FRESH


@agent.handles
async def work(task: Dispatch, ctx: Context) -> TaskResult:
    """The brief is a number. Each piece of work makes the context fuller."""
    (FOLDER / "usage").write_text(str(percent() + GROWTH))
    note(f"work {task.brief} {await ctx.usage(percent=percent())}")
    return TaskResult.passed(what=task.brief)


@agent.resets
async def reset(request: ResetRequest) -> ResetDone:
    note(f"{request.step} {request.checkpoint is not None} {percent():g}")
    if request.step == "handoff":
        fields = dict.fromkeys(CompactionHandoff.__struct_fields__, "said")
        return ResetDone(handoff=CompactionHandoff(**fields))
    (FOLDER / "usage").write_text(str(FRESH))
    return ResetDone(usage=ContextUsage(source="measured", percent=FRESH))


def crash_once(point: str) -> None:
    """Die, unless a process before this one did so at this point."""
    try:
        (FOLDER / point.replace(" ", "-")).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def set_crash_points() -> None:
    """Die once before, and once after each step is stored."""
    put = Checkpoints.put

    async def put_or_die(self: Checkpoints, journal: ResetJournal) -> None:
        crash_once(f"before {journal.step}")
        await put(self, journal)
        note(f"stored {journal.step}")
        crash_once(f"after {journal.step}")

    Checkpoints.put = put_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    set_crash_points()
    anyio.run(lambda: serve(agent, os.environ["BATONBUS_URL"], fleet=os.environ["BATONBUS_FLEET"]))
