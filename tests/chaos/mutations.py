"""The bus with one of its safeguards switched off: `python mutations.py NAME -m batonbus …`.

Only in the process that runs so; the product knows nothing of it. `none` switches nothing off. The
process has failpoints, too.
"""

import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from uuid import UUID

import failpoints
import msgspec

import batonbus.rules.chain as chain_rules
import batonbus.rules.window as window_rules
import batonbus.run.handling as handling
import batonbus.run.receipt_keeper as receipt_keeper
import batonbus.run.window_manager as window_manager
import batonbus.wire.ledger as ledger
from batonbus.rules.chain import Chain, Event
from batonbus.rules.lineage import Position, Record
from batonbus.run.compaction import Compactor
from batonbus.run.handling import Answer, Handling, Lease
from batonbus.run.receipt_keeper import ReceiptKeeper
from batonbus.run.worker import Worker
from batonbus.wire.connection import Connection
from batonbus.wire.feed import Feed, Received
from batonbus.wire.ledger import Draft, Stored
from batonbus.wire.reader import read_from
from batonbus.wire.subjects import stream_name
from batonbus_schemas import Delivery, DetailLevel, Edge


def write_blind() -> None:
    """Events are stored whatever the chain's tail is, and whoever folds does not look at it."""
    headers, objection = ledger._headers, chain_rules.objection

    def headers_(draft: Draft, tail: int, filter_: str) -> dict[str, str]:
        found = headers(draft, tail, filter_)
        return {name: it for name, it in found.items() if not name.startswith("Nats-Expected")}

    def objection_(chain: Chain, event: Event) -> str | None:
        return objection(chain, msgspec.structs.replace(event, tail=chain.tail))

    ledger._headers = headers_
    chain_rules.objection = objection_


def answer_without_lease() -> None:
    """Who once owned a handoff may answer it, and whoever folds does not ask for the owner."""
    handling.holds = lambda chain, actor, accepted: True
    chain_rules._GUARDS.pop("settled")
    chain_rules._GUARDS.pop("failed")


def ack_before_settled() -> None:
    """The message is acked, and then the answer is written."""
    answer = Worker._answer

    async def answer_(self: Worker, lease: Lease, received: Received) -> None:
        await received.ack()
        await self._client.connection.client.flush()
        await answer(self, lease, received)

    Worker._answer = answer_  # type: ignore[method-assign]


def work_before_accepted() -> None:
    """The handler runs, and then the handoff is accepted."""
    accept, take, work = Handling.accept, Handling.take, Handling.work
    done: dict[int, tuple[Answer, dict[str, str]]] = {}
    sessions: dict[Handling, Compactor] = {}

    async def accept_(self: Handling, received: Received, session: Compactor) -> Lease | None:
        sessions[self] = session
        return await accept(self, received, session)

    async def take_(
        self: Handling, delivery: Delivery, stored: Stored, chain: Chain, attempt: int, lease: int
    ) -> Lease:
        early = Lease(delivery=delivery, accepted=0, attempt=attempt, trace=stored.headers)
        answer = await work(self, early, sessions[self])
        taken = await take(self, delivery, stored, chain, attempt, lease)
        done[taken.accepted] = answer
        return taken

    async def work_(_: Handling, lease: Lease, __: Compactor) -> tuple[Answer, dict[str, str]]:
        return done.pop(lease.accepted)

    Handling.accept = accept_  # type: ignore[method-assign]
    Handling.take = take_  # type: ignore[method-assign]
    Handling.work = work_  # type: ignore[method-assign]


def show_all_of_the_second() -> None:
    """What is two steps back is shown in full."""
    window_rules.DETAIL = {1: DetailLevel.FULL, 2: DetailLevel.FULL}


def show_the_third() -> None:
    """What is three steps back is shown, too."""
    build = window_rules.build_window
    known: dict[UUID, Record] = {}

    def build_(position: Position, records: Iterable[Record]) -> object:
        records = list(records)
        window, cuts = build(position, records)
        known.update((it.id, it) for it in records)
        shown = {it.handoff_id for it in window}
        older = {parent.handoff_id for it in records for parent in it.stage_parents} - shown
        more = [window_rules._entry(known[it], 2, Edge.STAGE) for it in older if it in known]
        return (*window, *more), cuts

    window_manager.build_window = build_  # type: ignore[assignment]


def forget_at_restart() -> None:
    """A keeper reads what comes, and not what was."""
    fold = ReceiptKeeper._fold

    @asynccontextmanager
    async def read_from_head(connection: Connection, fleet: str) -> AsyncGenerator[Feed]:
        info = msgspec.json.decode(await connection.api(f"STREAM.INFO.{stream_name(fleet)}"))
        async with read_from(connection, fleet, info["state"]["last_seq"] + 1) as feed:
            yield feed

    async def fold_(self: ReceiptKeeper, feed: Feed) -> None:
        self._caught_up.set()
        await fold(self, feed)

    receipt_keeper.read_from = read_from_head  # type: ignore[assignment]
    ReceiptKeeper._fold = fold_  # type: ignore[method-assign]


NONE = "none"
MUTATIONS: Mapping[str, Callable[[], None]] = MappingProxyType(
    {
        "compare-and-set": write_blind,
        "lease-fence": answer_without_lease,
        "settled-before-ack": ack_before_settled,
        "accepted-before-handler": work_before_accepted,
        "trim-to-summary": show_all_of_the_second,
        "trim-older": show_the_third,
        "keeper-memory": forget_at_restart,
    }
)
"""By the name of what is switched off."""


if __name__ == "__main__":
    name, *command = sys.argv[1:]
    if name != NONE:
        MUTATIONS[name]()
    failpoints.set_failpoints()
    failpoints.run(command)
