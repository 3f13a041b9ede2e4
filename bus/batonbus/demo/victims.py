"""Who is killed in the demo: each role's first agent that works, in the middle of it."""

import os
import signal
from collections.abc import Callable, Mapping

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from batonbus.narration import Narrator, Say
from batonbus.wire.ledger import Stored

KILL_AFTER = 0.4
"""Seconds that an agent has worked when it is killed."""


class Victim(Struct, frozen=True, kw_only=True):
    """Whoever first works as `role` (at `task`, if it is given); `pid` finds its process."""

    role: str
    pid: Callable[[str], int]
    task: str | None = None


class Witness(Narrator):
    """A narrator that kills whom it was told to, once each; `lines` are the works' names."""

    def __init__(
        self,
        say: Say,
        since: float,
        lines: Mapping[str, str],
        tasks: TaskGroup,
        victims: list[Victim],
    ) -> None:
        super().__init__(say, since=since)
        self._lines = lines
        self._tasks = tasks
        self._waiting = list(victims)

    def hear(self, stored: Stored) -> None:
        """One event of the ledger."""
        super().hear(stored)
        envelope = self.delivered.get(stored.subject.handoff_id)
        if stored.event.kind != "accepted" or envelope is None:
            return
        for victim in self._waiting:
            if victim.role == envelope.to and victim.task in {None, envelope.task}:
                self._waiting.remove(victim)
                self._tasks.start_soon(self._kill, stored, victim.pid(stored.event.actor))
                return

    def name(self, stored: Stored) -> str:
        """The line that a handoff belongs to."""
        return self._lines[stored.event.work]

    async def _kill(self, accepted: Stored, pid: int) -> None:
        await anyio.sleep(KILL_AFTER)
        os.kill(pid, signal.SIGKILL)
        self.tell(accepted, f"kill -9 {accepted.event.actor}, in the middle of its work")
