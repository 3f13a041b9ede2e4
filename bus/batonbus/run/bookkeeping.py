"""What an agent's fleet records itself: a Checkpoint must agree with it, and is written into it."""

from msgspec.structs import replace

from batonbus.rules.compaction import (
    CheckpointRequest,
    Evidence,
    Handled,
    phase_of,
    refusals,
)
from batonbus.rules.errors import CheckpointRefusedError
from batonbus.run.agent import Agent
from batonbus.run.hooks import ask_hook
from batonbus_schemas import Checkpoint
from batonbus_schemas.envelope import ADHOC


class Books:
    """The records of one agent's fleet, as its `@agent.checkpoints` tells them. What belongs to no
    work has none."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def compare(self, draft: Checkpoint, last: Handled | None) -> tuple[Checkpoint, Evidence]:
        """The draft, with the next step as the records know it, and what they say. Raises
        CheckpointRefusedError where it does not agree, CompactionError."""
        evidence = await self._ask("compare", draft, last)
        if evidence.next:
            draft = replace(draft, next=evidence.next)
        evidence = replace(evidence, phase=evidence.phase or phase_of(self._agent.card.role))
        _check(draft, evidence)
        return draft, evidence

    async def write(self, checkpoint: Checkpoint, last: Handled | None, evidence: Evidence) -> None:
        """Write one that was compared. Raises CheckpointRefusedError where what is read back is no
        entry of it, CompactionError."""
        if self._agent.keep is None or checkpoint.work == ADHOC:
            return
        entry = (await self._ask("write", checkpoint, last)).entry
        if entry is None:
            raise CheckpointRefusedError(["execution log: it has no entry of this Checkpoint"])
        _check(checkpoint, replace(evidence, entry=entry))

    async def _ask(self, step: str, checkpoint: Checkpoint, last: Handled | None) -> Evidence:
        if self._agent.keep is None or checkpoint.work == ADHOC:
            return Evidence()
        request = CheckpointRequest(
            step="compare" if step == "compare" else "write", checkpoint=checkpoint, last=last
        )
        return await ask_hook(self._agent.keep, request, Evidence, f"Checkpoint: its {step}")


def _check(checkpoint: Checkpoint, evidence: Evidence) -> None:
    if refused := refusals(checkpoint, evidence):
        raise CheckpointRefusedError(refused)
