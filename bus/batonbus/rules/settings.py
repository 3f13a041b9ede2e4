"""The numbers that a whole fleet agrees on. They are stored with the ledger, not in each process.

Defaults are the design's; seed 003 asks for the receipt within 30 s. Tests and the demo shorten
them, nothing else does.
"""

from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0)]


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Durations are in seconds. `hop_limit` is how often a handoff may be handed on, or asked on
    from inside a handler; `work_limit` how many handoffs of one work are delivered, without limit
    where a handoff belongs to none (see decisions/loops.md for both numbers)."""

    receipt_timeout: Seconds = 30.0
    ack_wait: Seconds = 30.0
    heartbeat: Seconds = 5.0
    missed_beats: Annotated[int, Meta(ge=1)] = 3
    give_up_after: Seconds = 600.0
    retry_delay: Seconds = 2.0
    stop_grace: Seconds = 30.0
    hop_limit: Annotated[int, Meta(ge=1, le=1_000)] = 32
    work_limit: Annotated[int, Meta(ge=1, le=100_000)] = 1_000

    @property
    def presence_timeout(self) -> float:
        """Seconds after its last heartbeat at which an agent is gone from the registry."""
        return self.heartbeat * self.missed_beats

    @property
    def trust_after(self) -> float:
        """Seconds that an observer must have been connected without a break before it may declare
        anybody gone: after an outage the registry is empty though all agents live."""
        return 2 * self.presence_timeout

    @property
    def policy_interval(self) -> float:
        """Seconds between two looks of a process at the fleet's context policy. An agent asks a
        keeper, so another policy is in force everywhere within two of them."""
        return self.heartbeat / 2


CACHED_RECORDS = 10_000
"""Records that a window manager keeps in memory."""
