"""The ledger's events as lines for a person who watches."""

import time
from collections.abc import Callable
from uuid import UUID

from batonbus.wire.ledger import Stored

Say = Callable[[str], None]


class Narrator:
    """Says each event as it happens, but the window manager's deliveries."""

    def __init__(self, say: Say, *, work: str | None = None) -> None:
        self._say = say
        self._work = work
        self._started = time.monotonic()
        self._to: dict[UUID, str] = {}
        self._task: dict[UUID, str] = {}

    def addressee(self, stored: Stored) -> str:
        """The role or agent that the event's handoff was delivered to."""
        return self._to.get(stored.subject.handoff_id, "")

    def hear(self, stored: Stored) -> None:
        """One event of the ledger."""
        event, handoff_id = stored.event, stored.subject.handoff_id
        if self._work is not None and event.work != self._work:
            return
        if event.kind in {"sent", "delivered"}:
            self._to[handoff_id] = event.to
        if event.kind == "delivered":
            return
        passed = time.monotonic() - self._started
        lease = f" (attempt {event.attempt}, lease {event.lease})" if (event.lease or 1) > 1 else ""
        to = self._to.get(handoff_id, "")
        self._say(
            f"{passed:5.1f} s  {str(handoff_id)[:8]}  {event.actor:<16} {event.kind} {to}{lease}"
        )
