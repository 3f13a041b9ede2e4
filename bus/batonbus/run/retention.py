"""Letting go of what is over: finished families of handoffs leave the ledger for a file."""

from pathlib import Path
from uuid import UUID

import anyio.to_thread
import msgspec
from msgspec import Struct

from batonbus.rules.chain import Chain, fold
from batonbus.rules.retention import Relative, by_work, expired
from batonbus.run.archive import Removed, remove
from batonbus.run.contents import remove_leftovers
from batonbus.run.core import Core
from batonbus.wire.ledger import Ledger, Stored
from batonbus.wire.reader import read_to_head
from batonbus_schemas.envelope import Parent


class _Names(Struct):
    """The part of an envelope that names other handoffs."""

    after: tuple[UUID, ...] | None = None
    within: UUID | None = None
    retry_of: UUID | None = None
    stage_parents: tuple[Parent, ...] = ()
    task_parents: tuple[Parent, ...] = ()


class _Delivered(Struct):
    envelope: _Names


_decode_sent = msgspec.json.Decoder(_Names).decode
_decode_delivered = msgspec.json.Decoder(_Delivered).decode


class Retained(Struct, frozen=True, kw_only=True):
    """What retention took out (or would take out), and what stays; `leftovers` are the folders of
    files that were removed with it."""

    removed: Removed
    works: dict[str, int]
    kept: int
    leftovers: int = 0

    @property
    def expired(self) -> int:
        """Handoffs whose time is over."""
        return sum(self.works.values())


async def retain(core: Core, folder: Path, *, older_than: float, dry_run: bool = False) -> Retained:
    """Export and purge every family of handoffs that ended more than `older_than` seconds ago, and
    remove what their agents left below the current folder; with `dry_run` only say which.

    Raises ExportError, ApiError, NoAnswerError: run again, it goes on.
    """
    ledger = await read_relatives(core.ledger)
    gone = expired(ledger, before=core.connection.server_time() - older_than)
    ids = [it.chain.id for family in gone for it in family]
    kept, works = len(ledger) - len(ids), by_work(gone)
    if dry_run:
        return Retained(removed=Removed(), works=works, kept=kept)
    # First, for afterwards nobody knows of these handoffs any more.
    leftovers = await anyio.to_thread.run_sync(remove_leftovers, Path.cwd(), ids)
    removed = await remove(core, ids, folder)
    return Retained(removed=removed, works=works, kept=kept, leftovers=leftovers)


async def read_relatives(ledger: Ledger) -> dict[UUID, Relative]:
    """Every handoff with those that it names. Reads the whole ledger, payloads too."""
    chains: dict[UUID, Chain] = {}
    names: dict[UUID, frozenset[UUID]] = {}
    at: dict[UUID, float] = {}

    def hear(stored: Stored) -> None:
        handoff_id = stored.subject.handoff_id
        chain = fold(chains.get(handoff_id, Chain(id=handoff_id)), [stored.event])
        chains[handoff_id], at[handoff_id] = chain, chain.changed or stored.event.at
        if stored.event.kind in {"sent", "delivered"} and stored.event.sequence not in chain.void:
            names[handoff_id] = names.get(handoff_id, frozenset()) | named_by(stored)

    await read_to_head(ledger, hear, headers_only=False)
    return {
        it: Relative(chain=chain, at=at[it], names=names.get(it, frozenset()))
        for it, chain in chains.items()
    }


def named_by(stored: Stored) -> frozenset[UUID]:
    """The handoffs that a sent or delivered event names; none where it cannot be read."""
    try:
        if stored.event.kind == "sent":
            said = _decode_sent(stored.payload)
        else:
            said = _decode_delivered(stored.payload).envelope
    except (msgspec.MsgspecError, RecursionError):
        return frozenset()
    parents = (it.handoff_id for it in (*said.stage_parents, *said.task_parents))
    single = (it for it in (said.within, said.retry_of) if it is not None)
    return frozenset((*(said.after or ()), *parents, *single))
