"""How an agent's session is reset: never without a Checkpoint (seeds 001 and 004).

A phase boundary clears, a task boundary compacts, in the middle of a task a session is compacted at
most. Before each reset the ten fields of a compaction handoff are written, and a Checkpoint that
agrees with the facts; after it the usage must have come down, or there was no gain.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, cast, get_args

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
from batonbus_schemas.envelope import ADHOC
from batonbus_schemas.receipts import Phase

Verb = Literal["compact", "clear"]

KEEP = ("constraints of the design", "conventions that were found", "the next safe action")
DROP = ("errors that are resolved", "attempts that are superseded", "the ended task's transcript")

FIELDS = CompactionHandoff.__struct_fields__

NONE = "None"

NAMED = 20
"""Files and checks that a sentence names."""

PHASES: Mapping[str, Phase] = {"specifier": "specify", "planner": "plan", "committer": "close"}


class ResetRequest(Struct, frozen=True, kw_only=True):
    """What a `@agent.resets` function is asked for.

    `step` "handoff": write the ten fields; `missing` names those that were left empty the first
    time; `checkpoint` is the last one, where it is of the same work. `step` "reset": now compact or
    clear the session; `checkpoint` is stored. `keep` and `drop` say what the session shall hold on
    to, and what not.
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
    `usage` after the reset, the `verb` where another was done than asked for (what cannot be
    compacted begins afresh), and its `capabilities` where these are others now."""

    handoff: CompactionHandoff | None = None
    changed_files: tuple[str, ...] = ()
    usage: ContextUsage = ContextUsage()
    verb: Verb | None = None
    capabilities: tuple[str, ...] | None = None


class Handled(Struct, frozen=True, kw_only=True):
    """What a session worked on: the handoff, which attempt at it, and its result (None: it has
    none, or none yet)."""

    envelope: Envelope
    attempt: int = 1
    result: TaskResult | None = None


class CheckpointRequest(Struct, frozen=True, kw_only=True):
    """What a `@agent.checkpoints` function is asked for.

    `step` "compare": say what the fleet's own records hold, and change nothing. `step` "write":
    they agree; write the Checkpoint there, and say what was written as it is read back. After a
    crash the same Checkpoint may come again: its `agent`, `work`, `task` and `written` tell.
    `last` is what the session worked on last, None where that is not known any more.
    """

    step: Literal["compare", "write"]
    checkpoint: Checkpoint
    last: Handled | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """An entry of an execution log, as it is read back."""

    phase: str = ""
    did: str = ""
    checks: str = ""
    next: str = ""
    context: str = ""


class Evidence(Struct, frozen=True, kw_only=True):
    """What a Checkpoint must agree with; what is None is not known here, and not compared.

    `done` are the tasks that the ledger says are done, `marked` those that the progress files say;
    `changed_files` are those of the task's tree that are not committed; `entry` is what was written
    into the execution log. `next` is the next step where the fleet knows a better one than the
    draft says.
    """

    phase: Phase | None = None
    done: frozenset[str] | None = None
    marked: frozenset[str] | None = None
    changed_files: tuple[str, ...] | None = None
    entry: Entry | None = None
    next: str = ""


Place = tuple[str, str | None, Phase]
"""A work, a task of it, and a phase."""


class Progress(Struct, frozen=True, kw_only=True):
    """Where a session stands as the next handoff comes: what it worked on last (None: nothing), the
    next, for how many minutes no Checkpoint was written, and the rounds of fix and review."""

    last: Place | None
    next: Place
    minutes: float = 0.0
    rounds: int = 0


class Due(Struct, frozen=True, kw_only=True):
    """Why a Checkpoint is due, and the reset behind it (None: only the Checkpoint)."""

    why: Literal["phase boundary", "task boundary", "interval", "fix and review rounds"]
    verb: Verb | None = None


def phase_of(role: str) -> Phase:
    """The phase in which a role works."""
    return PHASES.get(role, "implement")


def stated_phase(handoff: CompactionHandoff, role: str) -> Phase:
    """The phase that a session says it is in; that of its role where it says none of the four."""
    said = handoff.current_phase.strip().lower()
    return cast("Phase", said) if said in get_args(Phase) else phase_of(role)


def due(progress: Progress, policy: Policy) -> Due | None:
    """Whether a Checkpoint, and maybe a reset, comes before the next handoff."""
    checkpoints = policy.checkpoints
    if progress.last is not None and (due := _boundary(progress.last, progress.next, policy)):
        return due
    if progress.rounds >= checkpoints.after_fix_review_rounds:
        return Due(why="fix and review rounds")
    if progress.minutes >= checkpoints.interval_minutes:
        return Due(why="interval")
    return None


def _boundary(last: Place, following: Place, policy: Policy) -> Due | None:
    """A phase belongs to a work: who goes on with another work has left it. What belongs to no work
    is no boundary. One whose reset is off still gets its Checkpoint where the policy says so."""
    (work, task, phase), (next_work, next_task, next_phase) = last, following
    if ADHOC in (work, next_work):
        return None
    if (work, phase) != (next_work, next_phase):
        return _end_of_phase(policy)
    return _end_of_task(policy) if task != next_task else None


def due_at_end(work: str, task: str | None, policy: Policy) -> Due | None:
    """Whether a Checkpoint comes at the end of a handoff whose session ends with it: it leaves its
    task, or its phase where it has none."""
    if work == ADHOC:
        return None
    return _end_of_task(policy) if task else _end_of_phase(policy)


def _end_of_phase(policy: Policy) -> Due | None:
    verb = as_verb(policy.context_management.phase_boundary)
    wanted = verb or policy.checkpoints.after_phase
    return Due(why="phase boundary", verb=verb) if wanted else None


def _end_of_task(policy: Policy) -> Due | None:
    verb = as_verb(policy.context_management.task_boundary)
    return Due(why="task boundary", verb=verb) if verb else None


def as_verb(setting: Literal["clear", "compact", "off"]) -> Verb | None:
    """The reset that a setting asks for."""
    return None if setting == "off" else setting


def verb_in_task(policy: Policy) -> Literal["compact"] | None:
    """The reset in the middle of a task: by type it never clears."""
    setting = policy.context_management.mid_task
    return None if setting == "off" else setting


def missing_fields(handoff: CompactionHandoff | None) -> tuple[str, ...]:
    """Which of the ten fields are empty: a handoff counts only when none is."""
    said: dict[str, object] = {it: getattr(handoff, it, None) for it in FIELDS}
    return tuple(
        it
        for it, text in said.items()
        if text is None or (isinstance(text, str) and not text.strip())
    )


def refusals(checkpoint: Checkpoint, evidence: Evidence) -> tuple[str, ...]:
    """Which of the four conditions a Checkpoint fails, each by its name; none: it may be reset."""
    problems: list[str] = []
    done, marked = evidence.done, evidence.marked
    if done is not None and marked is not None and done != marked:
        wrong = ", ".join(sorted(done ^ marked))
        problems.append(f"progress marks: they disagree with the ledger about {wrong}")
    entry = evidence.entry
    empty = [it for it in _TOLD if not (_said(checkpoint, it) and (not entry or _said(entry, it)))]
    if empty:
        problems.append(f"execution log: its entry says nothing as {', '.join(empty)}")
    if evidence.phase is not None and checkpoint.phase != evidence.phase:
        problems.append(f"phase: it says {checkpoint.phase}, the ledger {evidence.phase}")
    elif entry is not None and entry.phase != checkpoint.phase:
        said = entry.phase or "nothing"
        problems.append(f"phase: its entry says {said}, the ledger {checkpoint.phase}")
    unlisted = set(evidence.changed_files or ()) - set(checkpoint.changed_files)
    if unlisted:
        problems.append(f"tree: changed and not listed: {', '.join(sorted(unlisted))}")
    return tuple(problems)


_TOLD = ("did", "checks", "next", "context")


def _said(told: Checkpoint | Entry, field: str) -> bool:
    return bool(cast("str", getattr(told, field)).strip())


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


def too_far(verb: Verb, after: ContextUsage, target: Compaction) -> str:
    """What to say of a compaction that kept less than the target's lower end; empty where it did
    not. It is a gain, and the Checkpoint holds what was dropped: nothing stops for it."""
    percent = None if after.source == "unknown" else after.percent
    if verb == "clear" or percent is None or percent >= target.target_min:
        return ""
    wanted = f"target {target.target_min:g}–{target.target_max:g} %"
    return f"{percent:g} % after compaction, {wanted}: what it dropped stands in the Checkpoint"


def compose_handoff(
    card: AgentCard,
    envelope: Envelope | None,
    result: TaskResult | None,
    before: Checkpoint | None = None,
) -> CompactionHandoff:
    """The ten fields of an agent that cannot write them: what the ledger says of the handoff that
    it has in hand, or had last, and of its result. Where neither is known any more, as after a
    restart, what the Checkpoint `before` says still holds."""
    if envelope is None and result is None and before and not missing_fields(before.handoff):
        assert before.handoff is not None
        return before.handoff
    told = result.context_handoff if result else None
    project = envelope.body.project if envelope and isinstance(envelope.body, Dispatch) else ""
    handoff = f"handoff {envelope.id}" if envelope else NONE
    is_in_hand = envelope is not None and result is None
    checks = [f"{it.name} {it.status}" for it in result.verification] if result else []
    files = [it.path for it in result.files_changed] if result else []
    evidence = _listed(checks) or "no check was run"
    if files:
        evidence = f"{evidence}; changed: {_listed(files)}"
    return CompactionHandoff(
        active_project=project or (envelope.work if envelope else NONE),
        active_task=(envelope.task if envelope else None) or handoff,
        my_role=card.role,
        current_phase=phase_of(card.role),
        completed=(told.what if told else "") or (NONE if result is None else result.status),
        not_completed=(told.incomplete if told else "") or (NONE if result else handoff),
        evidence_paths=evidence if result else f"the ledger: {handoff}",
        known_blockers=(told.caution if told else "") or NONE,
        next_safe_action=f"work on {handoff}" if is_in_hand else "take the next handoff",
        do_not_use="what the session said before: the ledger decides",
    )


def _listed(words: Sequence[str]) -> str:
    more = len(words) - NAMED
    shown = ", ".join(words[:NAMED])
    return f"{shown} and {more:,} more" if more > 0 else shown
