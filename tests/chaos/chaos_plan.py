"""What goes wrong in a run, in which order: a list of faults that its seed alone decides."""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple

SERVER = "server"
SOURCE = "source"
MANAGERS = ("window-manager-0", "window-manager-1")
KEEPERS = ("receipt-keeper-0", "receipt-keeper-1")
WORKERS = ("worker_a", "worker_b")
PLANNERS = ("planner_a", "planner_b")
MOODY = ("moody_a", "moody_b")
PAIRS = (MANAGERS, KEEPERS, WORKERS, PLANNERS, MOODY)
PROGRAMS = (*(name for pair in PAIRS for name in pair), SOURCE)

Kind = Literal[
    "failpoint", "kill", "stop", "cut", "stall", "delay", "trickle", "server-kill", "server-stop"
]


class Fault(NamedTuple):
    """`gap` seconds after the one before; `seconds` is how long it lasts. A failpoint also has its
    step and its action."""

    gap: float
    kind: Kind
    target: str
    seconds: float = 0.0
    step: str = ""
    action: str = ""

    @property
    def disrupts(self) -> bool:
        """Whether it is a kill or a cut."""
        return self.kind in {"kill", "cut", "server-kill"} or self.action == "kill"


def _around(*kinds: str) -> tuple[str, ...]:
    return tuple(f"{when}-{kind}" for kind in kinds for when in ("before", "unanswered", "after"))


WORKING = ("received", "effect", "acked", *_around("accepted", "settled"))
STEPS: dict[tuple[str, ...], tuple[str, ...]] = {
    MANAGERS: ("read", "acked", *_around("delivered")),
    KEEPERS: _around("overdue", "dead"),
    WORKERS: WORKING,
    PLANNERS: (*WORKING, "sent-on", "sent-on", "sent-on", *_around("sent")),
    MOODY: (*WORKING, *_around("failed", "refused")),
    (SOURCE,): _around("sent"),
}
"""The steps of a hop, by the programs that take them."""

WEIGHTS: dict[Kind, int] = {
    "failpoint": 55,
    "kill": 14,
    "cut": 18,
    "server-kill": 5,
    "server-stop": 1,
    "stop": 4,
    "stall": 4,
    "delay": 3,
    "trickle": 3,
}
ACTIONS = {"kill": 60, "stop": 10, "delay": 10, "raise": 20}
HALF_OPEN = 17.0
"""Seconds after which a client has noticed that nobody answers its pings."""

SURPLUS = 1.3
"""A fault may find nobody, or its step is not reached: so many more are planned."""


def make_plan(seed: int, kills: int, *, lease: float, mean_gap: float) -> list[Fault]:
    """Faults with `kills` kills and cuts among them and some more; `lease` is in seconds."""
    chance = random.Random(seed)
    plan: list[Fault] = []
    left = kills * SURPLUS
    while left > 0:
        gap = round(chance.uniform(0.5, 1.5) * mean_gap, 3)
        plan.append(_make_fault(chance, gap, lease))
        left -= plan[-1].disrupts
    return plan


def _make_fault(chance: random.Random, gap: float, lease: float) -> Fault:
    kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    target = chance.choice(PROGRAMS)
    longer = round(chance.uniform(1.2, 2.0) * lease, 3)
    match kind:
        case "failpoint":
            step, action = _choose_failpoint(chance, target, longer)
            return Fault(gap, kind, target, step=step, action=action)
        case "kill" | "cut":
            return Fault(gap, kind, target)
        case "server-kill":
            return Fault(gap, kind, SERVER)
        case "server-stop":
            return Fault(gap, kind, SERVER, longer)
        case "stop":
            return Fault(gap, kind, target, longer)
        case "stall":
            parts = (*MANAGERS, *KEEPERS)
            seconds = longer if target in parts else chance.choice([longer, HALF_OPEN])
            return Fault(gap, kind, target, seconds)
        case "delay" | "trickle":
            return Fault(gap, kind, target, round(chance.uniform(1.0, 3.0), 3))


def _choose_failpoint(chance: random.Random, target: str, longer: float) -> tuple[str, str]:
    steps: Sequence[str] = next(steps for names, steps in STEPS.items() if target in names)
    step = chance.choice(steps)
    if step in {"read", "received"} and chance.random() < 0.5:
        return step, "duplicate"
    action = chance.choices(list(ACTIONS), list(ACTIONS.values()))[0]
    if action == "stop":
        return step, f"stop {longer}"
    if action == "delay":
        return step, f"delay {round(chance.uniform(0.1, longer), 3)}"
    return step, action


def twin(name: str) -> str | None:
    """The other one of a pair."""
    for pair in PAIRS:
        if name in pair:
            return pair[1 - pair.index(name)]
    return None
