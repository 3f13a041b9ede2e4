"""The chain of one handoff: which event may follow which, written by whom.

Everything that decides about a step stands in this file: the table `MAY_FOLLOW`, the writers
`BUS_WRITES`, and the guards of `objection`. The ledger's order is the truth; a timestamp never is.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, get_args
from uuid import UUID, uuid5

from msgspec import Meta, Struct
from msgspec.structs import replace

from batonbus.rules.errors import BatonbusError
from batonbus_schemas.tokens import Token

Kind = Literal[
    "sent",
    "delivered",
    "held",
    "overdue",
    "accepted",
    "refused",
    "failed",
    "settled",
    "dead",
    "cancelled",
]
Stage = Literal["none"] | Kind

KINDS: frozenset[Kind] = frozenset(get_args(Kind))
FINAL: frozenset[Stage] = frozenset({"refused", "settled", "dead", "cancelled"})
OPEN: frozenset[Stage] = KINDS - FINAL
"""Stages of a chain that has begun and not ended."""

WINDOW_MANAGER = "window-manager"
RECEIPT_KEEPER = "receipt-keeper"
OPERATOR = "operator"
BUS_ACTORS = frozenset({WINDOW_MANAGER, RECEIPT_KEEPER, OPERATOR})

ATTEMPT_LIMIT = 3
"""Attempts that one handoff may use (seed 000: two retries, three attempts in all)."""

TAKEOVER_LIMIT = 5
"""Times that a handoff may change hands in all, whatever attempt it is."""

LINE_LIMIT = 1_000
"""Handoffs of one line that are looked through for one of them."""

MAY_FOLLOW: Mapping[Kind, frozenset[Stage]] = {
    "sent": frozenset({"none"}),
    "delivered": frozenset({"sent", "held", "overdue"}),
    "held": frozenset({"sent", "delivered", "overdue", "held"}),
    "overdue": frozenset({"sent", "delivered", "held"}),
    "accepted": frozenset({"delivered", "held", "overdue", "failed", "accepted"}),
    "refused": frozenset({"sent", "delivered", "held", "overdue", "accepted"}),
    "failed": frozenset({"accepted"}),
    "settled": frozenset({"accepted"}),
    "dead": OPEN,
    "cancelled": OPEN,
}

BUS_WRITES: Mapping[Kind, frozenset[str]] = {
    "delivered": frozenset({WINDOW_MANAGER}),
    "held": frozenset({WINDOW_MANAGER, RECEIPT_KEEPER}),
    "overdue": frozenset({RECEIPT_KEEPER}),
    "dead": frozenset({RECEIPT_KEEPER, OPERATOR}),
}
"""Events that only the bus's own actors write."""


Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Marks(Struct, frozen=True, kw_only=True):
    """What an event says beside its subject and its payload; `accepted` is the accepted event that
    it acts under, `deadline` the server's moment (Unix seconds) at which nobody waits any more, and
    `question` says that a person may be asked."""

    accepted: Number | None = None
    attempt: Number | None = None
    lease: Number | None = None
    waiter: Token | None = None
    addressee: Token | None = None
    reason: str = ""
    child_to: Token | None = None
    interrupted: bool = False
    deadline: float | None = None
    question: bool = False


class Event(Marks, frozen=True, kw_only=True):
    """One stored step of a handoff, as its subject and header tell it.

    `kind` is "unknown" for a message among a chain's subjects that is no event: it is void, but it
    moves the tail. `tail` is the sequence of the chain's tail that the writer saw (0: it saw none);
    `at` is the server's time of storing, in Unix seconds.
    """

    sequence: int
    kind: Kind | Literal["unknown"]
    actor: str
    tail: int
    at: float = 0.0
    to: str = "_"
    work: str = ""


class Chain(Struct, frozen=True, kw_only=True):
    """The folded state of one handoff. `owner` and `owner_sequence` name the newest accepted."""

    id: UUID
    stage: Stage = "none"
    tail: int = 0
    began: float = 0.0
    changed: float = 0.0
    work: str = ""
    sender: str | None = None
    waiter: str | None = None
    addressee: str | None = None
    deadline: float | None = None
    question: bool = False
    reason: str = ""
    sent_under: int | None = None
    delivered_sequence: int | None = None
    settled_sequence: int | None = None
    child: UUID | None = None
    owner: str | None = None
    owner_sequence: int | None = None
    attempt: int = 1
    lease: int = 0
    takeovers: int = 0
    interrupted: bool = False
    void: tuple[int, ...] = ()

    @property
    def final(self) -> bool:
        """Whether nothing more can happen to this handoff."""
        return self.stage in FINAL

    @property
    def next_attempt(self) -> int:
        """The attempt that the next accepted event makes: one that was interrupted, because its
        agent was stopped in order, is made again and spends nothing."""
        failed = self.stage == "failed" and not self.interrupted
        return self.attempt + 1 if failed else self.attempt


class IllegalStepError(BatonbusError, ValueError):
    """An event does not fit the chain: it names the state, the event and the actor."""

    def __init__(self, chain: Chain, event: Event, objection: str) -> None:
        self.chain, self.event, self.objection = chain, event, objection
        super().__init__(
            f"handoff {chain.id} is {chain.stage} at {chain.tail}: "
            f"{event.kind} by {event.actor} is not allowed, {objection}"
        )


