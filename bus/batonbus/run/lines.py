"""Lines of handoffs that somebody waits for: what is known of each, and who is woken."""

from uuid import UUID
from weakref import WeakSet

from batonbus.rules.chain import child_id
from batonbus.rules.errors import Bounced
from batonbus.run.asking import ChainAnswer
from batonbus.run.changes import Changes
from batonbus.wire.ledger import Stored
from batonbus_schemas import Receipt, Settlement, TaskResult, decode

ENDS_WITHOUT_RESULT = frozenset({"refused", "dead", "cancelled"})


_awaited: set["Line"] = set()
"""Held for as long as somebody waits for them: nobody else may hold the task that does."""


class Line:
    """One handoff that was sent, and where it has come to: `current` moves on with `then`. Once it
    has ended, an older answer that comes late changes nothing."""

    def __init__(self, handoff_id: UUID) -> None:
        self.root = handoff_id
        self.current = handoff_id
        self.first: Receipt | None = None
        self.last: Receipt | None = None
        self.settlement: Settlement | None = None
        self.attempt = 1
        self._changed = Changes()
        self.waiters = 0

    @property
    def ended(self) -> bool:
        """Whether the end of the line is known."""
        stopped = self.last is not None and self.last.state in ENDS_WITHOUT_RESULT
        return stopped or (self.settlement is not None and self.settlement.next is None)

    def result(self) -> TaskResult:
        """The result at the end of an ended line. Raises Bounced where it ended without one."""
        if self.last is not None and self.last.state in ENDS_WITHOUT_RESULT:
            raise Bounced(self.last)
        if self.settlement is None:
            raise RuntimeError(f"the line of handoff {self.root} has not ended")
        return self.settlement.result

    async def wait_change(self) -> None:
        """Until something new is known."""
        self.waiters += 1
        _awaited.add(self)
        try:
            await self._changed.wait()
        finally:
            self.waiters -= 1
            if not self.waiters:
                _awaited.discard(self)

    def note_receipt(self, receipt: Receipt) -> None:
        """An answer to the current handoff; the root's first one is what its sender waits for."""
        if self.ended or receipt.handoff_id != self.current:
            return
        if receipt.handoff_id == self.root and self.first is None:
            self.first = receipt
        if receipt.state == "accepted":
            self.attempt = receipt.attempt or self.attempt
        self.last = receipt
        self._wake()

    def note_settlement(self, handoff_id: UUID, by: str, settlement: Settlement) -> None:
        """The current handoff is settled; where it hands on, the next one is current."""
        if self.ended or handoff_id != self.current:
            return
        if self.first is None:
            self.first = Receipt(handoff_id=self.root, state="settled", by=by)
        self.last = None
        self.settlement = settlement
        if settlement.next is not None:
            self.current = child_id(handoff_id)
        self._wake()

    def note_answer(self, answer: ChainAnswer) -> None:
        """What the bus said when asked about the current handoff."""
        chain = answer.chain
        self.attempt = chain.attempt
        if answer.settlement is not None:
            self.note_settlement(chain.id, chain.owner or "", answer.settlement)
        elif answer.receipt is not None and answer.receipt != self.last:
            self.note_receipt(answer.receipt)

    def _wake(self) -> None:
        self._changed.tell()


class Lines:
    """All lines that this process may wait for, by the handoff that each is at. They are whoever's
    who sent them: one that nobody holds any more is watched no more, though its end was missed."""

    def __init__(self) -> None:
        self._lines: dict[UUID, WeakSet[Line]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)

    def watch(self, line: Line) -> None:
        """Tell this line what is heard of its current handoff from now on."""
        self._lines.setdefault(line.current, WeakSet()).add(line)

    def forget(self, line: Line) -> None:
        """Nobody waits for this line any more; one that has ended is forgotten by itself."""
        self._unwatch(line, line.current)

    def sweep(self) -> None:
        """Leave out the handoffs whose lines nobody holds any more."""
        self._lines = {handoff_id: lines for handoff_id, lines in self._lines.items() if lines}

    def waiting(self) -> list[Line]:
        """The lines that somebody waits for at this moment."""
        return [line for lines in self._lines.values() for line in lines if line.waiters]

    def hear(self, stored: Stored) -> None:
        """An event that counts: tell those who wait for its handoff.
        Raises InvalidMessageError where its payload is none of ours."""
        handoff_id = stored.subject.handoff_id
        watching = list(self._lines.get(handoff_id, ()))
        if stored.event.kind == "settled":
            settlement = decode(stored.payload, Settlement)
            for line in watching:
                line.attempt = stored.event.attempt or line.attempt
                line.note_settlement(handoff_id, stored.event.actor, settlement)
                self._follow(line, handoff_id)
        else:
            receipt = decode(stored.payload, Receipt)
            if (receipt.by, receipt.state) != (stored.event.actor, stored.event.kind):
                return
            for line in watching:
                line.note_receipt(receipt)
                self._follow(line, handoff_id)

    def hear_asked(self, line: Line, answer: ChainAnswer) -> None:
        """Tell this line what the bus said when it was asked."""
        before = line.current
        line.note_answer(answer)
        self._follow(line, before)

    def _follow(self, line: Line, before: UUID) -> None:
        if line.ended or line.current != before:
            self._unwatch(line, before)
            if not line.ended:
                self.watch(line)

    def _unwatch(self, line: Line, handoff_id: UUID) -> None:
        watching = self._lines.get(handoff_id, WeakSet[Line]())
        watching.discard(line)
        if not watching:
            self._lines.pop(handoff_id, None)
