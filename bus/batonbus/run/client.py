"""A connected actor that may not read the ledger: it writes its own events, hears what is for it,
and asks the bus for the rest."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import anyio
from msgspec.structs import replace
from opentelemetry.trace import SpanKind

from batonbus.logs import log
from batonbus.rules.chain import Chain, Event, Kind, step
from batonbus.rules.errors import BusUnavailableError, ConflictError, NoAnswerError
from batonbus.rules.policy import Policy
from batonbus.rules.references import refer
from batonbus.rules.settings import Settings
from batonbus.run.asking import (
    ASK_INTERVAL,
    ChainAnswer,
    NotPartOfItError,
    Welcome,
    ask_chain,
    ask_confirm,
    ask_hello,
    until_answered,
)
from batonbus.run.cancellation import cancelled
from batonbus.run.changes import Changes
from batonbus.run.confirmation import Word
from batonbus.run.core import beside
from batonbus.run.lines import Line, Lines
from batonbus.run.policies import Policies
from batonbus.run.references import References
from batonbus.run.telemetry import span
from batonbus.secrecy import find_in
from batonbus.wire.checkpoints import Checkpoints
from batonbus.wire.connection import Connection, connect
from batonbus.wire.ledger import Draft, Ledger, Stored
from batonbus.wire.publisher import LostRaceError, Publisher
from batonbus.wire.registry import Registry
from batonbus.wire.subjects import Subject, answers_to
from batonbus_schemas import (
    AgentCard,
    Envelope,
    InvalidMessageError,
    Question,
    decode,
    encode,
)

HELLO_PATIENCE = 10.0
"""Seconds that a joining process waits for the first keeper to answer."""

COMPARED = ("to", "work", "task", "after", "body")
"""What makes two handoffs with one id the same: content, not times or trace."""

CONFIRM_BATCH = 256
"""Events in one question to a keeper."""

NO_TRACE: Mapping[str, str] = {}

OnCancel = Callable[[UUID], object]


class Client:
    """See `open_client`."""

    def __init__(
        self,
        connection: Connection,
        publisher: Publisher,
        fleet: str,
        settings: Settings,
        policy: Policy,
    ) -> None:
        self.connection = connection
        self.actor = connection.actor
        self.fleet = fleet
        self.settings = settings
        self.policies = Policies(fleet, policy, settings)
        self.ledger = Ledger(connection, publisher, fleet, may_read=False)
        self.registry = Registry(connection, publisher, fleet)
        self.references = References(connection, fleet)
        self.checkpoints = Checkpoints(connection, publisher, fleet)
        self.lines = Lines()
        self._heard: list[Stored] = []
        self._hearing = Changes()
        self.on_cancel: OnCancel = lambda _handoff_id: None

    @property
    def policy(self) -> Policy:
        """The context policy that is in force now."""
        return self.policies.now

    async def ask_policy(self) -> Policy:
        """The policy that the keepers have now; their clock is read again with it. Raises
        NoAnswerError, BusUnavailableError."""
        welcome = await ask_hello(self.connection, self.fleet, None)
        self.connection.set_clock(datetime.fromtimestamp(welcome.now, UTC))
        return welcome.policy

    async def send(
        self,
        envelope: Envelope,
        *,
        accepted: int | None = None,
        carried: Mapping[str, str] = NO_TRACE,
    ) -> Line:
        """Store a handoff and watch its line. The same content under the same id is the same
        handoff: its answers come at once. Long contents of its ref-cache are stored first, and go
        as references. `carried` is the trace context that goes on where nobody records spans.

        Raises InvalidMessageError, ConflictError, MessageTooLargeError, ReferenceTooLargeError.
        """
        if banned := find_in(envelope):
            raise InvalidMessageError(tuple(banned))
        envelope = replace(envelope, body=await self.references.store(envelope.body))
        payload = encode(envelope)
        # Structs made in Python are not checked before they are read: say what is wrong at once.
        # And what was read is what a later send is compared with: lists are tuples there.
        envelope = decode(payload, Envelope)
        line = Line(envelope.id)
        self.lines.watch(line)
        try:
            attributes = {
                "batonbus.handoff": str(envelope.id),
                "batonbus.work": envelope.work,
                "batonbus.to": envelope.to,
            }
            with span(f"send {envelope.to}", SpanKind.PRODUCER, None, attributes) as trace:
                draft = Draft(
                    subject=self.subject(envelope.id, "sent", envelope.work, envelope.to),
                    payload=payload,
                    accepted=accepted,
                    attempt=envelope.attempt,
                    waiter=envelope.reply_to or self.actor,
                    addressee=envelope.to,
                    deadline=envelope.deadline.timestamp() if envelope.deadline else None,
                    question=isinstance(envelope.body, Question),
                    trace=trace or carried,
                )
                await self._store(draft, envelope, line)
        except BaseException:
            self.lines.forget(line)
            raise
        return line

    async def _store(self, draft: Draft, envelope: Envelope, line: Line) -> None:
        tail = 0
        while True:
            try:
                sequence = await self.ledger.append(draft, tail=tail)
            except LostRaceError:
                try:
                    answer = await self.ask(envelope.id)
                except NotPartOfItError as error:
                    # It is stored, and whoever stored it is not this sender.
                    raise ConflictError(envelope.id, ("sender",)) from error
                if answer.chain.stage == "none":
                    # Nothing but void events: the id is still free behind them.
                    tail = answer.chain.tail
                    continue
                if answer.envelope is None:
                    raise ConflictError(envelope.id, COMPARED) from None
                check_same(envelope, answer.envelope)
                self.lines.hear_asked(line, answer)
            else:
                log.info("handoff.sent", handoff=str(envelope.id), to=envelope.to, seq=sequence)
            return

    async def ask(self, handoff_id: UUID, *, root: UUID | None = None) -> ChainAnswer:
        """The state of a handoff, as soon as a keeper answers."""
        ask = partial(ask_chain, self.connection, self.fleet, handoff_id, root=root)
        return await until_answered(ask, "ask", handoff=str(handoff_id))

    async def poll(self) -> None:
        """Once a heartbeat, look in the ledger for what the waiting lines may have missed: messages
        to a waiter can be lost, the ledger cannot. Never returns."""
        while True:
            await anyio.sleep(self.settings.heartbeat)
            self.lines.sweep()
            for line in self.lines.waiting():
                try:
                    answer = await ask_chain(
                        self.connection, self.fleet, line.current, root=line.root
                    )
                except (NoAnswerError, BusUnavailableError) as error:
                    log.debug("ask.unanswered", handoff=str(line.current), error=str(error))
                else:
                    self.lines.hear_asked(line, answer)

    async def cancel(self, line: Line, reason: str) -> bool:
        """End a line with `cancelled` where it stands; returns whether it was still open. What was
        asked for inside its handler a keeper ends. Raises IllegalStepError where this actor may
        not."""
        written = False
        while not line.ended:
            answer = await self.ask(line.current, root=line.root)
            self.lines.hear_asked(line, answer)
            if not answer.chain.final:
                written = await self._write_cancelled(answer.chain, reason)
        return written

    async def _write_cancelled(self, chain: Chain, reason: str) -> bool:
        if chain.stage == "none":
            # A settled handoff's next one, which the window manager is just about to deliver.
            await anyio.sleep(ASK_INTERVAL)
            return False
        event = Event(sequence=chain.tail + 1, kind="cancelled", actor=self.actor, tail=chain.tail)
        step(chain, event)
        draft = cancelled(self.fleet, chain, by=self.actor, reason=reason)
        try:
            await self.ledger.append(draft, tail=chain.tail)
        except LostRaceError:
            # The winner may be our own write, whose answer was lost.
            answer = await self.ask(chain.id)
            said = answer.receipt
            return said is not None and (said.state, said.by) == ("cancelled", self.actor)
        return True

    def subject(self, handoff_id: UUID, kind: Kind, work: str, to: str) -> Subject:
        """The subject of an event that this actor writes."""
        return Subject(self.fleet, handoff_id, kind, work, self.actor, to)

    def hear(self, stored: Stored) -> None:
        """An event that is for us; it is no proof, for whoever may write an event can say it."""
        if stored.event.kind in {"cancelled", "dead"}:
            self.on_cancel(stored.subject.handoff_id)
        # Also of handoffs that no line is at: a line may be just about to move there.
        if self.lines and stored.event.kind not in {"sent", "delivered"}:
            self._heard.append(stored)
            self._hearing.tell()

    async def confirm(self) -> None:
        """Believe what was heard once a keeper says that it counts: all that came meanwhile in one
        question. What it does not know, the next poll finds in the ledger. Never returns."""
        while True:
            while not self._heard:
                await self._hearing.wait()
            heard, self._heard = self._heard, []
            for some in batched(heard, CONFIRM_BATCH):
                words = tuple(
                    Word(it.subject.handoff_id, it.event.tail, it.event.kind, it.event.actor)
                    for it in some
                )
                try:
                    counts = await ask_confirm(self.connection, self.fleet, words)
                except (NoAnswerError, BusUnavailableError) as error:
                    # What was heard with them would wait as long, and more is heard meanwhile.
                    log.warning("answers.unconfirmed", count=len(heard), error=str(error))
                    break
                for stored, counts_ in zip(some, counts, strict=True):
                    self._believe(stored, counts_)

    def _believe(self, stored: Stored, counts: bool) -> None:
        if not counts:
            log.warning("security.unconfirmed_answer", subject=str(stored.subject))
            return
        try:
            self.lines.hear(stored)
        except InvalidMessageError as error:
            log.warning("answer.unreadable", subject=str(stored.subject), error=str(error))


def batched(items: list[Stored], size: int) -> list[list[Stored]]:
    """The items in order, at most `size` together."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def check_same(ours: Envelope, stored: Envelope) -> None:
    """Raises ConflictError where two handoffs with one id differ in content; that one has it in its
    ref-cache and the other refers to it is no difference."""
    ours, stored = _as_referred(ours), _as_referred(stored)
    differing = tuple(it for it in COMPARED if getattr(ours, it) != getattr(stored, it))
    if differing:
        raise ConflictError(ours.id, differing)


