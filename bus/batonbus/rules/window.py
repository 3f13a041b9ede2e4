"""The sliding window: what an agent sees of the steps before it, by distance.

FULL one step back, SUMMARY two steps back, nothing older (seed 000). What is read follows the same
distances, so neither the cost nor the size of a hop grows with the chain:

    first = read(position.parents_shown())
    second = read(second_parents(position, first))
    window, cuts = build_window(position, [*first, *second])

Order: stages before tasks, the nearer first, the later in the ledger first.
"""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

import msgspec

from batonbus.rules.lineage import LineageError, Position, Record, in_ledger_order
from batonbus_schemas.context import ContextHandoff, Cut, DetailLevel, Edge, WindowEntry
from batonbus_schemas.envelope import Parent

DETAIL = {1: DetailLevel.FULL, 2: DetailLevel.SUMMARY}
"""What is shown at each distance (seed 000); what is farther is dropped unread."""

Window = tuple[WindowEntry, ...]


def second_parents(position: Position, first: Iterable[Record]) -> tuple[Parent, ...]:
    """The records that a window needs at distance 2, given those at distance 1.

    Raises LineageError where `first` lacks a parent of the position, or holds another in its place.
    """
    known = {record.id: record for record in first}
    return in_ledger_order(
        parent
        for edge, parents in position.shown()
        for record in _find_all(parents, known)
        for parent in _parents(record, edge)
        if parent.handoff_id not in known
    )


def build_window(position: Position, records: Iterable[Record]) -> tuple[Window, tuple[Cut, ...]]:
    """What a handoff at `position` sees of `records`, and what was cut of each of its ancestors.

    A task stands in the window once: nearest, then latest record. Raises LineageError where
    `records` lack a parent at distance 1 or 2, or hold another in its place.
    """
    near = list(_near(position, {record.id: record for record in records}))
    entries: list[WindowEntry] = []
    cuts: list[Cut] = []
    taken: set[object] = set()
    for edge, distance, record in near:
        if _identity(record, edge) not in taken:
            entries.append(_entry(record, distance, edge))
            cuts.append(_cut(record, entries[-1]))
        taken |= {_identity(record, Edge.STAGE), _identity(record, Edge.TASK)}
    # What stands behind distance 1 is taken already, so only distance 3 is left.
    dropped = {
        parent.handoff_id: _drop(parent, edge)
        for edge, _, record in near
        for parent in _parents(record, edge)
        if parent.handoff_id not in taken
    }
    return tuple(entries), (*cuts, *dropped.values())


def _near(position: Position, known: Mapping[UUID, Record]) -> Iterator[tuple[Edge, int, Record]]:
    """The ancestors within the distances that are shown, in the window's order; some repeat."""
    for edge, first in position.shown():
        parents = first
        for distance in DETAIL:
            if not parents:
                break
            records = _find_all(parents, known)
            yield from ((edge, distance, record) for record in reversed(records))
            parents = in_ledger_order(p for record in records for p in _parents(record, edge))


def _parents(record: Record, edge: Edge) -> tuple[Parent, ...]:
    return record.stage_parents if edge is Edge.STAGE else record.task_parents


def _find_all(parents: Iterable[Parent], known: Mapping[UUID, Record]) -> list[Record]:
    return [_find(parent, known) for parent in parents]


def _find(parent: Parent, known: Mapping[UUID, Record]) -> Record:
    """The record that a parent names; a missing one is an error, never an empty window."""
    record = known.get(parent.handoff_id)
    if record is None:
        raise LineageError(parent, "was not found")
    if record.sequence != parent.sequence:
        raise LineageError(parent, f"stands at sequence {record.sequence:,}")
    return record


def _identity(record: Record, edge: Edge) -> object:
    """What must not stand in a window twice: a stage, or a task (an unnamed one is its record)."""
    if edge is Edge.STAGE or record.task is None:
        return record.id
    return record.work, record.task


def _entry(record: Record, distance: int, edge: Edge) -> WindowEntry:
    context = _context(record)
    full = DETAIL[distance] is DetailLevel.FULL
    return WindowEntry(
        distance=distance,
        level=DETAIL[distance],
        edge=edge,
        from_=record.from_,
        task=record.task,
        handoff_id=record.id,
        what=context.what if full else context.summary(),
        why=context.why if full else None,
        caution=context.caution if full else None,
        incomplete=context.incomplete if full else None,
    )


def _context(record: Record) -> ContextHandoff:
    if record.context is None:
        raise LineageError(record.parent(), "has no context handoff")
    return record.context


def _cut(record: Record, entry: WindowEntry) -> Cut:
    before = record.parent().bytes
    full = entry.level is DetailLevel.FULL
    return Cut(
        distance=entry.distance,
        level=entry.level,
        edge=entry.edge,
        handoff_id=record.id,
        from_=record.from_,
        task=record.task,
        bytes_before=before,
        bytes_after=before if full else len(msgspec.json.encode({"what": entry.what})),
    )


def _drop(parent: Parent, edge: Edge) -> Cut:
    """Known from its name alone: a dropped ancestor is never read."""
    return Cut(
        distance=3,
        level=DetailLevel.DROP,
        edge=edge,
        handoff_id=parent.handoff_id,
        bytes_before=parent.bytes,
        bytes_after=0,
    )
