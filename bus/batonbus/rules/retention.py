"""What of the ledger may go: whole families of handoffs, never a part of one (design section 10).

A family is what belongs together: all handoffs of one work, and handoffs that name each other as a
parent, a handler, the next one, or a retry. Nothing outside of it leads into it, so what stays is
whole: no window, no waiter and no handler that runs again can miss what is gone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from msgspec import Struct

from batonbus.rules.chain import Chain
from batonbus_schemas.envelope import ADHOC

RETENTION_AGE = 30 * 24 * 3600.0
"""Seconds that a family stays in the ledger after its last event."""


class Relative(Struct, frozen=True, kw_only=True):
    """A handoff with those that its envelope names: parents, `after`, `within`, `retry_of`. `at` is
    the moment of its last event that counts, or of its last one where none does (Unix seconds)."""

    chain: Chain
    at: float
    names: frozenset[UUID] = frozenset()


Relatives = Mapping[UUID, Relative]
Family = tuple[Relative, ...]


def families(ledger: Relatives) -> list[Family]:
    """All handoffs, each in its one family; in a family the ones that began first come first."""
    groups: dict[UUID, list[UUID]] = {it: [it] for it in ledger}
    at: dict[UUID, UUID] = {it: it for it in ledger}
    for one, other in _ties(ledger):
        into, emptied = at[one], at[other]
        if into == emptied:
            continue
        if len(groups[into]) < len(groups[emptied]):
            into, emptied = emptied, into
        for member in groups[emptied]:
            at[member] = into
        groups[into] += groups.pop(emptied)
    return [
        tuple(sorted((ledger[it] for it in group), key=lambda it: it.chain.began))
        for group in groups.values()
    ]


def _ties(ledger: Relatives) -> Iterable[tuple[UUID, UUID]]:
    """Pairs of handoffs that belong together. What is named and already gone ties nothing."""
    works: dict[str, UUID] = {}
    for handoff_id, relative in ledger.items():
        chain = relative.chain
        for named in (*relative.names, *([chain.child] if chain.child else [])):
            if named in ledger:
                yield handoff_id, named
        if chain.work and chain.work != ADHOC:
            yield works.setdefault(chain.work, handoff_id), handoff_id


def open_member(family: Family) -> UUID | None:
    """A handoff of this family that has not ended, if there is one.

    What a settled one hands on is open before the window manager has seen it. Void events alone are
    no handoff: a stranger wrote them, or the server died in the middle of a purge.
    """
    ended = {it.chain.id for it in family if it.chain.final}
    begun = (it.chain.id for it in family if it.chain.stage != "none")
    handed_on = (it.chain.child for it in family if it.chain.child is not None)
    return next((it for it in (*begun, *handed_on) if it not in ended), None)


def expired(ledger: Relatives, *, before: float) -> list[Family]:
    """The families that may go: every handoff has ended, the last one `before` this moment (Unix
    seconds, the server's)."""
    return [
        family
        for family in families(ledger)
        if open_member(family) is None and max(it.at for it in family) < before
    ]


def obstacles(ledger: Relatives, dead: Collection[UUID]) -> dict[UUID, str]:
    """Why each of these dead handoffs may not be removed by itself; those that may are left out.

    It must not be removed while any of its family is open (a handler that runs again would send it
    anew), and never without the settled one that hands on to it: the keepers would take it for a
    handoff that is still to come.
    """
    found: dict[UUID, str] = {}
    opened_by = {it.chain.child: it.chain.id for it in ledger.values() if it.chain.child}
    family_of = {it.chain.id: family for family in families(ledger) for it in family}
    unfinished: dict[int, UUID | None] = {}
    for handoff_id in dead:
        family = family_of[handoff_id]
        still_open = unfinished.setdefault(id(family), open_member(family))
        if still_open is not None:
            found[handoff_id] = f"handoff {still_open} of the same line or work is open"
        elif handoff_id in opened_by:
            found[handoff_id] = (
                f"handoff {opened_by[handoff_id]} handed on to it: "
                "both go together, with `batonbus retention run`"
            )
    return found


def by_work(families: Iterable[Family]) -> dict[str, int]:
    """How many handoffs of each work these are."""
    counted: defaultdict[str, int] = defaultdict(int)
    for family in families:
        for relative in family:
            counted[relative.chain.work or ADHOC] += 1
    return dict(counted)
