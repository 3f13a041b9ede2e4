"""What the receipt keeper does about an open handoff, and when (design: the life of a handoff).

Within `receipt_timeout` of its `sent` every handoff is answered: by its receiver, or by the bus
for it. From then on the answer is looked at again and again: one that is no longer true is followed
by another, and a handoff that nobody ends is given up on, never forgotten.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from batonbus.rules.chain import ATTEMPT_LIMIT, TAKEOVER_LIMIT, Chain
from batonbus.rules.ownership import is_person
from batonbus.rules.settings import Settings
from batonbus_schemas import Presence

BUSY = "busy"
PERSON = "waits for a person as {role}"
NO_MANAGER = "the window manager has not delivered it: is one running?"

CLOSED_LIMIT = 100
"""Characters that an answer repeats of why agents are closed: the ledger's header holds 200 of the
whole reason, and by those one `held` is told from another."""


class Listening(Struct, frozen=True, kw_only=True):
    """The live agents of an addressee, and why none of them takes anything new (empty where one
    does). Where there is none: for how long (seconds) nobody is known to listen, and who did before
    (where that is known)."""

    agents: tuple[str, ...] = ()
    not_free: str = ""
    alone_for: float = 0.0
    gone: tuple[str, ...] = ()


class Verdict(Struct, frozen=True, kw_only=True):
    """An event that the keeper writes: its kind, why, and who was listening. `hears` is who is told
    at once; the other one finds it in the ledger."""

    kind: Literal["held", "overdue", "dead"]
    reason: str
    listening: tuple[str, ...] = ()
    hears: Literal["waiter", "owner"] = "waiter"


def by_name(agents: Iterable[Presence]) -> dict[str, list[Presence]]:
    """Live agents by each name under which they listen: their role, and their own id."""
    found: dict[str, list[Presence]] = {}
    for agent in agents:
        for name in {agent.card.role, agent.card.id}:
            found.setdefault(name, []).append(agent)
    return found


def who_listens(agents: Sequence[Presence]) -> Listening:
    """What the presences of an addressee's agents say."""
    return Listening(agents=tuple(it.card.id for it in agents), not_free=_why_not_free(agents))


def due_at(chain: Chain, settings: Settings, *, looked: float = 0.0) -> float | None:
    """The server's moment (Unix seconds) at which this handoff must be looked at, or None where
    only its owner or a new event can move it. `looked` is the moment of the last look: what it led
    to, if anything, is not read yet."""
    nobody_sent_it = chain.stage == "none" and not chain.began  # void events alone
    if chain.final or nobody_sent_it:
        return None
    moments = (_answer_due(chain, settings), _deadline(chain, settings))
    again = _next_beat(looked + settings.presence_timeout, settings)
    return min((it if it > looked else again for it in moments if it is not None), default=None)


def _answer_due(chain: Chain, settings: Settings) -> float | None:
    if chain.stage in {"none", "sent", "delivered"}:
        # One that was delivered late is not called overdue while it is just being accepted.
        late = chain.changed + settings.heartbeat if chain.stage == "delivered" else 0.0
        return max(chain.began + settings.receipt_timeout, late)
    if chain.stage == "accepted":
        return None
    if _is_spent(chain):
        return chain.changed
    return _next_beat(chain.changed + settings.presence_timeout, settings)


def _deadline(chain: Chain, settings: Settings) -> float | None:
    """When a handoff that has a deadline is ended for it."""
    if chain.deadline is None:
        return None
    match chain.stage:
        case "sent":
            # The window manager refuses what comes too late: it is given the time to.
            return max(chain.deadline, chain.changed + settings.heartbeat)
        case "accepted":
            # Its owner knows the deadline, and may answer at it.
            return chain.deadline + settings.heartbeat
        case _:
            return chain.deadline


def _next_beat(moment: float, settings: Settings) -> float:
    """At whole heartbeats, so that many handoffs are looked at together."""
    return math.ceil(moment / settings.heartbeat) * settings.heartbeat


def judge(
    chain: Chain, settings: Settings, *, now: float, listening: Listening | None
) -> Verdict | None:
    """What to write about a handoff at the server's moment `now`.

    `listening` is who listens for its addressee, or None while the registry cannot be trusted.
    """
    due = due_at(chain, settings)
    if due is None or now < due:
        return None
    if _is_spent(chain):
        return Verdict(kind="dead", reason=_failures(chain))
    deadline = _deadline(chain, settings)
    if deadline is not None and now >= deadline:
        return _too_late(chain, now)
    if chain.stage in {"none", "sent", "delivered"}:
        return _answer(chain, listening)
    if listening is None:
        # Nobody is known to be gone, and nobody to be busy.
        return None
    waited = now - chain.changed
    if chain.stage == "failed":
        return _judge_failed(chain, settings, min(waited, listening.alone_for))
    if chain.stage == "held":
        return _judge_held(chain, settings, waited, listening)
    return _judge_overdue(chain, settings, waited, listening)


def _is_spent(chain: Chain) -> bool:
    """Whether its last attempt has failed."""
    return chain.stage == "failed" and chain.next_attempt > ATTEMPT_LIMIT


def _failures(chain: Chain) -> str:
    return f"failed {chain.attempt} of {ATTEMPT_LIMIT} attempts, the last with {chain.reason}"


