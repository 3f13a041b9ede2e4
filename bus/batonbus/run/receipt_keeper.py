"""The receipt keeper: within 30 s every sender knows, and no handoff is forgotten.

A fold of the ledger in memory, read again at each start: there is no state to lose (see
decisions/starts-of-a-keeper.md). Any number run side by side; the compare-and-set decides who
answered.
"""

import time
from uuid import UUID

import anyio

from batonbus.logs import bind, log
from batonbus.rules.chain import RECEIPT_KEEPER, Chain, Event
from batonbus.rules.receipts import Verdict, due_at, judge, judge_owned
from batonbus.run.agenda import Agenda
from batonbus.run.chains import Chains
from batonbus.run.confirmation import Confirmed
from batonbus.run.core import Core
from batonbus.run.keeper_service import KeeperService
from batonbus.run.listeners import Listeners
from batonbus.run.orphans import Orphans
from batonbus.wire.feed import Feed
from batonbus.wire.ledger import Draft, Stored, read_received
from batonbus.wire.publisher import LostRaceError
from batonbus.wire.reader import read_from
from batonbus.wire.subjects import NOBODY, Subject
from batonbus_schemas import Receipt, encode

AT_ONCE = 64
"""Answers that are written at a time."""

TICK = 0.1
"""Seconds between two looks at what is due."""


class ReceiptKeeper:
    """Holds every open chain until it is final, and answers for those who do not."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._confirmed = Confirmed()
        self._orphans = Orphans(core)
        self._chains = Chains(core.ledger)
        self._agenda = Agenda()
        self._listeners = Listeners(core)
        self._ownerless_since: dict[UUID, float] = {}
        self._caught_up = anyio.Event()
        self._writing = anyio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Read, judge and answer until cancelled."""
        async with (
            read_from(self._core.connection, self._core.fleet) as feed,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(KeeperService(self._core, self._confirmed).run)
            tasks.start_soon(self._fold, feed)
            await self._caught_up.wait()
            self._confirmed.ready = True
            held = len(self._chains.open())
            log.info("receipt_keeper.started", fleet=self._core.fleet, open=held)
            tasks.start_soon(self._orphans.run)
            tasks.start_soon(self._watch_owners)
            await self._watch_due()

    async def _fold(self, feed: Feed) -> None:
        # An empty ledger has nothing to catch up with, so no message will say so.
        if await self._core.ledger.is_head(0):
            self._caught_up.set()
        while True:
            received = await feed.receive()
            stored = read_received(received)
            if stored is not None:
                chain = await self._chains.fold(stored)
                if received.sequence in chain.void:
                    _tell_void(chain, stored)
                else:
                    self._take(chain, stored.event)
            if received.pending == 0:
                self._caught_up.set()
            await feed.release()

    def _take(self, chain: Chain, event: Event) -> None:
        self._confirmed.note(chain, event)
        self._orphans.note(chain, event)
        self._note(chain)
        if chain.settled_sequence == event.sequence:
            child = self._chains.expect(chain, event.child_to, event.at)
            if child is not None:
                self._note(child)

    def _note(self, chain: Chain) -> None:
        self._ownerless_since.pop(chain.id, None)
        self._agenda.put(chain.id, due_at(chain, self._core.settings))

    async def _watch_due(self) -> None:
        while True:
            now = self._core.connection.server_time()
            if due := self._agenda.take(now):
                await self._judge_due(due, now)
            await anyio.sleep(TICK)

    async def _judge_due(self, due: list[UUID], now: float) -> None:
        settings = self._core.settings
        look = await self._listeners.look()
        async with anyio.create_task_group() as tasks:
            # What ended meanwhile is not open any more; what moved on is judged as it is now.
            for chain in filter(None, map(self._chains.find, due)):
                listening = None if look is None else look.listening(chain.addressee)
                verdict = judge(chain, settings, now=now, listening=listening)
                self._agenda.put(chain.id, due_at(chain, settings, looked=now))
                if verdict is not None:
                    tasks.start_soon(self._write, chain, verdict, now - chain.began)

    async def _write(self, chain: Chain, verdict: Verdict, waited: float) -> None:
        async with self._writing:
            await self._write_now(chain, verdict, waited)

    async def _write_now(self, chain: Chain, verdict: Verdict, waited: float) -> None:
        receipt = Receipt(
            handoff_id=chain.id,
            state=verdict.kind,
            by=RECEIPT_KEEPER,
            reason=verdict.reason,
            attempt=chain.attempt if chain.owner else None,
            waited_s=round(waited, 3),
            listening=verdict.listening,
        )
        draft = Draft(
            subject=Subject(
                self._core.fleet,
                chain.id,
                verdict.kind,
                chain.work,
                RECEIPT_KEEPER,
                (chain.owner if verdict.hears == "owner" else chain.waiter) or NOBODY,
            ),
            payload=encode(receipt),
            waiter=chain.waiter,
            addressee=chain.addressee,
            reason=verdict.reason,
        )
        with bind(handoff=str(chain.id), work=chain.work):
            now = await self._core.ledger.read_folded(chain)
            if now.final:
                # Maybe before it was expected: then none of its events comes to us any more.
                self._chains.forget(chain.id)
                return
            if now.changed != chain.changed:
                # Somebody moved it on; that event is on its way to us and is judged anew.
                return
            try:
                # Behind what is void, too, also where that was forgotten.
                await self._core.ledger.append(draft, tail=now.tail)
            except LostRaceError:
                return  # just now
            log.info(f"handoff.{verdict.kind}", reason=verdict.reason, waited_s=receipt.waited_s)

    async def _watch_owners(self) -> None:
        """Notice accepted handoffs whose owner does not hold them any more."""
        while True:
            await anyio.sleep(self._core.settings.heartbeat)
            look = await self._listeners.look()
            if look is None:
                self._ownerless_since.clear()
                continue
            held = {(it.card.id, sequence) for it in look.agents for sequence in it.working}
            for chain in self._chains.open():
                # What moved on since we looked is looked at the next time.
                if chain.stage == "accepted" and self._chains.find(chain.id) is chain:
                    await self._check_owner(chain, (chain.owner, chain.owner_sequence) in held)

    async def _check_owner(self, chain: Chain, alive: bool) -> None:
        if alive:
            self._ownerless_since.pop(chain.id, None)
            return
        now = time.monotonic()
        since = self._ownerless_since.setdefault(chain.id, now)
        verdict = judge_owned(chain, self._core.settings, ownerless_for=now - since)
        if verdict is not None:
            waited = self._core.connection.server_time() - chain.began
            await self._write(chain, verdict, waited)


def _tell_void(chain: Chain, stored: Stored) -> None:
    """A step that may not be: told once, where it is first read."""
    log.warning(
        "security.void_event",
        handoff=str(chain.id),
        sequence=stored.event.sequence,
        kind=stored.event.kind,
        actor=stored.event.actor,
        stage=chain.stage,
    )
