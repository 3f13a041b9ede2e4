"""Who is killed in the demo: each role's first agent that works, in the middle of it."""

import os
import signal
from collections.abc import Callable
from uuid import UUID

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from batonbus.narration import Narrator, Say
from batonbus.wire.ledger import Stored
from batonbus_schemas import Delivery, decode

KILL_AFTER = 0.4
"""Seconds that an agent has worked when it is killed."""


class Victim(Struct, frozen=True, kw_only=True):
    """Whoever first works as `role` (at `task`, if it is given); `pid` finds its process."""

    role: str
    pid: Callable[[str], int]
    task: str | None = None


class Witness(Narrator):
    """A narrator that kills whom it was told to, once each."""

    def __init__(self, say: Say, tasks: TaskGroup, victims: list[Victim]) -> None:
        super().__init__(say)
        self._say_death = say
        self._tasks = tasks
        self._waiting = list(victims)
        self._at: dict[UUID, tuple[str, str | None]] = {}

    def hear(self, stored: Stored) -> None:
        """One event of the ledger."""
        super().hear(stored)
        handoff_id = stored.subject.handoff_id
        if stored.event.kind == "delivered":
            self._at[handoff_id] = (stored.event.to, decode(stored.payload, Delivery).envelope.task)
        elif stored.event.kind == "accepted" and handoff_id in self._at:
            self._choose(stored.event.actor, *self._at[handoff_id])

    def _choose(self, actor: str, role: str, task: str | None) -> None:
        for victim in self._waiting:
            if victim.role == role and victim.task in {None, task}:
                self._waiting.remove(victim)
                self._tasks.start_soon(self._kill, actor, victim.pid(actor))
                return

    async def _kill(self, actor: str, pid: int) -> None:
        await anyio.sleep(KILL_AFTER)
        os.kill(pid, signal.SIGKILL)
        self._say_death(f"{'':9}kill -9 {actor}, in the middle of its work")