def objection(chain: Chain, event: Event) -> str | None:
    """Why this event may not follow this chain, or None where it may."""
    if event.kind == "unknown":
        return "it is no event of a handoff"
    if event.tail != chain.tail:
        return f"its writer saw the tail {event.tail}, not {chain.tail}"
    if event.actor not in BUS_WRITES.get(event.kind, {event.actor}):
        return "only the bus writes it"
    # A settled handoff's next one has no `sent` of its own: the bus opens it, nobody else does.
    opened = chain.stage == "none" and event.kind != "sent" and event.actor in BUS_ACTORS
    if ("sent" if opened else chain.stage) not in MAY_FOLLOW[event.kind]:
        return f"nothing of that kind follows {chain.stage}"
    guard = _GUARDS.get(event.kind)
    return guard(chain, event) if guard else None


def _guard_accepted(chain: Chain, event: Event) -> str | None:
    if chain.delivered_sequence is None:
        return "it was never delivered"
    if event.attempt != chain.next_attempt or chain.next_attempt > ATTEMPT_LIMIT:
        return f"the next attempt is {chain.next_attempt} of {ATTEMPT_LIMIT}"
    if event.lease != chain.lease + 1:
        return f"the next lease is {chain.lease + 1}"
    if chain.stage == "accepted" and chain.takeovers >= TAKEOVER_LIMIT:
        return f"it changed hands {TAKEOVER_LIMIT} times"
    return None


def _guard_owner(chain: Chain, event: Event) -> str | None:
    if event.actor != chain.owner or event.accepted != chain.owner_sequence:
        return f"its owner is {chain.owner} by the accepted event {chain.owner_sequence}"
    return None


def _guard_refused(chain: Chain, event: Event) -> str | None:
    return _guard_owner(chain, event) if chain.stage == "accepted" else None


def _guard_held(chain: Chain, event: Event) -> str | None:
    if chain.stage == "held" and event.reason == chain.reason:
        return "it is held for that reason already"
    return None


def _guard_cancelled(chain: Chain, event: Event) -> str | None:
    # The keeper: for one that is not there to do it (see decisions/orphans.md).
    if event.actor not in {chain.sender, chain.waiter, OPERATOR, RECEIPT_KEEPER}:
        return f"only its sender {chain.sender} or an operator may cancel it"
    return None


_GUARDS = {
    "accepted": _guard_accepted,
    "refused": _guard_refused,
    "failed": _guard_owner,
    "settled": _guard_owner,
    "held": _guard_held,
    "cancelled": _guard_cancelled,
}


def step(chain: Chain, event: Event) -> Chain:
    """The chain after this event. Raises IllegalStepError where the event may not follow."""
    problem = objection(chain, event)
    if problem is not None:
        raise IllegalStepError(chain, event, problem)
    after = replace(
        chain,
        stage=event.kind,
        tail=event.sequence,
        began=chain.began or event.at,
        changed=event.at,
        interrupted=event.interrupted,
        work=event.work or chain.work,
        reason=event.reason,
        waiter=_told(event, chain.waiter, event.waiter),
        addressee=_told(event, chain.addressee, event.addressee),
    )
    match event.kind:
        case "sent":
            return replace(
                after,
                sender=event.actor,
                attempt=event.attempt or 1,
                sent_under=event.accepted,
                deadline=event.deadline,
                question=event.question,
            )
        case "delivered":
            # A child has no `sent` that could say its first attempt.
            attempt = event.attempt or chain.attempt
            return replace(
                after,
                delivered_sequence=event.sequence,
                attempt=attempt,
                deadline=event.deadline,
                question=event.question,
            )
        case "accepted":
            return replace(
                after,
                owner=event.actor,
                owner_sequence=event.sequence,
                attempt=chain.next_attempt,
                lease=chain.lease + 1,
                takeovers=chain.takeovers + (chain.stage == "accepted"),
            )
        case "settled":
            return replace(
                after,
                settled_sequence=event.sequence,
                child=child_id(chain.id) if event.child_to else None,
            )
        case _:
            return after


def _told(event: Event, known: str | None, said: str | None) -> str | None:
    """Who is told, or asked: as the first event says it, then as the bus does; no receiver may turn
    the answers to somebody else."""
    return (said or known) if known is None or event.actor in BUS_ACTORS else known


def fold(chain: Chain, events: Iterable[Event]) -> Chain:
    """The chain after these events. A void event (one that may not follow) changes nothing but the
    tail's number, and is listed in `void`."""
    for event in events:
        try:
            chain = step(chain, event)
        except IllegalStepError:
            chain = replace(chain, tail=event.sequence, void=(*chain.void, event.sequence))
    return chain


def child_id(parent: UUID) -> UUID:
    """The id of the handoff that a settled one hands on to."""
    return uuid5(parent, "then")


def is_in_line(root: UUID, handoff_id: UUID) -> bool:
    """Whether a handoff is `root`, or one that it was handed on to, at most LINE_LIMIT times."""
    current = root
    for _ in range(LINE_LIMIT):
        if current == handoff_id:
            return True
        current = child_id(current)
    return False


def retry_id(tried: UUID) -> UUID:
    """The id of the handoff that tries a dead one again: there is one, whoever asks for it."""
    return uuid5(tried, "retry")


def keyed_id(handled: UUID, key: str) -> UUID:
    """The id of a handoff sent inside a handler: the same key is the same handoff, in any attempt
    and after any crash."""
    return uuid5(handled, f"send:{key}")


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    edges = [
        f"    {before} --> {kind}"
        for kind, befores in MAY_FOLLOW.items()
        for before in sorted(befores)
        if before != "none"
    ]
    ends = [f"    {stage} --> [*]" for stage in sorted(FINAL)]
    return "\n".join(["stateDiagram-v2", "    [*] --> sent", *edges, *ends]) + "\n"
