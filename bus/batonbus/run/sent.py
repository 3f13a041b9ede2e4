"""A handoff that was sent: its receipt, its result."""

from uuid import UUID

import anyio

from batonbus.rules.errors import Bounced, NoAnswerError
from batonbus.run.client import Client
from batonbus.run.lines import Line
from batonbus_schemas import Receipt, TaskResult
from batonbus_schemas.counts import counted

RECEIPT_MARGIN = 5.0
"""Seconds that an answer may be on its way after the keeper's deadline."""


class Sent:
    """What `send` gives: two clocks, the receipt (within 30 s) and the result (maybe hours)."""

    def __init__(self, client: Client, line: Line) -> None:
        self._client = client
        self._line = line

    @property
    def handoff_id(self) -> UUID:
        """The id of the handoff that was sent."""
        return self._line.root

    @property
    def settled_id(self) -> UUID:
        """The handoff that gave the result: the last one of its line, for `after`.
        Raises RuntimeError before `result`, Bounced where there is none."""
        if not self._line.ended:
            raise RuntimeError(f"handoff {self.handoff_id} has no result yet: await it first")
        self._line.result()
        return self._line.current

    @property
    def attempt(self) -> int:
        """The attempt that the line is at: what its receivers used up so far."""
        return self._line.attempt

    async def receipt(self) -> Receipt:
        """The first answer: accepted, held, refused or overdue; where the line is further already,
        what was said last. Raises NoAnswerError where the bus
        itself does not answer in time."""
        patience = self._client.settings.receipt_timeout + RECEIPT_MARGIN
        with anyio.move_on_after(patience):
            while self._line.first is None:
                await self._line.wait_change()
        if self._line.first is None:
            raise NoAnswerError(
                f"no answer to handoff {self.handoff_id} within {patience:g} s, though the bus "
                "promises one: is a receipt keeper running? See `batonbus doctor`"
            )
        return self._line.first

    async def result(self) -> TaskResult:
        """The result at the end of the line, however long it takes.
        Raises Bounced where the line ended refused, dead or cancelled; ObjectError where a content
        of the result's ref-cache is gone."""
        while not self._line.ended:
            await self._line.wait_change()
        return await self._client.references.restore(self._line.result())

    async def cancel(self, reason: str) -> bool:
        """Stop the line where it stands now, and what was asked for inside its handler; returns
        whether it was still open. Raises IllegalStepError where somebody else's handoff may not be
        cancelled from here."""
        return await self._client.cancel(self._line, reason)


async def gather(*sent: Sent) -> list[TaskResult]:
    """All results, in the order of the arguments, once every line has ended. Where some ended
    without a result, raises an ExceptionGroup of their Bounced."""
    results: list[TaskResult | Bounced] = []
    for it in sent:
        try:
            results.append(await it.result())
        except Bounced as error:
            results.append(error)
    bounced = [it for it in results if isinstance(it, Bounced)]
    if bounced:
        raise ExceptionGroup(
            f"{len(bounced)} of {counted(len(sent), 'handoff')} gave no result", bounced
        )
    return [it for it in results if isinstance(it, TaskResult)]
