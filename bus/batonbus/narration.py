"""The ledger's events as lines for a person who watches."""

import time
from collections.abc import Callable
from uuid import UUID

from batonbus.wire.ledger import Stored
from batonbus_schemas import (
    Body,
    Delivery,
    Dispatch,
    Envelope,
    HandoffV1,
    InvalidMessageError,
    Settlement,
    decode,
)

Say = Callable[[str], None]

WORDS_LIMIT = 120
"""Characters of an agent's own words in a line."""


class Narrator:
    """Says each event (of one `work`) as it happens: who hands what to whom, who accepts it, how it
    ends. `since` is the monotonic moment from which its seconds are counted, None the present."""

    def __init__(self, say: Say, *, work: str | None = None, since: float | None = None) -> None:
        self._say = say
        self._work = work
        self._since = time.monotonic() if since is None else since
        self._told: dict[UUID, set[tuple[object, ...]]] = {}
        self._attempts: dict[UUID, int] = {}
        self.delivered: dict[UUID, Envelope] = {}

    def hear(self, stored: Stored) -> None:
        """One event of the ledger. A handoff is told of once the bus has delivered it."""
        if self._work not in {None, stored.event.work} or stored.event.kind == "sent":
            return
        if self._is_known(stored):
            return
        if stored.event.kind == "delivered":
            envelope = decode(stored.payload, Delivery).envelope
            self.delivered[stored.subject.handoff_id] = envelope
        self.tell(stored, self._sentence(stored))

    def _is_known(self, stored: Stored) -> bool:
        """Who listens hears also what the ledger then refuses: the loser of a race, a write that is
        sent again."""
        event = stored.event
        told = self._told.setdefault(stored.subject.handoff_id, set())
        key = (event.kind, event.lease, event.reason)
        known = key in told
        if event.kind == "accepted" and not known:
            told.clear()  # a new attempt may fail as the one before it did
        told.add(key)
        return known

    def tell(self, stored: Stored, sentence: str) -> None:
        """Say something of the handoff that an event is of."""
        envelope = self.delivered.get(stored.subject.handoff_id)
        task = envelope.task if envelope else None
        self._say(f"{since(self._since)}  {self.name(stored):<8}  {task or '':<8} {sentence}")

    def name(self, stored: Stored) -> str:
        """By what a handoff is known, before its task: the beginning of its id."""
        return str(stored.subject.handoff_id)[:8]

    def _sentence(self, stored: Stored) -> str:
        event = stored.event
        match event.kind:
            case "delivered":
                envelope = self.delivered[stored.subject.handoff_id]
                return f"{envelope.sender} → {envelope.to}{_words(_asked(envelope.body))}"
            case "accepted":
                return f"{event.actor} {self._accepts(stored)}"
            case "settled":
                return f"{event.actor} settled{_words(_result(stored.payload))}"
            case _:
                return f"{event.actor} {event.kind}{_words(event.reason)}"

    def _accepts(self, stored: Stored) -> str:
        """A new attempt spends one of three; the same attempt under a new lease is a takeover."""
        attempt, lease = stored.event.attempt or 1, stored.event.lease or 1
        before = self._attempts.get(stored.subject.handoff_id)
        self._attempts[stored.subject.handoff_id] = attempt
        if attempt == before:
            return f"takes over (attempt {attempt}, lease {lease})"
        return "accepts" if attempt == 1 else f"accepts (attempt {attempt})"


def since(moment: float) -> str:
    """The seconds since a monotonic moment, as lines begin with them."""
    return f"{time.monotonic() - moment:5.1f} s"


def _words(text: str) -> str:
    """The first line of what somebody said, printable and cut to the limit, behind a colon."""
    line = " ".join(next(iter(text.strip().splitlines()), "").split())
    line = "".join(it if it.isprintable() else "\N{REPLACEMENT CHARACTER}" for it in line)
    cut = line if len(line) <= WORDS_LIMIT else f"{line[: WORDS_LIMIT - 1]}…"
    return f": {cut}" if cut else ""


def _asked(body: Body) -> str:
    match body:
        case Dispatch():
            return body.brief
        case HandoffV1():
            return body.contract.objective.goal
        case _:
            return ""


def _result(payload: bytes) -> str:
    try:
        result = decode(payload, Settlement).result
    except InvalidMessageError:
        return "a result that cannot be read"
    return f"{result.status}, {result.summary.strip()}"
