"""The window manager: checks each handoff, builds its window, and delivers it.

It reads `sent` and `settled` from one durable consumer. Any number run side by side, and one that
is killed at any instant loses nothing: the compare-and-set decides who delivered.
"""

from typing import Literal

import anyio
from msgspec.structs import replace
from opentelemetry.trace import SpanKind

from batonbus.logs import bind, log
from batonbus.rules.chain import WINDOW_MANAGER, Chain
from batonbus.rules.errors import BatonbusError, MessageTooLargeError
from batonbus.rules.lineage import LineageError
from batonbus.rules.window import build_window, second_parents
from batonbus.run.admission import Admission, Admitted
from batonbus.run.arrivals import Arrival, RefusedError, arrive
from batonbus.run.budgets import Budgets
from batonbus.run.core import Core
from batonbus.run.holding import Holding, Waiting
from batonbus.run.listings import Listings
from batonbus.run.records import Records
from batonbus.run.telemetry import span
from batonbus.secrecy import hide_in
from batonbus.wire.feed import Feed, Received, open_feed
from batonbus.wire.ledger import REASON_LIMIT, Draft, read_received
from batonbus.wire.publisher import LostRaceError
from batonbus.wire.streams import WINDOW_MANAGER_CONSUMER
from batonbus.wire.subjects import Subject
from batonbus_schemas import (
    Delivery,
    InvalidMessageError,
    Question,
    Receipt,
    Violation,
    encode,
)

IN_FLIGHT = 512
"""Handoffs that one window manager works on at a time."""

RETRY_DELAY = 1.0
"""Seconds after which an event that could not be handled is read again."""


