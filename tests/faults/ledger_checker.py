"""Reads a ledger as it lies on the server, and says everything that must not be there.

It knows the wire format and nothing of the bus's own rules: what they decide is what it checks. It
reads with plain nats-py and imports nothing of batonbus.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

import msgspec
import nats

FINAL = {"refused", "settled", "dead", "cancelled"}
OF_THE_BUS = {
    "delivered": {"window-manager"},
    "held": {"window-manager", "receipt-keeper"},
    "overdue": {"receipt-keeper"},
    "dead": {"receipt-keeper"},
}


@dataclass(frozen=True)
class Message:
    """One message of the stream: where it lies, its subject, its one header of ours."""

    sequence: int
    subject: str
    marks: Mapping[str, Any] = field(default_factory=dict)

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


async def read_messages(url: str, fleet: str) -> list[Message]:
    """Every message of the fleet's stream, in its order."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        name = f"BATONBUS_{fleet}"
        last = (await stream.stream_info(name)).state.last_seq
        stored = [await stream.get_msg(name, sequence) for sequence in range(1, last + 1)]
    finally:
        await client.close()
    return [
        Message(
            sequence=number,
            subject=it.subject or "",
            marks=msgspec.json.decode((it.headers or {}).get("Batonbus", "{}")),
        )
        for number, it in enumerate(stored, start=1)
    ]


def check(
    messages: Iterable[Message],
    *,
    acknowledged: Iterable[UUID],
    planned: Iterable[UUID],
    keys: Iterable[str] = (),
    agents: Mapping[str, set[str]],
) -> list[str]:
    """All that is wrong with a ledger whose work is over; an empty list where nothing is.

    `acknowledged` are the handoffs that their sender knows to be stored, `planned` all that it
    meant to send, `keys` those by which handlers send, `agents` the agents of each role.
    """
    chains: dict[UUID, list[Message]] = {}
    for message in messages:
        chains.setdefault(message.handoff, []).append(message)
    problems = [
        f"{it}: acknowledged, but not in the ledger" for it in acknowledged if it not in chains
    ]
    known = set(planned) | _sent_by_handlers(chains, set(keys)) | _handed_on(chains)
    for handoff, chain in chains.items():
        found = [*_check_ends(chain), *_check_order(chain), *_check_writers(chain, agents)]
        if handoff not in known:
            found.append("nobody sent it")
        problems += [f"{handoff}: {it}" for it in found]
    for handoff in _handed_on(chains) - set(chains):
        problems.append(f"{handoff}: a settled handoff hands on to it, but it never began")
    return problems


def _check_ends(chain: list[Message]) -> list[str]:
    ends = [it.kind for it in chain if it.kind in FINAL]
    if len(ends) != 1:
        return [f"{len(ends)} final events instead of 1: {', '.join(ends) or chain[-1].kind}"]
    return [] if chain[-1].kind in FINAL else [f"{chain[-1].kind} after its end"]


def _check_order(chain: list[Message]) -> list[str]:
    """Each writer saw the tail; who answers holds the newest accepted event."""
    problems: list[str] = []
    tail, lease, owner = 0, 0, None
    for message in chain:
        if message.marks.get("tail") != tail:
            problems.append(f"{message.kind} saw the tail {message.marks.get('tail')}, not {tail}")
        tail = message.sequence
        if message.kind == "accepted":
            if message.marks.get("lease") != lease + 1:
                problems.append(f"lease {message.marks.get('lease')} follows lease {lease}")
            lease, owner = lease + 1, message
        if message.kind in {"settled", "failed"}:
            named = message.marks.get("accepted")
            if owner is None or (named, message.actor) != (owner.sequence, owner.actor):
                problems.append(
                    f"{message.kind} by {message.actor} names the accepted event {named}; "
                    f"the newest one is {owner and owner.sequence} by {owner and owner.actor}"
                )
    kinds = [it.kind for it in chain]
    problems += [
        f"{kinds.count(it)} times {it}" for it in ("sent", "delivered") if kinds.count(it) > 1
    ]
    return problems


def _check_writers(chain: list[Message], agents: Mapping[str, set[str]]) -> list[str]:
    """The bus writes its own events; only those who are addressed answer."""
    problems: list[str] = []
    addressee = next((it.to for it in chain if it.kind == "delivered"), chain[0].to)
    addressed = agents.get(addressee, {addressee})
    for message in chain:
        allowed = OF_THE_BUS.get(message.kind, addressed)
        if message.kind == "refused":
            allowed = addressed | {"window-manager"}
        if message.kind not in {"sent", "cancelled"} and message.actor not in allowed:
            problems.append(
                f"{message.kind} by {message.actor}, who is not one of {sorted(allowed)}"
            )
    return problems


def _handed_on(chains: Chains) -> set[UUID]:
    """The handoffs that settled ones hand on to."""
    return {
        uuid5(it.handoff, "then")
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
