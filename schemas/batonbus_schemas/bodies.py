"""What a handoff can carry: the tagged union `Body`.

Sources: seed 002 (dispatch and task result), seed 001 (what a dispatch contains, the ten fields of
a compaction handoff), seed 003 (contract v1, in `contract.py`).
"""

from typing import Annotated, Literal, Self

from msgspec import Meta, Struct

from batonbus_schemas.context import SUMMARY_LINES, ContextHandoff, first_lines
from batonbus_schemas.contract import HandoffV1
from batonbus_schemas.tokens import Moment, TaskId, Text, Token

Mode = Literal["direct", "pipeline", "full"]
Percent = Annotated[float, Meta(ge=0, le=100)]


class _Body(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="kind",
):
    """Closed, and tagged by `kind`."""


class PreviousResult(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an earlier task ended, in a line or two."""

    task: TaskId
    status: Literal["PASS", "FAIL", "SKIP"]
    summary: str = ""


class Dispatch(_Body, frozen=True, tag="dispatch"):
    """An assignment: brief, boundaries, evidence, and references instead of pasted text."""

    brief: Text
    title: str = ""
    action: str = ""
    execution_mode: Mode = "full"
    project: str = ""
    language: str = ""
    plan_file: str = ""
    task_file: str = ""
    references_dir: str = ""
    previous_results: tuple[PreviousResult, ...] = ()
    cache_hint: tuple[str, ...] = ()
    ref_cache: dict[str, str] = {}
    permission_boundary: str = ""
    expected_evidence: tuple[str, ...] = ()
    attention: str = ""
    context_pack: str = ""
    skills: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()


class Question(_Body, frozen=True, tag="question"):
    """Something to be answered, by a person or by an agent."""

    text: Text
    options: tuple[str, ...] = ()


class FileChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file that the work touched; `path` is relative to the project."""

    action: Literal["created", "modified", "deleted"]
    path: Text
    description: str = ""


class Check(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One verification with its raw output. N/A never fails, and never passes alone."""

    name: Text
    status: Literal["PASS", "FAIL", "N/A"]
    output: str = ""


class TaskResult(_Body, frozen=True, tag="task-result"):
    """The answer to a handoff (seed 002, section 2, with the context handoff of seed 000)."""

    status: Literal["PASS", "FAIL"]
    summary: str = ""
    work: Token | None = None
    task: TaskId | None = None
    agent: str = ""
    files_changed: tuple[FileChange, ...] = ()
    verification: tuple[Check, ...] = ()
    notes: str = ""
    context_handoff: ContextHandoff | None = None
    commit: str = ""
    started: Moment | None = None
    finished: Moment | None = None
    ref_cache: dict[str, str] = {}

    @property
    def text(self) -> str:
        """What it says: `what` of its context handoff, or its summary."""
        return self.context_handoff.what if self.context_handoff else self.summary

    @classmethod
    def passed(
        cls,
        what: str,
        *,
        why: str = "",
        caution: str = "",
        incomplete: str = "",
        files: tuple[FileChange, ...] = (),
        checks: tuple[Check, ...] = (),
    ) -> Self:
        """A PASS that tells the next agents what was done; a blank `what` raises ValueError."""
        return cls._made("PASS", what, why, caution, incomplete, files, checks)

    @classmethod
    def failed(
        cls,
        what: str,
        *,
        why: str = "",
        caution: str = "",
        incomplete: str = "",
        files: tuple[FileChange, ...] = (),
        checks: tuple[Check, ...] = (),
    ) -> Self:
        """A FAIL: a finding that is passed on as a value, not an error of the agent."""
        return cls._made("FAIL", what, why, caution, incomplete, files, checks)

    @classmethod
    def _made(
        cls,
        status: Literal["PASS", "FAIL"],
        what: str,
        why: str,
        caution: str,
        incomplete: str,
        files: tuple[FileChange, ...],
        checks: tuple[Check, ...],
    ) -> Self:
        if not what.strip():
            raise ValueError("a result must say what was done: `what` is blank")
        return cls(
            status=status,
            summary="\n".join(first_lines(what, SUMMARY_LINES)),
            files_changed=files,
            verification=checks,
            context_handoff=ContextHandoff(
                what=what, why=why, caution=caution, incomplete=incomplete
            ),
        )

    def then(
        self, to: str, body: "Body | str", *, attempt: int = 1, task: str | None = None
    ) -> "Then":
        """Settle with this result and hand on to `to` in the same write; a string is a brief.

        `attempt` is the first attempt that the receiver makes: a rebuild goes on counting. `task`
        None stays with the task of this handoff.
        """
        return Then(result=self, to=to, body=as_body(body), attempt=attempt, task=task)


class CompactionHandoff(_Body, frozen=True, tag="compaction-handoff"):
    """The ten fields that must be written before an agent's session is reset (seed 001)."""

    active_project: Text
    active_task: Text
    my_role: Text
    current_phase: Text
    completed: Text
    not_completed: Text
    evidence_paths: Text
    known_blockers: Text
    next_safe_action: Text
    do_not_use: Text


Body = Dispatch | Question | TaskResult | HandoffV1 | CompactionHandoff


class Then(Struct, frozen=True, kw_only=True):
    """A result and the next handoff: what a handler returns to hand on."""

    result: TaskResult
    to: str
    body: Body
    attempt: int = 1
    task: str | None = None


def as_body(body: Body | str) -> Body:
    """Plain text becomes a `Dispatch` with that brief; a body stays as it is."""
    return Dispatch(brief=body) if isinstance(body, str) else body
