"""What the receipt keeper does about an open handoff, and when (design: the life of a handoff).

Within `receipt_timeout` of its `sent` every handoff is answered: by its receiver, or by the bus
for it. A handoff that nobody ends is given up on, never forgotten.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from batonbus.rules.chain import ATTEMPT_LIMIT, TAKEOVER_LIMIT, Chain
from batonbus.rules.settings import Settings
from batonbus_schemas import Presence

BUSY = "busy"


class Verdict(Struct, frozen=True, kw_only=True):
    """An event that the keeper writes: its kind, why, and who was listening."""

    kind: Literal["held", "overdue", "dead"]
    reason: str
    listening: tuple[str, ...] = ()


def due_at(chain: Chain, settings: Settings) -> float | None:
    """The server's moment (Unix seconds) at which this handoff must be looked at, or None where
    only its owner or a new event can move it."""
    nobody_sent_it = chain.stage == "none" and not chain.began  # void events alone
    if chain.final or nobody_sent_it:
        return None
    if chain.stage in {"none", "sent", "delivered"}:
        # One that was delivered late is not called overdue while it is just being accepted.
        return max(
            chain.began + settings.receipt_timeout,
            chain.changed + settings.heartbeat if chain.stage == "delivered" else 0.0,
        )
    if _is_spent(chain):
        return chain.changed
    if chain.stage == "accepted":
        return None
    return chain.changed + settings.give_up_after


def judge(
    chain: Chain, settings: Settings, *, now: float, agents: Sequence[Presence] | None
) -> Verdict | None:
    """What to write about a handoff that nobody owns, at the server's moment `now`.

    `agents` are the live agents of its addressee, or None while the registry cannot be trusted.
    """
    due = due_at(chain, settings)
    if due is None or now < due:
        return None
    if _is_spent(chain):
        reason = f"failed {chain.attempt} of {ATTEMPT_LIMIT} attempts, the last with {chain.reason}"
        return Verdict(kind="dead", reason=reason)
    if chain.stage in {"none", "sent", "delivered"}:
        return _answer(chain, agents)
    if agents is None or (agents and chain.stage in {"held", "failed"}):
        # Nobody is known to be gone, or somebody lives who comes to it.
        return None
    waited = now - chain.changed
    return Verdict(kind="dead", reason=f"{chain.stage} for {waited:.0f} s, nobody took it")


def _is_spent(chain: Chain) -> bool:
    """Whether its last attempt has failed."""
    return chain.stage == "failed" and chain.next_attempt > ATTEMPT_LIMIT


def _answer(chain: Chain, agents: Sequence[Presence] | None) -> Verdict:
    listening = tuple(it.card.id for it in agents or ())
    if chain.stage != "delivered":
        reason = "the window manager has not delivered it: is one running?"
    elif agents is None:
        reason = "not accepted in time; who is listening is not known yet after an outage"
    elif not agents:
        reason = f"no agent is listening as {chain.addressee}"
    elif all(len(it.working) >= it.card.slots or it.stopping for it in agents):
        return Verdict(kind="held", reason=BUSY, listening=listening)
    else:
        reason = f"{len(agents)} agents listen as {chain.addressee}, none accepted it"
    return Verdict(kind="overdue", reason=reason, listening=listening)


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
    if ownerless_for >= settings.give_up_after:
        reason = f"its owner {chain.owner} is gone for {ownerless_for:.0f} s, nobody took over"
        return Verdict(kind="dead", reason=reason)
    return None