def _too_late(chain: Chain, now: float) -> Verdict:
    late = now - (chain.deadline or 0.0)
    if chain.stage == "accepted":
        reason = f"its deadline passed {late:.0f} s ago while {chain.owner} worked on it"
        return Verdict(kind="dead", reason=reason, hears="owner")
    stood = f"{chain.stage}: {chain.reason}" if chain.reason else chain.stage
    return Verdict(kind="dead", reason=f"its deadline passed {late:.0f} s ago while it was {stood}")


def _judge_failed(chain: Chain, settings: Settings, alone_for: float) -> Verdict | None:
    """It comes again by itself, maybe much later, as long as somebody lives to take it."""
    if chain.question or alone_for < settings.give_up_after:
        return None
    reason = f"{_failures(chain)}; nobody took it again for {alone_for:.0f} s"
    return Verdict(kind="dead", reason=reason)


def _judge_held(
    chain: Chain, settings: Settings, waited: float, listening: Listening
) -> Verdict | None:
    """While its reason holds it is held, however long that is."""
    alone_for = min(waited, listening.alone_for)
    if chain.delivered_sequence is None:
        # The window manager holds it back, and says why. Another answer of ours would lead to
        # another of its own, and so on.
        if chain.question or alone_for < settings.give_up_after:
            return None
        nobody = _nobody(chain, listening).reason
        return Verdict(kind="dead", reason=f"held for {alone_for:.0f} s: {chain.reason}, {nobody}")
    answer = _answer(chain, listening)
    if answer.kind == "held":
        return answer if answer.reason != chain.reason else None
    if not listening.agents:
        # One that is started again is back in a moment.
        return answer if alone_for >= settings.presence_timeout else None
    # Who has just ended its work takes the next one in a moment.
    return answer if waited >= settings.receipt_timeout else None


def _judge_overdue(
    chain: Chain, settings: Settings, waited: float, listening: Listening
) -> Verdict | None:
    answer = _answer(chain, listening)
    if answer.kind == "held":
        return answer
    if chain.question or waited < settings.give_up_after:
        return None
    reason = f"overdue for {waited:.0f} s, nobody took it: {answer.reason}"
    return Verdict(kind="dead", reason=reason, listening=answer.listening)


def _answer(chain: Chain, listening: Listening | None) -> Verdict:
    """What is true of a handoff that nobody has accepted."""
    agents = listening.agents if listening else ()
    if chain.delivered_sequence is None:
        return Verdict(kind="overdue", reason=NO_MANAGER, listening=agents)
    if listening is None:
        reason = "not accepted in time; who is listening is not known yet after an outage"
        return Verdict(kind="overdue", reason=reason)
    if not agents:
        return _nobody(chain, listening)
    if listening.not_free:
        return Verdict(kind="held", reason=listening.not_free, listening=agents)
    count = f"{len(agents)} agents listen" if agents[1:] else "1 agent listens"
    reason = f"{count} as {chain.addressee}, none accepted it"
    return Verdict(kind="overdue", reason=reason, listening=agents)


def _nobody(chain: Chain, listening: Listening) -> Verdict:
    if chain.question:
        return Verdict(kind="held", reason=PERSON.format(role=chain.addressee))
    reason = f"no agent is listening as {chain.addressee}"
    if listening.gone:
        one, *others = listening.gone
        who = f"its {len(listening.gone)} agents were" if others else f"{one} was"
        reason += f" any more: {who} until {listening.alone_for:.0f} s ago"
    return Verdict(kind="overdue", reason=reason)


def _why_not_free(agents: Sequence[Presence]) -> str:
    closed = [it for it in agents if it.closed]
    busy = [it for it in agents if not it.closed and _is_busy(it)]
    if not agents or len(closed) + len(busy) < len(agents):
        return ""
    if not closed:
        return BUSY
    if busy:
        return f"its agents are busy or closed: {_reasons(closed)}"
    return _closed(closed)


def why_all_closed(agents: Sequence[Presence]) -> str:
    """Why nothing may be dispatched to an addressee with these live agents: every one of them is
    closed (one that is about to stop takes nothing either). Empty where one is open, or none is
    there."""
    staying = [it for it in agents if not it.stopping]
    return _closed(staying) if staying and all(it.closed for it in staying) else ""


def _closed(agents: Sequence[Presence]) -> str:
    if len(agents) == 1:
        return f"closed: {_reasons(agents)}"
    return f"all {len(agents)} agents are closed: {_reasons(agents)}"


def _reasons(closed: Sequence[Presence]) -> str:
    return "; ".join(sorted({it.closed for it in closed}))[:CLOSED_LIMIT]


def _is_busy(agent: Presence) -> bool:
    return agent.stopping or len(agent.working) >= agent.card.slots


def judge_owned(chain: Chain, settings: Settings, *, ownerless_for: float | None) -> Verdict | None:
    """What to write about an accepted handoff whose owner is gone.

    `ownerless_for` is how long (seconds) the keeper has known that the owner does not hold it, or
    None while the owner lives or is not known to be gone.
    """
    if chain.stage != "accepted" or ownerless_for is None:
        return None
    # A fresh owner needs a heartbeat or two to list what it accepted.
    if chain.takeovers >= TAKEOVER_LIMIT and ownerless_for >= settings.presence_timeout:
        reason = f"changed hands {TAKEOVER_LIMIT} times, and its owner {chain.owner} is gone again"
        return Verdict(kind="dead", reason=reason)
    if chain.question and is_person(chain.owner):
        # Interrupted between its two writes: the question waits for an answer as before.
        return None
    if ownerless_for >= settings.give_up_after:
        reason = f"its owner {chain.owner} is gone for {ownerless_for:.0f} s, nobody took over"
        return Verdict(kind="dead", reason=reason)
    return None
