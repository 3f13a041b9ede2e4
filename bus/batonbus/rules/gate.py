"""The context gate: whether an agent may be given anything new (seed 001, context compression).

Checked before a handoff is delivered, by the bus, and before each pull and each `accepted`, by the
agent's own runtime. A usage that is not known is never taken for a low one: then what has happened
in the session decides (`fired`).
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from batonbus.rules.chain import Chain
from batonbus.rules.errors import CHECKPOINT_REFUSED
from batonbus.rules.policy import Policy, Thresholds, Trigger
from batonbus_schemas import Checkpoint, ContextUsage, Presence

Level = Literal["open", "soft", "hard", "emergency", "unknown"]
"""How full a context is. At `soft`: finish the current small operation, prepare to compact. At
`hard`: begin nothing new. At `emergency`: no command, no verdict."""

COMPACTING = "compacting"
REQUIRED = "compaction required"
FULL = "context usage"

_NOTHING = frozenset({"none", "n/a", "unknown", "-"})
"""How a Checkpoint says that it does not know."""

OPENS = "nothing: it opens by itself once its session is reset, which waits for what runs there"
STAYS = "see its log, mend its `@agent.resets` function or its session, then start it again"
MENDS = "mend what it names: it looks again every few seconds, and opens by itself"
"""Ways out for whoever sees a closed agent."""


class Facts(Struct, frozen=True, kw_only=True):
    """What happened in a session since its context was last reset, as a handoff comes to it.

    `resumed`: the handoff is one whose work was interrupted. `rounds`: how often it was built
    already. `confused`: a result named another work or task than it was asked for. `moves_on`: its
    work or task is another than the last one, on which the session was `busy_for` seconds.
    `checkpoint` is the agent's last one.
    """

    resumed: bool = False
    rounds: int = 0
    confused: bool = False
    moves_on: bool = False
    busy_for: float = 0.0
    checkpoint: Checkpoint | None = None


def level_of(usage: ContextUsage, thresholds: Thresholds) -> Level:
    """How full a context is, by the thresholds of its agent."""
    if usage.source == "unknown" or usage.percent is None:
        return "unknown"
    if usage.percent >= thresholds.emergency:
        return "emergency"
    if usage.percent >= thresholds.hard:
        return "hard"
    return "soft" if usage.percent >= thresholds.soft else "open"


def why_closed(
    usage: ContextUsage,
    thresholds: Thresholds,
    *,
    required: str = "",
    compacting: bool = False,
    stopped: str = "",
) -> str:
    """Why an agent is given nothing new; empty where it may be. `required` is why its context must
    be compacted whatever its usage is, `stopped` why a compaction went wrong."""
    if stopped:
        return stopped
    if compacting:
        return COMPACTING
    if required:
        return f"{REQUIRED}: {required}"
    match level_of(usage, thresholds):
        case "hard":
            return f"{FULL} {usage.percent:g} % (hard {thresholds.hard:g} %)"
        case "emergency":
            return f"{FULL} {usage.percent:g} % (emergency {thresholds.emergency:g} %)"
        case _:
            return ""


def stays_closed(why: str) -> bool:
    """Whether an agent that is closed for this reason stays so until somebody does something: a
    reset of its session went wrong."""
    return bool(why) and not why.startswith((COMPACTING, REQUIRED, FULL))


def way_out(why: str) -> str:
    """What to do about an agent that is closed for this reason; empty where it is open."""
    if not why:
        return ""
    if why.startswith(CHECKPOINT_REFUSED):
        return MENDS
    return STAYS if stays_closed(why) else OPENS


def judge_card(presence: Presence, policy: Policy) -> Presence:
    """An agent as the bus sees it: closed by the numbers of its card, too, whatever it says."""
    usage = presence.card.context_usage
    if presence.closed or usage.source == "unknown" or usage.percent is None:
        return presence
    closed = why_closed(usage, policy.limits_of(presence.card).thresholds)
    return replace(presence, closed=closed) if closed else presence


def fired(facts: Facts, policy: Policy) -> Trigger | None:
    """Which trigger forces a compaction where the usage is not known, of those in the policy."""
    held: dict[Trigger, bool] = {
        "user_interruption_resume": facts.resumed,
        "wrong_project_or_tool_target_confusion": facts.confused,
        "two_fix_review_rounds": facts.rounds >= policy.checkpoints.after_fix_review_rounds,
        "before_new_roadmap_task_after_long_task": facts.moves_on
        and facts.busy_for > policy.checkpoints.interval_minutes * 60,
        "cannot_state_project_task_phase_next": facts.resumed and not _can_state(facts.checkpoint),
    }
    active = policy.fallback.triggers
    return next((it for it, is_so in held.items() if is_so and it in active), None)


def _can_state(checkpoint: Checkpoint | None) -> bool:
    """Whether a Checkpoint says project, task, phase and next action; that there is none of one of
    them does not."""
    if checkpoint is None:
        return False
    project = checkpoint.handoff.active_project if checkpoint.handoff else checkpoint.work
    task = checkpoint.handoff.active_task if checkpoint.handoff else checkpoint.task or ""
    said = (project, task, checkpoint.phase, checkpoint.next)
    return all(it.strip() and it.strip().rstrip(".").lower() not in _NOTHING for it in said)


def was_interrupted(chain: Chain) -> bool:
    """Whether a handoff that is to be taken now was begun before and not ended: by this agent
    before a restart, by another that is gone, or by one that was stopped."""
    return chain.stage == "accepted" or (chain.stage == "failed" and chain.interrupted)
