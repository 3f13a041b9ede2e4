"""One delivered handoff in the hands of an agent: accept, work, answer.

`accepted` is written before the handler starts, the answer before the message is acked. Every write
says under which accepted event it stands, so that a stale owner's answer changes nothing.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.trace import SpanKind

from batonbus.logs import log
from batonbus.rules.admission import expected_capabilities
from batonbus.rules.chain import ATTEMPT_LIMIT, WINDOW_MANAGER, Chain, child_id
from batonbus.rules.errors import (
    CompactionError,
    MessageTooLargeError,
    Refuse,
    ReroutedError,
    TryAgain,
    describe,
    leaves,
)
from batonbus.rules.ownership import claim, has_answered, holds, retry_delay
from batonbus.run.agent import Agent
from batonbus.run.assignment import make_assignment
from batonbus.run.client import Client
from batonbus.run.compaction import Compactor
from batonbus.run.context import Context
from batonbus.run.hooks import is_cancelled
from batonbus.run.telemetry import span
from batonbus.secrecy import hide, hide_in
from batonbus.wire.feed import Received
from batonbus.wire.ledger import Draft, Stored, read_received
from batonbus.wire.publisher import LostRaceError
from batonbus_schemas import (
    Delivery,
    Envelope,
    InvalidMessageError,
    Receipt,
    Settlement,
    TaskResult,
    Then,
    decode,
    encode,
)

ELSEWHERE_DELAY = 0.5
"""Seconds after which a message that this agent cannot take now is handed out again."""

ERROR_LIMIT = 2000
"""Characters of an exception's text that are stored."""

SCANNED_LIMIT = 1_000_000
"""Characters of it that are looked through before it is cut: a part of a secret looks like none."""


class Lease(Struct, frozen=True, kw_only=True):
    """A handoff that this process owns, by its accepted event."""

    delivery: Delivery
    accepted: int
    attempt: int
    trace: Mapping[str, str]

    @property
    def envelope(self) -> Envelope:
        """The handoff as it was delivered."""
        return self.delivery.envelope


class Answer(Struct, frozen=True, kw_only=True):
    """What the owner writes: the event, its payload, and when a failed attempt comes again."""

    kind: Literal["settled", "failed", "refused"]
    payload: bytes
    reason: str = ""
    retry_after: float | None = None
    child_to: str | None = None
    interrupted: bool = False
    result: TaskResult | None = None


