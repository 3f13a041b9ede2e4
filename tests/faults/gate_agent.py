"""A builder whose usage climbs, and whose process is killed with -9 once at each step of a reset:
of one between two handoffs, and of one that an emergency forces in the middle of a handler.

`python gate_agent.py`: FAULTS_SESSION names the folder where each crash leaves a file, and where
the session is kept: its usage, and a log of what was asked of it. Both outlive the process, as a
session of a program does.
"""

import os
import signal
from pathlib import Path
from uuid import UUID

import anyio

from batonbus import (
    Agent,
    CheckpointRequest,
    Context,
    ContextFullError,
    Entry,
    Evidence,
    ResetDone,
    ResetRequest,
)
from batonbus.run.bus import serve
from batonbus.wire.checkpoints import Checkpoints
from batonbus.wire.ledger import Draft, Ledger
from batonbus_schemas import CompactionHandoff, ContextUsage, Dispatch, ResetJournal, TaskResult

SESSION = "FAULTS_SESSION"
FOLDER = Path(os.environ.get(SESSION, "."))
GROWTH = 4.0
FRESH = 20.0
FULL = 85.0
EVERY = 15
"""Every so many handoffs one fills the context up at once, the first time that it is worked on."""

agent = Agent("builder", id="builder-1")
WAITING = set[UUID]()
"""The handoff whose verdict waits for a reset in this process."""


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
    if int(task.brief) % EVERY == EVERY - 1 and is_first(f"full-{task.brief}"):
        await fill_up(ctx)
    return TaskResult.passed(what=task.brief)


async def fill_up(ctx: Context) -> None:
    """From here on the handler may do nothing more, and its verdict is kept back."""
    (FOLDER / "usage").write_text(str(FULL))
    WAITING.add(ctx.envelope.id)
    level = await ctx.usage(percent=FULL)
    try:
        ctx.check_command()
        note("slipped command")
    except ContextFullError:
        pass
    try:
        await ctx.send("other", "x")
        note("slipped handoff")
    except ContextFullError:
        note(f"{level} {ctx.envelope.id}")


@agent.resets
async def reset(request: ResetRequest) -> ResetDone:
    note(f"{request.step} {request.checkpoint is not None} {percent():g}")
    if request.step == "handoff":
        fields = dict.fromkeys(CompactionHandoff.__struct_fields__, "said")
        return ResetDone(handoff=CompactionHandoff(**fields))
    (FOLDER / "usage").write_text(str(FRESH))
    return ResetDone(usage=ContextUsage(source="measured", percent=FRESH))


@agent.checkpoints
async def keep(request: CheckpointRequest) -> Evidence:
    """The log of this fleet has one line for each Checkpoint; it is read back."""
    if request.step == "compare":
        return Evidence()
    log = FOLDER / "log"
    line = f"entry {request.checkpoint.written.isoformat()}"
    if line not in log.read_text().splitlines():
        note(line)
    crash_once("behind-entry")
    return Evidence(entry=Entry(phase="implement", did="d", checks="c", next="n", context="x"))


def is_first(what: str) -> bool:
    """Whether no process did this before."""
    try:
        (FOLDER / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def crash_once(point: str) -> None:
    """Die, unless a process before this one did so at this point."""
    if is_first(f"mid-{point}" if WAITING else point):
        os.kill(os.getpid(), signal.SIGKILL)


def set_crash_points() -> None:
    """Die once before, and once after each step is stored; note what is settled."""
    put, append = Checkpoints.put, Ledger.append

    async def noted_append(self: Ledger, draft: Draft, *, tail: int) -> int:
        if draft.subject.kind == "settled":
            note(f"settled {draft.subject.handoff_id}")
        return await append(self, draft, tail=tail)

    async def put_or_die(self: Checkpoints, journal: ResetJournal) -> None:
        crash_once(f"before-{journal.step}")
        await put(self, journal)
        note(f"stored {journal.step}")
        crash_once(f"after-{journal.step}")
        if journal.step == "done":
            WAITING.clear()

    Checkpoints.put = put_or_die  # type: ignore[method-assign]
    Ledger.append = noted_append  # type: ignore[method-assign]


if __name__ == "__main__":
    set_crash_points()
    anyio.run(lambda: serve(agent, os.environ["BATONBUS_URL"], fleet=os.environ["BATONBUS_FLEET"]))
