"""What the model knows at one moment, and the ledger: the only way in which anything changes for
all. The chain, its table and its guards are the product's own.

Only equality of sequences ever matters, so each handoff has five fixed ones, whatever its length:
the new event, the tail, the delivered, the settled and the newest accepted event. Whoever holds an
older one holds `STALE`. So states that differ only in their numbers are one state.
"""

from typing import Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from batonbus.rules.chain import BUS_ACTORS, BUS_WRITES, OPERATOR, Chain, Event, child_id, fold

STALE = -1
SENDER, ROGUE = "sender", "rogue"
ENDED = frozenset({"refused", "settled", "dead", "cancelled"})
"""The model's own word for it: the property must not change with the rule that it judges."""

STARTS = 3
"""Attempts, as seed 000 promises them. Only a fault may make one more start."""

BUS_KINDS, BUS_NAMES = frozenset(BUS_WRITES), frozenset(BUS_ACTORS)

Shape = Literal["one", "line", "fan"]
Fault = Literal["kill", "manager", "answer", "late", "pause", "stop", "gate", "repeat"]
Harm = Literal["twice", "stale", "robbed", "stuck", "lost", "dark", "denied", "endless"]
HARMS: dict[Harm, str] = {
    "twice": "a second final event of a handoff counted",
    "stale": "an event counted whose writer had no right to it, or had not seen the chain's tail",
    "robbed": "a handoff was taken from an owner that nobody had reason to think gone",
    "stuck": "from some state on no end is reachable",
    "lost": "from some state on it can only be given up, though its agents are there",
    "dark": "an open handoff is unanswered, and a keeper that looks may not answer",
    "denied": "an open handoff that its sender or an operator may not end",
    "endless": "work is started, or events are written, again and again without any further fault",
}


class HarmError(Exception):
    """A property does not hold."""

    def __init__(self, harm: Harm, what: str) -> None:
        self.harm, self.what = harm, what
        super().__init__(f"{harm}: {what}")


class Scenario(Struct, frozen=True, kw_only=True):
    """Who takes part, what may go wrong, and how often (`budget` faults in all, one stray write
    beside them); nothing happens to the agents that are `safe`.

    A "line" hands on to a second handoff in the same write; a "fan" asks `questions` others from
    inside of the first one's handler. `broken` breaks the contract, `shut` says that the gate is
    shut at first; `strays` are the events that a rogue may write, each with whether it guesses the
    tail. `without` names a habit of the writers that is left out; rules of the product are left out
    by patching the product.
    """

    name: str
    shape: Shape = "one"
    workers: tuple[str, ...] = ("A", "B")
    answerers: tuple[str, ...] = ()
    questions: int = 2
    safe: tuple[str, ...] = ()
    managers: int = 1
    keepers: int = 1
    outcomes: tuple[str, ...] = ("settled",)
    broken: bool = False
    budget: int = 0
    faults: frozenset[Fault] = frozenset()
    strays: tuple[tuple[str, bool], ...] = ()
    cancels: bool = False
    returns: bool = True
    shut: bool = False
    without: str = ""

    @property
    def handoffs(self) -> int:
        """How many chains there are."""
        return {"one": 1, "line": 2, "fan": 1 + self.questions}[self.shape]

    def readers(self, handoff: int) -> tuple[str, ...]:
        """The agents that a handoff is addressed to."""
        return self.answerers if self.shape == "fan" and handoff else self.workers


class Mail(Struct, frozen=True, order=True):
    """A message of a durable consumer: which handoff it moves, and whether its event counted.

    `tail` is the moved chain's tail as the message alone tells it, `again` says that it was handed
    out before, `gone` that somebody else acked it while it was in hand.
    """

    handoff: int
    kind: str
    counts: bool
    admitted: bool
    tail: int
    again: bool = False
    gone: bool = False

    @property
    def key(self) -> tuple[int, str, bool]:
        """One message, whoever has it in hand."""
        return self.handoff, self.kind, self.counts


class Writing(Struct, frozen=True):
    """An event that is decided and not yet written."""

    handoff: int
    event: Event


class Manager(Struct, frozen=True):
    """A window manager: the message in its hand, and what it is about to write."""

    mail: Mail | None = None
    writing: Writing | None = None


class Worker(Struct, frozen=True):
    """An agent with one slot.

    `entry` is what the registry says: None (not there), 0 (there, idle), else the accepted event
    that it works under. `accepted` is its lease, `tail` the tail that it last saw, `asked` the
    handoffs whose sends it knows to be stored, `own` that a write of its own got no answer.
    """

    name: str
    up: bool = True
    entry: int | None = 0
    stopping: bool = False
    mail: Mail | None = None
    writing: Writing | None = None
    handoff: int = -1
    accepted: int = 0
    attempt: int = 0
    tail: int = 0
    asked: tuple[int, ...] = ()
    own: str = ""

    @property
    def idle(self) -> bool:
        """Whether it has nothing in hand."""
        return self.mail is None and self.handoff < 0


