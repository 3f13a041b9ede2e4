"""Reads a ledger as it lies on the server, and says everything that must not be there.

It knows the wire format and nothing of the bus's own rules: what they decide is what it checks. It
reads with plain nats-py and imports nothing of batonbus.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec
import nats
from nats.js.api import RawStreamMsg

AT_ONCE = 100
"""Messages that are read at a time."""

FINAL = {"refused", "settled", "dead", "cancelled"}
OF_THE_BUS = {
    "delivered": {"window-manager"},
    "held": {"window-manager", "receipt-keeper"},
    "overdue": {"receipt-keeper"},
    "dead": {"receipt-keeper"},
}


@dataclass(frozen=True)
class Message:
    """One message of the stream: where it lies, its subject, its one header of ours, its payload as
    it was read from JSON, and the server's time of storing in Unix seconds."""

    sequence: int
    subject: str
    marks: Mapping[str, Any] = field(default_factory=dict)
    payload: Any = None
    at: float = 0.0

    @property
    def handoff(self) -> UUID:
        return UUID(self.subject.split(".")[2])

    @property
    def kind(self) -> str:
        return self.subject.split(".")[3]

    @property
    def actor(self) -> str:
        return self.subject.split(".")[5]

    @property
    def to(self) -> str:
        return self.subject.split(".")[6]


Chains = Mapping[UUID, list[Message]]


class Complaint(NamedTuple):
    """One thing that must not be: of which kind, and what."""

    kind: str
    text: str


UNACCOUNTED = "unaccounted"
"""Not in exactly one final state."""

STALE = "stale"
"""Written under a lease that was not the newest one."""

UNSENT = "unsent"
"""Nobody sent it."""

OTHER = "other"


async def read_messages(url: str, fleet: str) -> list[Message]:
    """Every message of the fleet's stream, in its order."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        name = f"BATONBUS_{fleet}"
        last = (await stream.stream_info(name)).state.last_seq
        stored: list[RawStreamMsg] = []
        for start in range(1, last + 1, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, last + 1))
            stored += await asyncio.gather(*(stream.get_msg(name, it) for it in numbers))
    finally:
        await client.close()
    return [
        Message(
            sequence=number,
            subject=it.subject or "",
            marks=msgspec.json.decode((it.headers or {}).get("Batonbus", "{}")),
            payload=msgspec.json.decode(it.data) if it.data else None,
            at=it.time.timestamp() if it.time else 0.0,
        )
        for number, it in enumerate(stored, start=1)
    ]


def by_handoff(messages: Iterable[Message]) -> dict[UUID, list[Message]]:
    """The chains that these messages make."""
    chains: dict[UUID, list[Message]] = {}
    for message in messages:
        chains.setdefault(message.handoff, []).append(message)
    return chains


def check(
    messages: Iterable[Message],
    *,
    acknowledged: Iterable[UUID],
    planned: Iterable[UUID],
    keys: Iterable[str] = (),
    agents: Mapping[str, set[str]],
) -> list[Complaint]:
    """All that is wrong with a ledger whose work is over; an empty list where nothing is.

    `acknowledged` are the handoffs that their sender knows to be stored, `planned` all that it
    meant to send, `keys` those by which handlers send, `agents` the agents of each role.
    """
    chains = by_handoff(messages)
    problems = [
        Complaint(UNACCOUNTED, f"{it}: acknowledged, but not in the ledger")
        for it in acknowledged
        if it not in chains
    ]
    children = handed_on(chains)
    known = {*planned, *children, *_sent_by_handlers(chains, set(keys))}
    for handoff, chain in chains.items():
        found = [*_check_ends(chain), *_check_order(chain), *_check_writers(chain, agents)]
        if handoff not in known:
            found.append(Complaint(UNSENT, "nobody sent it"))
        problems += [Complaint(it.kind, f"{handoff}: {it.text}") for it in found]
    problems += [
        Complaint(UNACCOUNTED, f"{it}: a settled handoff hands on to it, but it never began")
        for it in children
        if it not in chains
    ]
    return problems


def _check_ends(chain: list[Message]) -> list[Complaint]:
    ends = [it.kind for it in chain if it.kind in FINAL]
    if len(ends) != 1:
        are = ", ".join(ends) or chain[-1].kind
        return [Complaint(UNACCOUNTED, f"{len(ends)} final events instead of 1: {are}")]
    if chain[-1].kind in FINAL:
        return []
    return [Complaint(OTHER, f"{chain[-1].kind} after its end")]


def _check_order(chain: list[Message]) -> list[Complaint]:
    """Each writer saw the tail; who answers holds the newest accepted event."""
    problems: list[Complaint] = []
    tail, lease, owner = 0, 0, None
    for message in chain:
        if (saw := message.marks.get("tail")) != tail:
            problems.append(Complaint(OTHER, f"{message.kind} saw the tail {saw}, not {tail}"))
        tail = message.sequence
        if message.kind == "accepted":
            if message.marks.get("lease") != lease + 1:
                text = f"lease {message.marks.get('lease')} follows lease {lease}"
                problems.append(Complaint(OTHER, text))
            lease, owner = lease + 1, message
        answers = message.kind in {"settled", "failed"}
        if answers or (message.kind == "refused" and owner is not None):
            named = message.marks.get("accepted")
            if owner is None or (named, message.actor) != (owner.sequence, owner.actor):
                text = (
                    f"{message.kind} by {message.actor} names the accepted event {named}; "
                    f"the newest one is {owner and owner.sequence} by {owner and owner.actor}"
                )
                problems.append(Complaint(STALE, text))
    kinds = [it.kind for it in chain]
    problems += [
        Complaint(OTHER, f"{kinds.count(it)} times {it}")
        for it in ("sent", "delivered")
        if kinds.count(it) > 1
    ]
    return problems


def _check_writers(chain: list[Message], agents: Mapping[str, set[str]]) -> list[Complaint]:
    """The bus writes its own events; only those who are addressed answer."""
    problems: list[Complaint] = []
    addressee = next((it.to for it in chain if it.kind == "delivered"), chain[0].to)
    addressed = agents.get(addressee, {addressee})
    for message in chain:
        allowed = OF_THE_BUS.get(message.kind, addressed)
        if message.kind == "refused":
            allowed = addressed | {"window-manager"}
        if message.kind not in {"sent", "cancelled"} and message.actor not in allowed:
            text = f"{message.kind} by {message.actor}, who is not one of {sorted(allowed)}"
            problems.append(Complaint(OTHER, text))
    return problems


def handed_on(chains: Chains) -> dict[UUID, Message]:
    """The handoffs that settled ones hand on to, each with the event that does so."""
    return {
        uuid5(it.handoff, "then"): it
        for chain in chains.values()
        for it in chain
        if it.kind == "settled" and it.marks.get("child_to")
    }


def _sent_by_handlers(chains: Chains, keys: set[str]) -> set[UUID]:
    """The handoffs that the owners of accepted ones sent under their own accepted event."""
    accepted = {
        it.sequence: it for chain in chains.values() for it in chain if it.kind == "accepted"
    }
    found: set[UUID] = set()
    for handoff, (first, *_) in chains.items():
        under = accepted.get(first.marks.get("accepted", 0))
        if first.kind != "sent" or under is None or under.actor != first.actor:
            continue
        if handoff in {uuid5(under.handoff, f"send:{key}") for key in keys}:
            found.add(handoff)
    return found
