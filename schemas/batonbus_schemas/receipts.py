"""Answers to a handoff, and what agents tell about themselves."""

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from batonbus_schemas.bodies import CompactionHandoff, Percent
from batonbus_schemas.tokens import Moment, TaskId, Text, Token

TextForm = Literal["markdown", "xml"]
"""The forms in which an assignment can be read."""

UsageSource = Literal["measured", "estimated", "unknown"]
"""How a context usage is known."""

Phase = Literal["specify", "plan", "implement", "close"]
State = Literal["accepted", "held", "refused", "overdue", "failed", "settled", "dead", "cancelled"]


class Violation(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a message: where (a JSON path such as `$.body.brief`), what."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class Receipt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How a handoff was answered, by an agent or by the bus for it (seed 003: within 30 s)."""

    handoff_id: UUID
    state: State
    by: Token
    reason: str = ""
    violations: tuple[Violation, ...] = ()
    attempt: Annotated[int, Meta(ge=1)] | None = None
    lease: Annotated[int, Meta(ge=1)] | None = None
    waited_s: float | None = None
    listening: tuple[str, ...] = ()


class ContextUsage(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Percent of a model's tokens in use, and how that is known; unknown is never shown as 0."""

    source: UsageSource = "unknown"
    percent: Percent | None = None


class AgentCard(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What an agent tells the fleet about itself. `text_form` is how it reads its assignments."""

    id: Token
    role: Token
    policy_role: Token | None = None
    capabilities: tuple[str, ...] = ()
    runtime: str = "python"
    model: str = ""
    slots: Annotated[int, Meta(ge=1)] = 1
    text_form: TextForm = "markdown"
    context_usage: ContextUsage = ContextUsage()


class Presence(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A registry entry: the card, and the accepted events that this process works under.

    An owner is alive for a handoff only while its entry lists that accepted sequence. `closed` is
    why it takes no new work now; empty while it does. `shared`: another process runs under the same
    id, and they take each other's work.
    """

    card: AgentCard
    working: tuple[int, ...] = ()
    stopping: bool = False
    closed: str = ""
    shared: bool = False


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The durable record that must exist before a session is reset (seed 004)."""

    agent: Token
    work: Token
    phase: Phase
    did: Text
    checks: Text
    next: Text
    context: Text
    written: Moment
    task: TaskId | None = None
    changed_files: tuple[str, ...] = ()
    handoff: CompactionHandoff | None = None


class ResetJournal(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """How far the last reset of an agent's session is: a restart goes on there, and repeats no step
    that is finished. `checkpoint` is the last one that was stored, `began` when this reset began.
    """

    agent: Token
    step: Literal["began", "handoff", "checkpoint", "reset", "done", "no_gain"]
    verb: Literal["compact", "clear"]
    reason: Text
    began: Moment
    usage: ContextUsage = ContextUsage()
    work: Token = "adhoc"
    task: TaskId | None = None
    handoff: CompactionHandoff | None = None
    changed_files: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    usage_after: ContextUsage = ContextUsage()
