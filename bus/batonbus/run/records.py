"""Settled handoffs as records: read from the ledger once, then kept."""

from collections import OrderedDict
from collections.abc import Iterable
from uuid import UUID

from batonbus.logs import log
from batonbus.rules.chain import Chain, fold
from batonbus.rules.lineage import LineageError, Record
from batonbus.rules.settings import CACHED_RECORDS
from batonbus.wire.ledger import Ledger, Stored
from batonbus_schemas import (
    ContextHandoff,
    Delivery,
    HandoffV1,
    InvalidMessageError,
    Parent,
    Settlement,
    decode,
)


class Records:
    """A cache of records in front of the ledger; a settled handoff never changes."""

    def __init__(self, ledger: Ledger, *, size: int = CACHED_RECORDS) -> None:
        self._ledger = ledger
        self._size = size
        self._known: OrderedDict[UUID, Record] = OrderedDict()

    async def find(self, handoff_id: UUID) -> Record | None:
        """The record of this handoff, or None where it is not settled."""
        known = self._known.get(handoff_id)
        if known is not None:
            self._known.move_to_end(handoff_id)
            return known
        record = make_record(handoff_id, await self._ledger.read_chain(handoff_id))
        if record is not None:
            self._known[handoff_id] = record
            if len(self._known) > self._size:
                self._known.popitem(last=False)
        return record

    async def read(self, parents: Iterable[Parent]) -> list[Record]:
        """The records at these parents. Raises LineageError where one is missing, or stands at
        another sequence than the parent says."""
        found: list[Record] = []
        for parent in parents:
            record = await self.find(parent.handoff_id)
            if record is None:
                raise LineageError(parent, "is not in the ledger as a settled handoff")
            if record.sequence != parent.sequence:
                raise LineageError(parent, f"stands at sequence {record.sequence:,}")
            found.append(record)
        return found


def make_record(handoff_id: UUID, events: Iterable[Stored]) -> Record | None:
    """What a chain's events say as a record, or None where it is not settled, or cannot be read."""
    chain = Chain(id=handoff_id)
    by_sequence: dict[int, Stored] = {}
    for stored in events:
        chain = fold(chain, [stored.event])
        by_sequence[stored.event.sequence] = stored
    if chain.settled_sequence is None or chain.delivered_sequence is None:
        return None
    try:
        delivery = decode(by_sequence[chain.delivered_sequence].payload, Delivery)
        settlement = decode(by_sequence[chain.settled_sequence].payload, Settlement)
    except InvalidMessageError as error:
        log.warning("settlement.unreadable", handoff=str(handoff_id), error=str(error))
        return None
    envelope = delivery.envelope
    return Record(
        id=handoff_id,
        sequence=chain.settled_sequence,
        work=envelope.work,
        task=envelope.task,
        from_=envelope.to,
        opener=delivery.opener,
        context=settlement.result.context_handoff or _context_of_next(settlement),
        stage_parents=envelope.stage_parents,
        task_parents=envelope.task_parents,
        answered_to=envelope.reply_to or envelope.sender,
        within=envelope.within,
    )


def _context_of_next(settlement: Settlement) -> ContextHandoff | None:
    """An agent that hands a contract v1 document on tells its step by that document."""
    body = settlement.next.body if settlement.next else None
    return body.context() if isinstance(body, HandoffV1) else None
