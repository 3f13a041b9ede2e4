"""Events made by hand, as a ledger would hold them."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from batonbus.rules.chain import WINDOW_MANAGER, Event, Kind, child_id
from batonbus.wire.ledger import Stored
from batonbus.wire.subjects import Subject
from batonbus_schemas import (
    Cut,
    Delivery,
    DetailLevel,
    Dispatch,
    Envelope,
    Settlement,
    TaskResult,
    WindowEntry,
    encode,
)
from batonbus_schemas.context import Edge
from batonbus_schemas.envelope import Parent

CONTEXT_BYTES = 100
SHOWN_BYTES = {DetailLevel.FULL: CONTEXT_BYTES, DetailLevel.SUMMARY: 30}


class MadeLedger:
    """What was written so far, and the time, in seconds, at which the next event is stored."""

    def __init__(self) -> None:
        self.events: list[Stored] = []
        self.time = 100.0

    def send(
        self, sender: str, to: str, *, after: Sequence[UUID] = (), **fields: object
    ) -> Envelope:
        """A handoff that was sent, and not delivered yet; `after` are its task's earlier stages."""
        made = make_envelope(uuid4(), sender, to, after, **fields)
        self.add(made, "sent", sender, encode(made))
        return made

    def deliver(
        self,
        envelope: Envelope,
        full: Sequence[Envelope] = (),
        summary: Sequence[Envelope] = (),
    ) -> None:
        """The window manager delivers it with these two parts of its window."""
        shown = [(it, DetailLevel.FULL) for it in full]
        shown += [(it, DetailLevel.SUMMARY) for it in summary]
        delivery = Delivery(
            envelope=envelope,
            opener=envelope.to,
            window=tuple(_entry(it, level) for it, level in shown),
            cuts=tuple(_cut(it, level) for it, level in shown),
        )
        self.add(envelope, "delivered", WINDOW_MANAGER, encode(delivery), to=envelope.to)

    def accept(self, envelope: Envelope, actor: str, *, lease: int = 1, attempt: int = 0) -> None:
        """An agent takes it."""
        attempt = attempt or envelope.attempt
        self.add(envelope, "accepted", actor, attempt=attempt, lease=lease)

    def settle(self, envelope: Envelope, result: TaskResult, then: str = "") -> Envelope:
        """Its owner settles it, and hands on to `then`; gives that next handoff, or itself."""
        accepted = next(
            it.event
            for it in reversed(self.events)
            if it.subject.handoff_id == envelope.id and it.event.kind == "accepted"
        )
        child = make_envelope(child_id(envelope.id), accepted.actor, then, (envelope.id,))
        settlement = Settlement(result=result, next=child if then else None)
        self.add(
            envelope,
            "settled",
            accepted.actor,
            encode(settlement),
            accepted=accepted.sequence,
            child_to=then or None,
        )
        return child if then else envelope

    def run(
        self,
        sender: str,
        to: str,
        *,
        full: Sequence[Envelope] = (),
        summary: Sequence[Envelope] = (),
        **fields: object,
    ) -> Envelope:
        """A handoff from its sending to its result, one event each tenth of a second."""
        envelope = self.send(sender, to, after=[it.id for it in full], **fields)
        self.deliver(envelope, full, summary)
        self.accept(envelope, f"{to}-1")
        return self.settle(envelope, TaskResult.passed("Done."))

    def add(
        self, envelope: Envelope, kind: Kind, actor: str, payload: bytes = b"", **marks: object
    ) -> None:
        """An event that names the tail of its chain."""
        mine = [it for it in self.events if it.subject.handoff_id == envelope.id]
        self.time = round(self.time + 0.1, 3)
        event = Event(
            sequence=len(self.events) + 1,
            kind=kind,
            actor=actor,
            tail=mine[-1].event.sequence if mine else 0,
            at=self.time,
            work=envelope.work,
            **{"to": envelope.to, **marks},
        )
        subject = Subject("default", envelope.id, kind, envelope.work, actor, event.to)
        self.events.append(Stored(event=event, subject=subject, payload=payload, headers={}))


def make_envelope(
    handoff_id: UUID, sender: str, to: str, after: Sequence[UUID], **fields: object
) -> Envelope:
    parents = tuple(Parent(handoff_id=it, sequence=1, bytes=CONTEXT_BYTES) for it in after)
    return Envelope(
        id=handoff_id,
        sender=sender,
        to=to,
        body=Dispatch(brief=f"Do what a {to} does."),
        **{"stage_parents": parents, **fields},
    )


def task_parents(*before: Envelope) -> tuple[Parent, ...]:
    return tuple(Parent(handoff_id=it.id, sequence=1, bytes=CONTEXT_BYTES) for it in before)


def _entry(of: Envelope, level: DetailLevel) -> WindowEntry:
    return WindowEntry(
        distance=1 if level is DetailLevel.FULL else 2,
        level=level,
        edge=Edge.STAGE,
        from_=of.to,
        handoff_id=of.id,
        what="Done.",
        task=of.task,
    )


def _cut(of: Envelope, level: DetailLevel) -> Cut:
    return Cut(
        distance=1 if level is DetailLevel.FULL else 2,
        level=level,
        edge=Edge.STAGE,
        handoff_id=of.id,
        bytes_before=CONTEXT_BYTES,
        bytes_after=SHOWN_BYTES[level],
    )
