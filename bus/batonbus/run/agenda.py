"""What must be looked at, and when."""

import heapq
from uuid import UUID

SPARE = 1_000
"""Replaced moments that are kept until their time comes, beside as many as there are valid ones."""


class Agenda:
    """One moment for each handoff: a later word about it replaces the earlier one."""

    def __init__(self) -> None:
        self._moments: dict[UUID, float] = {}
        self._heap: list[tuple[float, UUID]] = []

    def __len__(self) -> int:
        """How many moments are stored, replaced ones among them."""
        return len(self._heap)

    def put(self, handoff_id: UUID, moment: float | None) -> None:
        """Look at this handoff at that moment; None: not at all."""
        if moment is None:
            self._moments.pop(handoff_id, None)
        elif self._moments.get(handoff_id) != moment:
            self._moments[handoff_id] = moment
            heapq.heappush(self._heap, (moment, handoff_id))
        if len(self._heap) > 2 * len(self._moments) + SPARE:
            self._heap = [(moment, it) for it, moment in self._moments.items()]
            heapq.heapify(self._heap)

    def take(self, now: float) -> list[UUID]:
        """The handoffs whose moment has come, earliest first; they are off the agenda."""
        due: list[UUID] = []
        while self._heap and self._heap[0][0] <= now:
            moment, handoff_id = heapq.heappop(self._heap)
            if self._moments.get(handoff_id) == moment:
                del self._moments[handoff_id]
                due.append(handoff_id)
        return due
