"""Work that goes round, and work that does not end: what the window manager stops.

A line of handoffs runs on through `then` and through sends inside handlers. The bus alone writes
its trail, so no agent can forge or forget it (see decisions/loops.md).
"""

import hashlib
from collections.abc import Sequence

import msgspec

from batonbus_schemas import Envelope, HandoffV1, Hop

UNCOMPARED = frozenset({"handoff_id", "timestamp", "from_agent"})
"""What a contract v1 document says of who hands it over and when: new at each hop, and no content.
"""

COUNT_SHARE = 8
"""Of what a work has left, one window manager delivers an eighth before it counts again: so many
side by side stay within the limit."""


def make_hop(envelope: Envelope) -> Hop:
    """The trail's entry of a handoff, as the bus completes it: the digest is of task, attempt and
    body. A rebuild has the next attempt, and so another digest."""
    body = envelope.body
    content = (
        {name: it for name, it in body.document.items() if name not in UNCOMPARED}
        if isinstance(body, HandoffV1)
        else body
    )
    data = msgspec.json.encode((envelope.task, envelope.attempt, content), order="deterministic")
    return Hop(to=envelope.to, digest=hashlib.sha256(data).hexdigest()[:16])


def find_loop(hops: int, trail: Sequence[Hop], *, limit: int) -> str | None:
    """Why a handoff goes round, or None. `trail` is the way to it, itself the last entry; `hops`
    is how often it was handed on, at most `limit` times."""
    path = " → ".join(it.to for it in trail)
    if _is_repeated(trail):
        return (
            f"LOOP: {path} with the same content, and nothing new was asked in between: settle "
            "with a result, say what is new, or count the attempt"
        )
    if hops > limit:
        return (
            f"LOOP: {path}: handed on {hops} times, limit {limit}: settle with a result, and let "
            "whoever waits for it ask anew"
        )
    return None


def _is_repeated(trail: Sequence[Hop]) -> bool:
    """Whether the last was asked just this before, and since then nobody who had been asked before
    was asked anything new. So `review it` may come again after another `mend this and that`."""
    *before, last = trail
    if last not in before:
        return False
    came = len(before) - 1 - before[::-1].index(last)
    return not any(_is_new(trail[:at], trail[at]) for at in range(came + 1, len(before)))


def _is_new(before: Sequence[Hop], hop: Hop) -> bool:
    return any(it.to == hop.to for it in before) and all(it.digest != hop.digest for it in before)


def next_count(used: int, limit: int) -> int:
    """At how many handoffs of a work a window manager counts again, that just counted `used`."""
    left = limit - used
    return used + (max(1, left // COUNT_SHARE) if left > 0 else 0)


def spent(work: str, limit: int) -> str:
    """Why a work gets no further handoff."""
    return (
        f"work {work} has used its {limit:,} handoffs: see in `batonbus tail` what goes round, and "
        "give what is left to another work"
    )