class Handling:
    """Takes messages of one agent, and answers them."""

    def __init__(self, agent: Agent, client: Client) -> None:
        self._agent = agent
        self._client = client

    async def accept(self, received: Received, session: Compactor) -> Lease | None:
        """Write `accepted` and return the lease, or leave the handoff: acked where nothing is left
        to do, handed back where somebody else may own it or be able to do it, or where the session
        must be reset before it."""
        stored = read_received(received)
        if stored is None or stored.event.actor != WINDOW_MANAGER:
            log.warning("security.foreign_delivery", subject=received.subject)
            await received.ack()
            return None
        try:
            delivery = decode(stored.payload, Delivery)
        except InvalidMessageError as error:
            await self._leave_unreadable(received, stored, error)
            return None
        # A first delivery is the chain's tail; what a redelivery means, only the chain can say.
        known = received.deliveries == 1
        chain, owner_alive = _just_delivered(stored, delivery.envelope), None
        tried = 0
        while True:
            if not known:
                answer = await self._client.ask(delivery.envelope.id)
                chain, owner_alive = answer.chain, answer.owner_alive
            if tried and chain.lease == tried and (own := self._own_lease(delivery, stored, chain)):
                return own
            decision = claim(chain, owner_alive=owner_alive)
            if decision.act == "drop":
                await received.ack()
                return None
            if decision.act == "wait" or not self._is_capable(delivery.envelope):
                await received.nak(self._client.settings.presence_timeout / 2)
                return None
            if not await session.admits(delivery.envelope, chain):
                await received.nak(0)
                return None
            try:
                with session.gate.accepting():
                    return await self.take(
                        delivery, stored, chain, decision.attempt, decision.lease
                    )
            except LostRaceError:
                known, tried = False, decision.lease

    async def _leave_unreadable(
        self, received: Received, stored: Stored, error: InvalidMessageError
    ) -> None:
        """A newer agent of the role may read it; where nobody can, the keeper gives it up."""
        chain = (await self._client.ask(stored.subject.handoff_id)).chain
        if chain.final or stored.event.sequence in chain.void:
            await received.ack()
            return
        log.error("delivery.unreadable", subject=received.subject, error=str(error))
        await received.nak(self._client.settings.ack_wait)

    def _own_lease(self, delivery: Delivery, stored: Stored, chain: Chain) -> Lease | None:
        """The lease that we wrote ourselves, and whose answer was lost."""
        accepted = chain.owner_sequence
        if accepted is None or not holds(chain, self._client.actor, accepted):
            return None
        return Lease(
            delivery=delivery, accepted=accepted, attempt=chain.attempt, trace=stored.headers
        )

    def _is_capable(self, envelope: Envelope) -> bool:
        """Another agent of the role may be."""
        return expected_capabilities(envelope) <= set(self._agent.card.capabilities)

    async def take(
        self, delivery: Delivery, stored: Stored, chain: Chain, attempt: int, lease: int
    ) -> Lease:
        """Write `accepted` behind this chain, whose delivered event is `stored`. Raises
        LostRaceError where it moved on meanwhile."""
        envelope = delivery.envelope
        receipt = Receipt(
            handoff_id=envelope.id,
            state="accepted",
            by=self._client.actor,
            attempt=attempt,
            lease=lease,
        )
        draft = self._draft(
            envelope,
            "accepted",
            encode(receipt),
            attempt=attempt,
            lease=lease,
            trace=stored.headers,
        )
        sequence = await self._client.ledger.append(draft, tail=chain.tail)
        event = "handoff.taken_over" if chain.stage == "accepted" else "handoff.accepted"
        log.info(event, handoff=str(envelope.id), attempt=attempt, lease=lease)
        return Lease(delivery=delivery, accepted=sequence, attempt=attempt, trace=stored.headers)

    async def work(self, lease: Lease, session: Compactor) -> tuple[Answer, dict[str, str]]:
        """Run the handler; an exception is an answer too. Returns the answer and the trace context
        of the work."""
        envelope = lease.envelope
        attributes: dict[str, str | int] = {
            "batonbus.handoff": str(envelope.id),
            "batonbus.work": envelope.work,
            "batonbus.attempt": lease.attempt,
        }
        name = f"process {self._agent.card.role}"
        with span(name, SpanKind.CONSUMER, lease.trace, attributes) as trace:
            try:
                if not isinstance(envelope.body, self._agent.accepts):
                    takes = " or ".join(it.__name__ for it in self._agent.accepts)
                    raise Refuse(f"takes {takes}, not {type(envelope.body).__name__}")
                body = await self._client.references.restore(envelope.body)
                whole = replace(lease.delivery, envelope=replace(envelope, body=body))
                assignment = make_assignment(
                    whole, self._agent.card, self._client.policy, self._agent.count_tokens
                )
                assignment.lay_out(Path.cwd())
                context = Context(
                    self._client,
                    whole,
                    assignment=assignment,
                    accepted=lease.accepted,
                    attempt=lease.attempt,
                    trace=trace,
                    gate=session.gate,
                    compact=partial(self.compact, lease, session),
                )
                outcome = await self._agent.handler(body, context)
                return await self.settled(envelope, outcome), trace
            except Exception as error:  # noqa: BLE001 - The handler is not ours: whatever it raises is a failed attempt, and is stored.
                return self._raised(lease, error), trace
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                # Nobody cancelled us: the handler awaited something that was cancelled.
                return self._raised(lease, error), trace

    async def settled(self, envelope: Envelope, outcome: TaskResult | Then) -> Answer:
        """The answer to this handoff that the outcome is, without secrets; long contents of its
        ref-caches are stored. Raises TypeError, InvalidMessageError, ReferenceTooLargeError."""
        if isinstance(outcome, TaskResult):
            settlement = Settlement(result=outcome)
        elif isinstance(outcome, Then):  # pyright: ignore[reportUnnecessaryIsInstance] - theirs
            # The bus completes it: what travels on is not the agent's to say.
            following = Envelope(
                id=child_id(envelope.id),
                sender=self._client.actor,
                to=outcome.to,
                body=outcome.body,
                attempt=outcome.attempt,
                task=outcome.task,
            )
            settlement = Settlement(result=outcome.result, next=following)
        else:
            raise TypeError(
                f"the handler returned {type(outcome).__name__}: return a TaskResult, "
                "or result.then(role, body)"
            )
        settlement = await self._referred(hide_in(settlement))
        payload = encode(settlement)
        # Structs made in Python are not checked before they are read, and then it is too late.
        decode(payload, Settlement)
        child_to = settlement.next.to if settlement.next else None
        return Answer(kind="settled", payload=payload, child_to=child_to, result=settlement.result)

    async def _referred(self, settlement: Settlement) -> Settlement:
        store = self._client.references.store
        following = settlement.next
        if following is not None:
            following = replace(following, body=await store(following.body))
        return replace(settlement, result=await store(settlement.result), next=following)

    def _raised(self, lease: Lease, error: BaseException) -> Answer:
        cause, *others = leaves(error)
        if isinstance(cause, Refuse) and not others:
            reason = clip(cause.reason)
            receipt = self._receipt(lease, "refused", reason)
            return Answer(kind="refused", payload=encode(receipt), reason=reason)
        if isinstance(cause, ReroutedError) and not others:
            return self._interrupted(lease, str(cause))
        log.warning(
            "attempt.failed", handoff=str(lease.envelope.id), attempt=lease.attempt, exc_info=error
        )
        return self._failed(lease, cause, *others)

    def _failed(self, lease: Lease, *errors: BaseException) -> Answer:
        reason = clip("; ".join(map(describe, errors)))
        asked = [it.after for it in errors if isinstance(it, TryAgain) and it.after is not None]
        delay = retry_delay(lease.attempt, self._client.settings.retry_delay)
        return Answer(
            kind="failed",
            payload=encode(self._receipt(lease, "failed", reason)),
            reason=reason,
            retry_after=max(asked, default=delay),
        )

    async def compact(self, lease: Lease, session: Compactor) -> None:
        """Compact the session in the middle of this work, then read again what it works on. Raises
        CompactionError, and ReroutedError where it cannot go on with it."""
        await session.compact_in_task(lease.envelope, lease.attempt)
        is_ours, _ = await self.look_up(lease)
        if not is_ours:
            raise ReroutedError(f"handoff {lease.envelope.id} is not ours any more")
        if not self._is_capable(lease.envelope):
            needed = ", ".join(sorted(expected_capabilities(lease.envelope)))
            raise ReroutedError(f"since the compaction this agent does not declare {needed}")

    async def revalidated(self, lease: Lease, answer: Answer, session: Compactor) -> Answer:
        """The answer, or at emergency what comes of it: nothing is said until the session is
        compacted and the state read again. Where that fails another agent makes the attempt."""
        if session.gate.level != "emergency":
            return answer
        try:
            await self.compact(lease, session)
        except (CompactionError, ReroutedError) as error:
            return self._interrupted(lease, str(error))
        return answer

    def _interrupted(self, lease: Lease, reason: str) -> Answer:
        """This attempt is made again, by whoever takes it, and spends nothing."""
        return Answer(
            kind="failed",
            payload=encode(self._receipt(lease, "failed", clip(reason))),
            reason=clip(reason),
            retry_after=0.0,
            interrupted=True,
        )

    async def hand_back(self, lease: Lease) -> None:
        """Say that this attempt was interrupted because we are stopped: it is made again, by
        whoever takes it, and spends nothing."""
        reason = f"{self._client.actor} was stopped in the middle of it"
        await self.answer(lease, self._interrupted(lease, reason), lease.trace)

    async def look_up(self, lease: Lease) -> tuple[bool, bool]:
        """Whether the ledger says that the handoff is ours, and whether it is over."""
        chain = (await self._client.ask(lease.envelope.id)).chain
        return holds(chain, self._client.actor, lease.accepted), chain.final

    async def answer(self, lease: Lease, answer: Answer, trace: Mapping[str, str]) -> str | None:
        """Write the answer; the event that was stored, None where the handoff is not ours any more:
        then it is dropped."""
        tail = lease.accepted
        draft = self._answer_draft(lease, answer, trace)
        while True:
            try:
                await self._client.ledger.append(draft, tail=tail)
            except LostRaceError:
                chain = (await self._client.ask(lease.envelope.id)).chain
                mine = self._client.actor, lease.accepted
                if has_answered(chain, *mine, draft.subject.kind):
                    return draft.subject.kind  # by a write whose answer was lost
                if not holds(chain, *mine):
                    log.warning(
                        "answer.stale",
                        handoff=str(lease.envelope.id),
                        stage=chain.stage,
                        owner=chain.owner,
                    )
                    return None
                tail = chain.tail
            except MessageTooLargeError as error:
                draft = self._answer_draft(lease, self._failed(lease, error), trace)
            else:
                log.info(f"handoff.{draft.subject.kind}", attempt=lease.attempt)
                return draft.subject.kind

    def _answer_draft(self, lease: Lease, answer: Answer, trace: Mapping[str, str]) -> Draft:
        return self._draft(
            lease.envelope,
            answer.kind,
            answer.payload,
            accepted=lease.accepted,
            attempt=lease.attempt,
            reason=answer.reason,
            child_to=answer.child_to,
            interrupted=answer.interrupted,
            trace=trace,
        )

    def _receipt(self, lease: Lease, state: Literal["failed", "refused"], reason: str) -> Receipt:
        return Receipt(
            handoff_id=lease.envelope.id,
            state=state,
            by=self._client.actor,
            reason=reason,
            attempt=lease.attempt,
        )

    def _draft(
        self,
        envelope: Envelope,
        kind: Literal["accepted", "settled", "failed", "refused"],
        payload: bytes,
        *,
        trace: Mapping[str, str],
        accepted: int | None = None,
        attempt: int | None = None,
        lease: int | None = None,
        reason: str = "",
        child_to: str | None = None,
        interrupted: bool = False,
    ) -> Draft:
        waiter = envelope.reply_to or envelope.sender
        return Draft(
            subject=self._client.subject(envelope.id, kind, envelope.work, waiter),
            payload=payload,
            accepted=accepted,
            attempt=attempt,
            lease=lease,
            waiter=waiter,
            reason=reason,
            child_to=child_to,
            interrupted=interrupted,
            trace={k: v for k, v in trace.items() if k in {"traceparent", "tracestate", "baggage"}},
        )


def clip(text: str) -> str:
    """At most `ERROR_LIMIT` characters, no secret among them, all of which UTF-8 can hold."""
    return hide(text[:SCANNED_LIMIT])[:ERROR_LIMIT].encode(errors="replace").decode()


def is_last_attempt(lease: Lease) -> bool:
    """Whether no attempt may follow this one."""
    return lease.attempt >= ATTEMPT_LIMIT


def _just_delivered(stored: Stored, envelope: Envelope) -> Chain:
    return Chain(
        id=envelope.id,
        stage="delivered",
        tail=stored.event.sequence,
        delivered_sequence=stored.event.sequence,
        attempt=envelope.attempt,
        changed=stored.event.at,
    )
