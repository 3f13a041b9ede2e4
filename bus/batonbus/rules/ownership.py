"""What an agent does with a delivered handoff: take it, leave it, or wait.

A redelivery says nothing: after an outage longer than `ack_wait` the server hands every message out
again, with all owners alive. So the chain decides, and the registry says whether its owner lives.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from batonbus.rules.chain import ATTEMPT_LIMIT, TAKEOVER_LIMIT, Chain
from batonbus.rules.settings import Settings
from batonbus_schemas import Presence

PERSON_PREFIX = "person-"
"""How the ids of people begin."""


class Claim(Struct, frozen=True, kw_only=True):
    """`take` it as this attempt and lease, `drop` it for good, or `wait` and ask again."""

    act: Literal["take", "drop", "wait"]
    attempt: int = 0
    lease: int = 0


def claim(chain: Chain, *, owner_alive: bool | None) -> Claim:
    """Decide about a delivered handoff. `owner_alive` is None while it is not known; only an owner
    that is known to be gone loses its handoff."""
    if chain.final:
        return Claim(act="drop")
    if chain.stage == "accepted" and (
        owner_alive is not False or chain.takeovers >= TAKEOVER_LIMIT
    ):
        return Claim(act="wait")
    if chain.next_attempt > ATTEMPT_LIMIT or chain.delivered_sequence is None:
        return Claim(act="wait")
    return Claim(act="take", attempt=chain.next_attempt, lease=chain.lease + 1)


def is_person(actor: str | None) -> bool:
    """Whether this is the id of a person, who answers by hand. An agent may have such an id, too,
    but a person stands in no registry."""
    return actor is not None and actor.startswith(PERSON_PREFIX)


def claim_by_hand(
    chain: Chain, agents: Sequence[Presence], settings: Settings, *, now: float
) -> Claim:
    """Decide about a handoff that a person is about to answer, at the server's moment `now`;
    `agents` are the live ones.

    What an agent accepted stays an agent's. A person accepts and settles in one go: one who still
    has not settled after a `presence_timeout` was interrupted in between, and is taken over from.
    """
    is_held = any(chain.owner_sequence in it.working for it in agents)
    is_late = now - chain.changed >= settings.presence_timeout
    interrupted = is_person(chain.owner) and is_late and not is_held
    return claim(chain, owner_alive=False if interrupted else None)


def holds(chain: Chain, actor: str, accepted: int) -> bool:
    """Whether `actor` still owns this handoff by that accepted event."""
    return chain.stage == "accepted" and chain.owner == actor and chain.owner_sequence == accepted


def has_answered(chain: Chain, actor: str, accepted: int, kind: str) -> bool:
    """Whether the chain stands at this very answer of `actor`, under that accepted event."""
    by = (chain.owner, chain.owner_sequence)
    return chain.stage == kind and by == (actor, accepted)


def retry_delay(attempt: int, base: float) -> float:
    """Seconds between a failed attempt and the next one: `base`, then four times as long."""
    return base * 4.0 ** (attempt - 1)
