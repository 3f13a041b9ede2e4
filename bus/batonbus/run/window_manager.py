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
from batonbus.rules.errors import MessageTooLargeError
from batonbus.rules.lineage import LineageError
from batonbus.rules.window import build_window, second_parents
from batonbus.run.admission import Admission, Admitted
from batonbus.run.arrivals import Arrival, RefusedError, arrive
from batonbus.run.budgets import Budgets
from batonbus.run.core import Core
from batonbus.run.records import Records
from batonbus.run.telemetry import span
from batonbus.wire.feed import Feed, Received, open_feed
from batonbus.wire.ledger import Draft, read_received
from batonbus.wire.publisher import LostRaceError
from batonbus.wire.subjects import Subject
from batonbus.wire.topology import WINDOW_MANAGER_CONSUMER
from batonbus_schemas import (
    Delivery,
    InvalidMessageError,
    Question,
    Receipt,
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
        self._admission = Admission(core, self._records)
        self._budgets = Budgets(core)

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
            log.info("window_manager.started", fleet=self._core.fleet)
            for _ in range(IN_FLIGHT):
                tasks.start_soon(self._serve, feed)

    async def _serve(self, feed: Feed) -> None:
        while True:
            await self._handle(feed, await feed.receive())

    async def _handle(self, feed: Feed, received: Received) -> None:
        try:
            await self._on_event(received)
            await received.ack()
        except Exception as error:  # noqa: BLE001 - The top of the loop: what went wrong with one event must not stop the others.
            log.exception("event.failed", subject=received.subject, error=repr(error))
            await received.nak(RETRY_DELAY)
        await feed.release()

    async def _on_event(self, received: Received) -> None:
        stored = read_received(received)
        if stored is None:
            log.warning("event.foreign", subject=received.subject)
            return
        arrival, chain = await arrive(self._ledger, stored)
        if arrival is None:
            return
        if received.deliveries > 1:
            chain = await self._ledger.read_folded(chain)
        event = stored.event
        with (
            bind(handoff=str(arrival.handoff_id), work=event.work),
            span(f"deliver {arrival.addressee}", SpanKind.CONSUMER, stored.headers) as trace,
        ):
            await self._deliver(arrival, chain, trace)

    async def _deliver(self, arrival: Arrival, chain: Chain, trace: dict[str, str]) -> None:
        """Write `delivered` or `refused`, unless somebody else has moved the handoff on."""
        while not chain.final and chain.delivered_sequence is None:
            draft = await self._decide(arrival, chain, trace)
            try:
                sequence = await self._ledger.append(draft, tail=chain.tail)
            except LostRaceError:
                chain = await self._ledger.read_folded(chain)
                continue
            except MessageTooLargeError as error:
                draft = self._refusal(arrival, RefusedError(str(error)), trace)
                sequence = await self._ledger.append(draft, tail=chain.tail)
            log.info(f"handoff.{draft.subject.kind}", to=arrival.addressee, sequence=sequence)
            return

    async def _decide(self, arrival: Arrival, chain: Chain, trace: dict[str, str]) -> Draft:
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
        receipt = Receipt(
            handoff_id=arrival.handoff_id,
            state="refused",
            by=WINDOW_MANAGER,
            reason=error.reason,
            violations=error.violations,
        )
        return Draft(
            subject=self._subject(arrival, "refused", arrival.source.event.work, arrival.waiter),
            payload=encode(receipt),
            waiter=arrival.waiter,
            addressee=arrival.addressee,
            reason=error.reason,
            trace=trace,
        )

    def _subject(
        self, arrival: Arrival, kind: Literal["delivered", "refused"], work: str, to: str
    ) -> Subject:
        return Subject(self._core.fleet, arrival.handoff_id, kind, work, WINDOW_MANAGER, to)