class State(Struct, frozen=True):
    """Everything at one moment."""

    chains: tuple[Chain, ...]
    sending: Writing | None
    mail: tuple[Mail, ...]
    managers: tuple[Manager, ...]
    keepers: tuple[Writing | None, ...]
    workers: tuple[Worker, ...]
    cancelling: Writing | None
    wish: bool
    is_open: bool
    budget: int
    strays: int


def start(scenario: Scenario) -> State:
    """Nothing is stored; the sender is about to send."""
    first = UUID(int=1)
    ids = [first, child_id(first) if scenario.shape == "line" else UUID(int=2), UUID(int=3)]
    sent = event("sent", SENDER, 0, attempt=1, waiter=SENDER)
    return State(
        chains=tuple(Chain(id=it) for it in ids[: scenario.handoffs]),
        sending=Writing(0, sent),
        mail=(),
        managers=(Manager(),) * scenario.managers,
        keepers=(None,) * scenario.keepers,
        workers=tuple(Worker(it) for it in scenario.workers + scenario.answerers),
        cancelling=None,
        wish=scenario.cancels,
        is_open=not scenario.shut,
        budget=scenario.budget,
        strays=bool(scenario.strays),
    )


def event(kind: str, actor: str, tail: int, **marks: object) -> Event:
    """An event that is about to be written. All are stored at the same moment: when a timeout ends
    is nobody's to say, so a keeper may look at any time."""
    return Event(sequence=0, kind=kind, actor=actor, tail=tail, at=1.0, **marks)  # type: ignore[arg-type]


def begun(state: State, handoff: int, scenario: Scenario) -> bool:
    """Whether the bus has promised to end this handoff."""
    if state.chains[handoff].stage != "none":
        return True
    return scenario.shape == "line" and handoff == 1 and state.chains[0].child is not None


def append(
    state: State, writing: Writing, scenario: Scenario, *, blind: bool = False
) -> State | None:
    """The state after the server stored this event, or None where its compare-and-set refused it.
    Raises HarmError where an event counts that must not."""
    handoff, chain = writing.handoff, state.chains[writing.handoff]
    if writing.event.tail != chain.tail and not blind and scenario.without != "compare-and-set":
        return None
    base = 10 * (handoff + 1)
    stored = replace(writing.event, sequence=base)
    after = fold(chain, [stored])
    counts = base not in after.void
    if counts:
        _judge(state, handoff, stored, scenario)
    renumbered = replace(
        after,
        tail=base + 9,
        delivered_sequence=base + 1 if after.delivered_sequence else None,
        settled_sequence=base + 2 if after.settled_sequence else None,
        owner_sequence=base + 3 if after.owner_sequence else None,
        void=(),
    )
    chains = (*state.chains[:handoff], renumbered, *state.chains[handoff + 1 :])
    if counts and stored.kind == "accepted":
        state = _outdate_leases(state, base + 3)
    state = _outdate_tails(replace(state, chains=chains), handoff)
    return _send_out(state, handoff, stored, counts, scenario)


def _judge(state: State, handoff: int, it: Event, scenario: Scenario) -> None:
    """Whether this event may change this chain, in the words of the promises."""
    chain = state.chains[handoff]
    who = f"{it.kind} by {it.actor} counts on handoff {handoff}, which is {chain.stage}"
    if chain.stage in ENDED:
        raise HarmError("twice", who)
    if it.tail != chain.tail:
        raise HarmError("stale", f"{who}: its writer had not seen the tail")
    if it.kind in {"failed", "settled"} or (it.kind == "refused" and chain.stage == "accepted"):
        owner = (chain.owner, chain.owner_sequence)
        if chain.stage != "accepted" or (it.actor, it.accepted) != owner:
            raise HarmError("stale", f"{who}, owned by {owner}")
    if it.kind in BUS_KINDS and it.actor not in BUS_NAMES:
        raise HarmError("stale", f"{who}: only the bus says so")
    if it.kind == "cancelled" and it.actor not in {SENDER, OPERATOR}:
        raise HarmError("stale", f"{who}: it is not its sender's")
    is_child = scenario.shape == "line" and handoff > 0
    if (it.kind != "sent" or is_child) and not begun(state, handoff, scenario):
        raise HarmError("stale", f"{who}: nothing has begun it")
    # A stray start takes one from its owner too, who starts again.
    starts = STARTS + scenario.budget + 2 * bool(scenario.strays)
    if it.kind == "accepted" and (it.lease or 0) > starts:
        raise HarmError(
            "endless", f"{who}: it is started {it.lease} times, by {starts - STARTS} faults"
        )
    takes_over = it.kind == "accepted" and chain.stage == "accepted"
    if takes_over and not scenario.faults & {"kill", "pause"} and not scenario.strays:
        raise HarmError("robbed", who)


