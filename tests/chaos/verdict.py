"""What a run proves: the ledger, what senders know, and what agents did, held against each other.

It imports nothing of batonbus. The promises: each acknowledged handoff ends in exactly one final
state, with at most one accepted result and one effect a lease, the newest lease answers, each
window is right, nobody waits in the dark, and nothing is there that nobody sent.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ledger_checker import (
    OTHER,
    STALE,
    UNACCOUNTED,
    UNSENT,
    Chains,
    Complaint,
    Message,
    by_handoff,
    check,
    handed_on,
)
from window_oracle import wrong_windows

ANSWERS = {"accepted", "held", "overdue", "refused"}
TOLERANCE = 1.0
"""Seconds that an answer may come after its deadline."""

DOUBLE, WINDOW, LATE = "double", "window", "late"


class Outage(NamedTuple):
    """The server was away, by its own clock's seconds."""

    start: float
    end: float


@dataclass(frozen=True)
class Evidence:
    """All that is left of a run. `effects` are (handoff, accepted event)."""

    messages: Sequence[Message]
    acknowledged: set[UUID]
    planned: set[UUID]
    effects: Sequence[tuple[UUID, int]]
    keys: Sequence[str]
    agents: Mapping[str, set[str]]
    receipt_timeout: float
    outages: Sequence[Outage] = ()


@dataclass
class Verdict:
    """How much of everything there was, and of what must not be."""

    acknowledged: int = 0
    unaccounted: int = 0
    double_effects: int = 0
    stale_applied: int = 0
    late_answers: int = 0
    windows_wrong: int = 0
    unsent: int = 0
    other: int = 0
    repeated_effects: int = 0
    handoffs: int = 0
    windows: int = 0
    slowest_answer_s: float = 0.0
    ends: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> bool:
        return bool(self.complaints)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(evidence: Evidence) -> Verdict:
    """Everything that is wrong, and how much of everything there was."""
    chains = by_handoff(evidence.messages)
    found = check(
        evidence.messages,
        acknowledged=evidence.acknowledged,
        planned=evidence.planned,
        keys=evidence.keys,
        agents=evidence.agents,
    )
    found += _check_effects(chains, evidence.effects)
    found += [Complaint(WINDOW, it) for it in wrong_windows(chains)]
    waits = _waits(chains, evidence.outages)
    found += _check_waits(waits, evidence.receipt_timeout)
    kinds = Counter(it.kind for it in found)
    each = Counter(handoff for handoff, _ in evidence.effects)
    return Verdict(
        acknowledged=len(evidence.acknowledged),
        unaccounted=kinds[UNACCOUNTED],
        double_effects=kinds[DOUBLE],
        stale_applied=kinds[STALE],
        late_answers=kinds[LATE],
        windows_wrong=kinds[WINDOW],
        unsent=kinds[UNSENT],
        other=kinds[OTHER],
        repeated_effects=sum(times - 1 for times in each.values()),
        handoffs=len(chains),
        windows=sum("window" in (it.payload or {}) for it in evidence.messages),
        slowest_answer_s=round(max((it.seconds for it in waits), default=0.0), 3),
        ends=dict(Counter(chain[-1].kind for chain in chains.values())),
        complaints=[f"{it.kind}: {it.text}" for it in found],
    )


def _check_effects(chains: Chains, effects: Iterable[tuple[UUID, int]]) -> list[Complaint]:
    """One effect a lease, one result a handoff; no result without its effect, and none before it
    was accepted."""
    problems: list[Complaint] = []
    times = Counter(effects)
    for (handoff, accepted), count in times.items():
        if count > 1:
            text = f"{handoff}: {count} effects under the accepted event {accepted}"
            problems.append(Complaint(DOUBLE, text))
        if not any(
            it.sequence == accepted and it.kind == "accepted" for it in chains.get(handoff, ())
        ):
            text = f"{handoff}: an effect under {accepted}, which is no accepted event of it"
            problems.append(Complaint(DOUBLE, text))
    for handoff, chain in chains.items():
        settled = [it for it in chain if it.kind == "settled"]
        if len(settled) > 1:
            problems.append(Complaint(DOUBLE, f"{handoff}: {len(settled)} accepted results"))
        for message in settled:
            if (handoff, message.marks.get("accepted")) not in times:
                text = f"{handoff}: settled at {message.sequence} without its effect"
                problems.append(Complaint(OTHER, text))
    return problems


class _Wait(NamedTuple):
    """How long a handoff was without an answer: in all, without the server's outages, and the
    longest of these."""

    handoff: UUID
    first: str
    whole: float
    seconds: float
    longest_outage: float


def _waits(chains: Chains, outages: Sequence[Outage]) -> list[_Wait]:
    """Of all: one that ended unanswered waited to its end."""
    children = handed_on(chains)
    waits: list[_Wait] = []
    for handoff, chain in chains.items():
        began = children.get(handoff, chain[0]).at
        answer = next((it for it in chain if it.kind in ANSWERS), chain[-1])
        away = [max(0.0, min(answer.at, it.end) - max(began, it.start)) for it in outages]
        whole = answer.at - began
        seconds, longest = whole - sum(away), max(away, default=0.0)
        waits.append(_Wait(handoff, answer.kind, whole, seconds, longest))
    return waits


def _check_waits(waits: Iterable[_Wait], receipt_timeout: float) -> list[Complaint]:
    return [
        Complaint(LATE, f"{it.handoff}: {it.first} after {it.whole:.1f} s")
        for it in waits
        if it.seconds > receipt_timeout + TOLERANCE and it.longest_outage <= receipt_timeout / 3
    ]
