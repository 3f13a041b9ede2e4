"""Where a handoff stands among the steps before it: its two kinds of parents, and its window.

A sender names handoffs, never positions; `check_after` and `place` turn the names into parents.
Stage edges join the steps of one task, task edges join tasks. Only a step that said something, a
record with a context handoff, is ever a parent: whoever reads parents never has to walk past one.
Sources: seed 000 (stages of a pipeline, dependencies between tasks), design section 3 (Lineage).
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from batonbus.rules.errors import BatonbusError
from batonbus_schemas.context import ContextHandoff, Edge
from batonbus_schemas.envelope import Parent
from batonbus_schemas.receipts import Violation


class LineageError(BatonbusError):
    """A parent that an envelope names is not the record that the ledger holds."""

    def __init__(self, parent: Parent, problem: str) -> None:
        self.parent = parent
        super().__init__(
            f"parent {parent.handoff_id} at sequence {parent.sequence:,} {problem}: "
            "restore the ledger from a snapshot that has it, or send the work again"
        )


class Record(Struct, frozen=True, kw_only=True):
    """What the bus knows of one settled handoff.

    `sequence` is that of its settled event, `from_` the role that it was addressed to, `opener` the
    role of its task's first stage, `answered_to` its `reply_to`. `task` None is a stage of the one
    unnamed task of its work.
    """

    id: UUID
    sequence: int
    work: str
    from_: str
    opener: str
    task: str | None = None
    context: ContextHandoff | None = None
    stage_parents: tuple[Parent, ...] = ()
    task_parents: tuple[Parent, ...] = ()
    answered_to: str | None = None
    within: UUID | None = None

    def parent(self) -> Parent:
        """This record as later handoffs name it, with the bytes of its encoded context."""
        size = 0 if self.context is None else len(msgspec.json.encode(self.context))
        return Parent(handoff_id=self.id, sequence=self.sequence, bytes=size)


class Position(Struct, frozen=True, kw_only=True):
    """Where a handoff to `to` stands: its parents, and the role that opened its task."""

    to: str
    opener: str
    stage_parents: tuple[Parent, ...] = ()
    task_parents: tuple[Parent, ...] = ()

    def shown(self) -> tuple[tuple[Edge, tuple[Parent, ...]], ...]:
        """The parents that its window starts from, by edge.

        A task's first stage sees tasks, a later one sees stages, a rebuild (the opener again) both.
        """
        sees_tasks = not self.stage_parents or self.to == self.opener
        return (
            (Edge.STAGE, self.stage_parents),
            (Edge.TASK, self.task_parents if sees_tasks else ()),
        )

    def parents_shown(self) -> tuple[Parent, ...]:
        """The records that its window needs at distance 1."""
        return in_ledger_order(parent for _, parents in self.shown() for parent in parents)


def place(*, work: str, task: str | None, to: str, records: Sequence[Record]) -> Position:
    """The position of a handoff to `to` that comes after `records`, whatever their order.

    They are the ones that its sender named; for `then`, the settling one; for a handoff that
    inherits a position, the parents of the handled one. A record of the same task is a stage before
    it and passes its own task parents on; a record of another task stands for that task. One
    without a context is no step: its parents take its place.
    """
    same = [record for record in records if (record.work, record.task) == (work, task)]
    others = [record for record in records if (record.work, record.task) != (work, task)]
    stages = in_ledger_order(parent for record in same for parent in _last_steps(record))
    inherited = [parent for record in same for parent in record.task_parents]
    # A task that said nothing at all is no step either: the tasks that it needed take its place.
    joined = [p for record in others for p in _last_steps(record) or record.task_parents]
    return Position(
        to=to,
        opener=min(same, key=lambda record: record.sequence).opener if same else to,
        stage_parents=stages,
        task_parents=in_ledger_order(p for p in (*inherited, *joined) if p not in stages),
    )


def _last_steps(record: Record) -> tuple[Parent, ...]:
    """The newest steps of a record's task up to it: itself, or the stages before a silent one."""
    return record.stage_parents if record.context is None else (record.parent(),)


def in_ledger_order(parents: Iterable[Parent]) -> tuple[Parent, ...]:
    """Each parent once, the oldest first."""
    unique = {parent.handoff_id: parent for parent in parents}
    return tuple(sorted(unique.values(), key=lambda parent: parent.sequence))


def check_after(
    *, work: str, sender: str, within: UUID | None, records: Iterable[Record]
) -> tuple[Violation, ...]:
    """What forbids `sender` to name `records` in the `after` of a handoff of `work`.

    A sender may name what was answered to it, or was sent in the same handler (`within`), in the
    same work. Nothing is told about a foreign record but that it is foreign.
    """
    found: list[Violation] = []
    for record in records:
        if record.work != work:
            found.append(_foreign(record, f"is not of work {work}", "of the same work"))
        same_handler = within is not None and record.within == within
        if record.answered_to != sender and not same_handler:
            found.append(
                _foreign(record, f"was not answered to {sender}", "whose answers it received")
            )
    return tuple(found)


def _foreign(record: Record, problem: str, allowed: str) -> Violation:
    return Violation(
        path="$.after",
        problem=f"handoff {record.id} {problem}: a sender names handoffs {allowed}",
    )