def _send_out(state: State, handoff: int, stored: Event, counts: bool, scenario: Scenario) -> State:
    """Hand the stored event out to the durable consumer that reads its kind, void or not."""
    if stored.kind == "settled" and stored.child_to and handoff + 1 < len(state.chains):
        child = state.chains[handoff + 1]
        tail = 0 if child.tail == 0 else STALE
        return put_mail(state, Mail(handoff + 1, "settled", counts, True, tail))
    if stored.kind in {"sent", "delivered"}:
        # A send from inside of a handler is admitted while the handled handoff is open.
        inside = scenario.shape == "fan" and handoff > 0
        admitted = not (inside and state.chains[0].final)
        tail = state.chains[handoff].tail
        return put_mail(state, Mail(handoff, stored.kind, counts, admitted, tail))
    return state


def put_mail(state: State, mail: Mail) -> State:
    """A message waits to be handed out; one that is there already is not there twice."""
    if mail.gone or any(it.key == mail.key for it in state.mail):
        return state
    return replace(state, mail=tuple(sorted([*state.mail, mail])))


def take_mail(state: State, mail: Mail) -> State:
    """A message goes into somebody's hand."""
    return replace(state, mail=tuple(it for it in state.mail if it.key != mail.key))


def ack(state: State, mail: Mail) -> State:
    """A message is done with; whoever else has it in hand cannot bring it back."""
    if mail.gone:
        return state
    return replace(
        take_mail(state, mail),
        managers=tuple(
            replace(it, mail=replace(it.mail, gone=True))
            if it.mail and it.mail.key == mail.key
            else it
            for it in state.managers
        ),
        workers=tuple(
            replace(it, mail=replace(it.mail, gone=True))
            if it.mail and it.mail.key == mail.key
            else it
            for it in state.workers
        ),
    )


def _outdate_tails(state: State, handoff: int) -> State:
    """Whoever saw the tail of this chain saw an older one now."""
    return replace(
        state,
        sending=_outdated(state.sending, handoff),
        cancelling=_outdated(state.cancelling, handoff),
        mail=tuple(sorted(_outdated_mail(it, handoff) for it in state.mail)),
        keepers=tuple(_outdated(it, handoff) for it in state.keepers),
        managers=tuple(
            Manager(it.mail and _outdated_mail(it.mail, handoff), _outdated(it.writing, handoff))
            if it.mail
            else it
            for it in state.managers
        ),
        workers=tuple(
            it
            if it.idle
            else replace(
                it,
                mail=it.mail and _outdated_mail(it.mail, handoff),
                writing=_outdated(it.writing, handoff),
                tail=STALE if it.handoff == handoff and it.accepted else it.tail,
            )
            for it in state.workers
        ),
    )


def _outdated(writing: Writing | None, handoff: int) -> Writing | None:
    if writing is None or writing.handoff != handoff or writing.event.tail == STALE:
        return writing
    return Writing(handoff, replace(writing.event, tail=STALE))


def _outdated_mail(mail: Mail, handoff: int) -> Mail:
    if mail.handoff != handoff or mail.tail == STALE:
        return mail
    return replace(mail, tail=STALE)


def _outdate_leases(state: State, lease: int) -> State:
    return replace(
        state,
        workers=tuple(
            replace(
                it,
                accepted=STALE if it.accepted == lease else it.accepted,
                entry=STALE if it.entry == lease else it.entry,
            )
            for it in state.workers
        ),
    )


def owner_lives(state: State, chain: Chain) -> bool:
    """Whether the registry lists the owner with its accepted event."""
    return any(it.name == chain.owner and it.entry == chain.owner_sequence for it in state.workers)


class Step(Struct, frozen=True):
    """One thing that somebody does. `fault` marks what may never happen, `gives_up` what is done
    for want of anything better, `returns` a killed agent's return, `writes` an event stored."""

    who: str
    does: str
    after: State
    fault: bool = False
    gives_up: bool = False
    returns: bool = False
    writes: bool = False


def may(state: State, scenario: Scenario, fault: str) -> bool:
    """Whether this fault is among the scenario's, and not all are spent."""
    return state.budget > 0 and fault in scenario.faults


def spent(state: State) -> State:
    """One fault less is left."""
    return replace(state, budget=state.budget - 1)