def _as_referred(envelope: Envelope) -> Envelope:
    body, _ = refer(envelope.body)
    return replace(envelope, body=body)


@asynccontextmanager
async def open_client(
    url: str, actor: str, *, fleet: str, card: AgentCard | None = None
) -> AsyncGenerator[Client]:
    """Connect an actor (with a card: an agent that joins the fleet).

    Raises BusUnavailableError where there is no server, or no keeper answers in time; and out of
    the block when NATS closes the connection for good.
    """
    async with connect(url, actor) as connection, Publisher(connection) as publisher:
        welcome = await _say_hello(connection, fleet, card)
        connection.set_clock(datetime.fromtimestamp(welcome.now, UTC))
        client = Client(connection, publisher, fleet, welcome.settings, welcome.policy)
        await client.ledger.listen(answers_to(fleet, actor), client.hear)
        follow_policy = partial(client.policies.watch, client.ask_policy)
        async with beside(connection.wait_closed, client.poll, client.confirm, follow_policy):
            yield client


async def _say_hello(connection: Connection, fleet: str, card: AgentCard | None) -> Welcome:
    with anyio.move_on_after(HELLO_PATIENCE):
        while True:
            try:
                return await ask_hello(connection, fleet, card)
            except NoAnswerError:
                await anyio.sleep(0.1)
    raise BusUnavailableError(
        f"no receipt keeper of the fleet {fleet!r} answers at {connection.address}: "
        "start the bus with `batonbus up`, or a keeper with `batonbus run receipt-keeper`"
    )
