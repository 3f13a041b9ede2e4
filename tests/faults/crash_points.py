"""Run a program that kills itself with -9 at named steps, once at each.

`python crash_points.py "before accepted,after settled" -m batonbus agent …`, or with a script in
place of `-m MODULE`. A step is `before KIND` or `after KIND`: just before an event of that kind is
written, or when it is stored and nothing else is done. FAULTS_CRASHES names the folder in which
each crash leaves a file.
"""

import os
import runpy
import signal
import sys
from pathlib import Path

from batonbus.wire.ledger import Draft, Ledger

CRASHES = "FAULTS_CRASHES"


def crash_once(point: str) -> None:
    """Die, unless a process before this one did so at this point."""
    mark = Path(os.environ[CRASHES]) / point.replace(" ", "-")
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def set_crash_points(points: set[str]) -> None:
    """Make every write of this process a place where it may die."""
    append = Ledger.append

    async def append_or_die(self: Ledger, draft: Draft, *, tail: int) -> int:
        kind = draft.subject.kind
        if f"before {kind}" in points:
            crash_once(f"before {kind}")
        sequence = await append(self, draft, tail=tail)
        if f"after {kind}" in points:
            crash_once(f"after {kind}")
        return sequence

    Ledger.append = append_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    points, *command = sys.argv[1:]
    set_crash_points(set(points.split(",")))
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