class WindowManager:
    """Delivers handoffs. See `run_window_manager`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ledger = core.ledger
        self._records = Records(core.ledger)
        self._listings = Listings(core)
        self._admission = Admission(core, self._records, self._listings)
        self._budgets = Budgets(core, self._listings)
        self._holding = Holding(core, self._listings)

    async def run(self) -> None:
        """Read and deliver until cancelled."""
        async with (
            open_feed(
                self._core.connection,
                self._ledger.stream,
                WINDOW_MANAGER_CONSUMER,
                window=IN_FLIGHT,
            ) as feed,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._listings.run)
            tasks.start_soon(self._holding.run, self._deliver_held, self._tell_held)
            log.info("window_manager.started", fleet=self._core.fleet)
            for _ in range(IN_FLIGHT):
                tasks.start_soon(self._serve, feed)

    async def _serve(self, feed: Feed) -> None:
        while True:
            await self._handle(feed, await feed.receive())

    async def _handle(self, feed: Feed, received: Received) -> None:
        try:
            if not await self._on_event(received):
                await received.ack()
        except Exception as error:  # noqa: BLE001 - The top of the loop: what went wrong with one event must not stop the others.
            log.exception("event.failed", subject=received.subject, error=repr(error))
            await received.nak(RETRY_DELAY)
        await feed.release()

    async def _on_event(self, received: Received) -> bool:
        """True where its handoff is held, and the message kept."""
        stored = read_received(received)
        if stored is None:
            log.warning("event.foreign", subject=received.subject)
            return False
        arrival, chain = await arrive(self._ledger, stored)
        if arrival is None:
            return False
        if received.deliveries > 1:
            chain = await self._ledger.read_folded(chain)
        event = stored.event
        with (
            bind(handoff=str(arrival.handoff_id), work=event.work),
            span(f"deliver {arrival.addressee}", SpanKind.CONSUMER, stored.headers) as trace,
        ):
            return await self._deliver(Waiting(received, arrival, trace), chain)

    async def _deliver(self, waiting: Waiting, chain: Chain, *, held: bool = False) -> bool:
        """Write `delivered` or `refused`, unless somebody else has moved the handoff on; True where
        it is held and kept instead. One that was `held` goes through the gate as it is open."""
        arrival, trace = waiting.arrival, waiting.trace
        while not chain.final and chain.delivered_sequence is None:
            draft = await self._decide(arrival, trace)
            if draft.subject.kind == "delivered" and not held:
                waiting.reason = await self._holding.why(arrival.addressee)
                if waiting.reason:
                    await self._hold(waiting, chain)
                    return True
            try:
                sequence = await self._ledger.append(draft, tail=chain.tail)
            except LostRaceError:
                chain = await self._ledger.read_folded(chain)
                continue
            except MessageTooLargeError as error:
                draft = self._refusal(arrival, RefusedError(str(error)), trace)
                sequence = await self._ledger.append(draft, tail=chain.tail)
            log.info(f"handoff.{draft.subject.kind}", to=arrival.addressee, sequence=sequence)
            return False
        return False

    async def _hold(self, waiting: Waiting, chain: Chain) -> None:
        if self._holding.keep(waiting):
            try:
                await self._write_held(waiting, chain)
            except BaseException:
                self._holding.drop(waiting)
                raise

    async def _write_held(self, waiting: Waiting, chain: Chain) -> None:
        """Unless it is held for that reason already, or moved on."""
        while not chain.final and chain.delivered_sequence is None:
            draft = self._receipt(waiting.arrival, "held", waiting.reason, waiting.trace)
            if chain.stage == "held" and chain.reason == draft.reason[:REASON_LIMIT]:
                return
            try:
                await self._ledger.append(draft, tail=chain.tail)
            except LostRaceError:
                chain = await self._ledger.read_folded(chain)
                continue
            log.info("handoff.held", to=waiting.arrival.addressee, reason=waiting.reason)
            return

    async def _deliver_held(self, waiting: Waiting) -> None:
        """The gate is open."""
        try:
            chain = await self._ledger.read_folded(Chain(id=waiting.arrival.handoff_id))
            await self._deliver(waiting, chain, held=True)
            await waiting.received.ack()
        except Exception as error:  # noqa: BLE001 - The top of the loop: what went wrong with one handoff must not stop the others.
            log.exception("event.failed", subject=waiting.received.subject, error=repr(error))
            await waiting.received.nak(RETRY_DELAY)

    async def _tell_held(self, waiting: Waiting) -> None:
        """Its agents are closed for another reason now."""
        try:
            chain = await self._ledger.read_folded(Chain(id=waiting.arrival.handoff_id))
            await self._write_held(waiting, chain)
        except BatonbusError as error:
            log.warning("held.not_told", subject=waiting.received.subject, error=str(error))

    async def _decide(self, arrival: Arrival, trace: dict[str, str]) -> Draft:
        """By one policy: where another came into force meanwhile, once more."""
        while True:
            policy = self._core.policy
            draft = await self._judge(arrival, trace)
            if policy is self._core.policy:
                return draft

    async def _judge(self, arrival: Arrival, trace: dict[str, str]) -> Draft:
        try:
            return await self._delivery(arrival, await self._admission.admit(arrival), trace)
        except RefusedError as error:
            return self._refusal(arrival, error, trace)
        except InvalidMessageError as error:
            refused = RefusedError("the message is not valid", error.violations)
            return self._refusal(arrival, refused, trace)
        except LineageError as error:
            return self._refusal(arrival, RefusedError(str(error)), trace)

    async def _delivery(self, arrival: Arrival, admitted: Admitted, trace: dict[str, str]) -> Draft:
        position = admitted.position
        first = await self._records.read(position.parents_shown())
        second = await self._records.read(second_parents(position, first))
        window, cuts = build_window(position, [*first, *second])
        placed = replace(
            admitted.envelope,
            stage_parents=position.stage_parents,
            task_parents=position.task_parents,
        )
        delivery = Delivery(
            envelope=placed,
            opener=position.opener,
            window=window,
            cuts=cuts,
            trail=admitted.trail,
            size=await self._budgets.measure(placed, window),
        )
        return Draft(
            subject=self._subject(arrival, "delivered", placed.work, placed.to),
            payload=encode(delivery),
            attempt=placed.attempt,
            waiter=placed.reply_to or placed.sender,
            addressee=placed.to,
            deadline=placed.deadline.timestamp() if placed.deadline else None,
            question=isinstance(placed.body, Question),
            trace=trace,
        )

    def _refusal(self, arrival: Arrival, error: RefusedError, trace: dict[str, str]) -> Draft:
        return self._receipt(arrival, "refused", error.reason, trace, error.violations)

    def _receipt(
        self,
        arrival: Arrival,
        state: Literal["refused", "held"],
        reason: str,
        trace: dict[str, str],
        violations: tuple[Violation, ...] = (),
    ) -> Draft:
        # What is wrong is quoted, and may be a secret in the wrong place.
        receipt = hide_in(
            Receipt(
                handoff_id=arrival.handoff_id,
                state=state,
                by=WINDOW_MANAGER,
                reason=reason,
                violations=violations,
            )
        )
        return Draft(
            subject=self._subject(arrival, state, arrival.source.event.work, arrival.waiter),
            payload=encode(receipt),
            waiter=arrival.waiter,
            addressee=arrival.addressee,
            reason=receipt.reason,
            trace=trace,
        )

    def _subject(
        self, arrival: Arrival, kind: Literal["delivered", "refused", "held"], work: str, to: str
    ) -> Subject:
        return Subject(self._core.fleet, arrival.handoff_id, kind, work, WINDOW_MANAGER, to)
