"""How an agent's session is reset: never without a Checkpoint (seeds 001 and 004).

A phase boundary clears, a task boundary compacts, in the middle of a task a session is compacted at
most. Before each reset the ten fields of a compaction handoff are written, and a Checkpoint that
agrees with the facts; after it the usage must have come down, or there was no gain.
"""

from collections.abc import Mapping
from typing import Literal, cast

from msgspec import Struct

from batonbus.rules.policy import Compaction, Policy
from batonbus_schemas import (
    AgentCard,
    Checkpoint,
    CompactionHandoff,
    ContextUsage,
    Envelope,
    TaskResult,
)
from batonbus_schemas.bodies import Dispatch
from batonbus_schemas.receipts import Phase

Verb = Literal["compact", "clear"]

KEEP = ("constraints of the design", "conventions that were found", "the next safe action")
DROP = ("errors that are resolved", "attempts that are superseded", "the ended task's transcript")

FIELDS = CompactionHandoff.__struct_fields__

NONE = "None"

PHASES: Mapping[str, Phase] = {"specifier": "specify", "planner": "plan", "committer": "close"}


class ResetRequest(Struct, frozen=True, kw_only=True):
    """What a `@agent.resets` function is asked for.

    `step` "handoff": write the ten fields; `missing` names those that were left empty the first
    time. `step` "reset": now compact or clear the session; `checkpoint` is stored. `keep` and
    `drop` say what the session shall hold on to, and what not.
    """

    step: Literal["handoff", "reset"]
    verb: Verb
    reason: str
    keep: tuple[str, ...] = KEEP
    drop: tuple[str, ...] = DROP
    missing: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None


class ResetDone(Struct, frozen=True, kw_only=True):
    """What it answers: the `handoff`, with the files that are `changed` and not committed; then the
    `usage` after the reset, and its `capabilities` where these are others now."""

    handoff: CompactionHandoff | None = None
    changed_files: tuple[str, ...] = ()
    usage: ContextUsage = ContextUsage()
    capabilities: tuple[str, ...] | None = None


class Evidence(Struct, frozen=True, kw_only=True):
    """What a Checkpoint must agree with; what is None is not known here, and not compared.

    `done` are the tasks that the ledger says are done, `marked` those that the progress files say.
    """

    phase: Phase | None = None
    done: frozenset[str] | None = None
    marked: frozenset[str] | None = None
    changed_files: tuple[str, ...] | None = None


class Progress(Struct, frozen=True, kw_only=True):
    """Where a session stands as the next handoff comes: what it worked on last (None: nothing), the
    next, for how many minutes no Checkpoint was written, and the rounds of fix and review."""

    last: tuple[str, str | None, Phase] | None
    next: tuple[str, str | None, Phase]
    minutes: float = 0.0
    rounds: int = 0


class Due(Struct, frozen=True, kw_only=True):
    """Why a Checkpoint is due, and the reset behind it (None: only the Checkpoint)."""

    why: Literal["phase boundary", "task boundary", "interval", "fix and review rounds"]
    verb: Verb | None = None


def phase_of(role: str) -> Phase:
    """The phase in which a role works."""
    return PHASES.get(role, "implement")


def due(progress: Progress, policy: Policy) -> Due | None:
    """Whether a Checkpoint, and maybe a reset, comes before the next handoff. A boundary whose
    reset is off still gets its Checkpoint where the policy says so."""
    management, checkpoints = policy.context_management, policy.checkpoints
    if progress.last is not None:
        *task, phase = progress.last
        *next_task, next_phase = progress.next
        if phase != next_phase:
            if (verb := as_verb(management.phase_boundary)) or checkpoints.after_phase:
                return Due(why="phase boundary", verb=verb)
        elif task != next_task and (verb := as_verb(management.task_boundary)):
            return Due(why="task boundary", verb=verb)
    if progress.rounds >= checkpoints.after_fix_review_rounds:
        return Due(why="fix and review rounds")
    if progress.minutes >= checkpoints.interval_minutes:
        return Due(why="interval")
    return None


def as_verb(setting: Literal["clear", "compact", "off"]) -> Verb | None:
    """The reset that a setting asks for."""
    return None if setting == "off" else setting


def verb_in_task(policy: Policy) -> Literal["compact"] | None:
    """The reset in the middle of a task: by type it never clears."""
    setting = policy.context_management.mid_task
    return None if setting == "off" else setting


def missing_fields(handoff: CompactionHandoff | None) -> tuple[str, ...]:
    """Which of the ten fields are empty: a handoff counts only when none is."""
    return tuple(it for it in FIELDS if not str(getattr(handoff, it, "") or "").strip())


def refusals(checkpoint: Checkpoint, evidence: Evidence) -> tuple[str, ...]:
    """Which of the four conditions a Checkpoint fails, each by its name; none: it may be reset."""
    problems: list[str] = []
    done, marked = evidence.done, evidence.marked
    if done is not None and marked is not None and done != marked:
        wrong = ", ".join(sorted(done ^ marked))
        problems.append(f"progress marks: they disagree with the ledger about {wrong}")
    empty = [it for it in ("did", "checks", "next", "context") if not _said(checkpoint, it)]
    if empty:
        problems.append(f"execution log: its entry says nothing as {', '.join(empty)}")
    if evidence.phase is not None and checkpoint.phase != evidence.phase:
        problems.append(f"phase: it says {checkpoint.phase}, the ledger {evidence.phase}")
    unlisted = set(evidence.changed_files or ()) - set(checkpoint.changed_files)
    if unlisted:
        problems.append(f"tree: changed and not listed: {', '.join(sorted(unlisted))}")
    return tuple(problems)


def _said(checkpoint: Checkpoint, field: str) -> bool:
    return bool(cast("str", getattr(checkpoint, field)).strip())


def no_gain(verb: Verb, before: ContextUsage, after: ContextUsage, target: Compaction) -> str:
    """Why a reset did not help; empty where it did. A cleared session is fresh though nobody counts
    its tokens; a compacted one is taken for compacted only where they were not counted before."""
    percent = None if after.source == "unknown" else after.percent
    wanted = f"target {target.target_min:g}–{target.target_max:g} %"
    if percent is None:
        known = before.source != "unknown" and verb == "compact"
        return f"no gain: usage unknown after compaction, {wanted}" if known else ""
    if percent <= target.target_max:
        return ""
    return f"no gain: {percent:g} % after compaction, {wanted}"


def compose_handoff(
    card: AgentCard, envelope: Envelope | None, result: TaskResult | None
) -> CompactionHandoff:
    """The ten fields of an agent that cannot write them: what the ledger says of the handoff that
    it has in hand, or had last, and of its result."""
    told = result.context_handoff if result else None
    project = envelope.body.project if envelope and isinstance(envelope.body, Dispatch) else ""
    handoff = f"handoff {envelope.id}" if envelope else NONE
    files = ", ".join(it.path for it in result.files_changed) if result else ""
    return CompactionHandoff(
        active_project=project or (envelope.work if envelope else NONE),
        active_task=(envelope.task if envelope else None) or handoff,
        my_role=card.role,
        current_phase=phase_of(card.role),
        completed=(told.what if told else "") or (NONE if result is None else result.status),
        not_completed=(told.incomplete if told else "") or (NONE if result else handoff),
        evidence_paths=files or f"the ledger: {handoff}",
        known_blockers=(told.caution if told else "") or NONE,
        next_safe_action="take the next handoff" if result else f"work on {handoff}",
        do_not_use="what the session said before: the ledger decides",
    )
