"""Handoff contract v1 of seed 003, with every limit that it names.

The contract is open: unknown keys are kept at every level and travel on unchanged. So a bus
carries the document itself (`HandoffV1.document`) and reads it through typed views.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, inspect

from batonbus_schemas.context import ContextHandoff
from batonbus_schemas.tokens import Moment, Text, Version

Runtime = Literal["hermes", "openclaw", "claude", "codex", "gemini"]


class FromAgent(Struct, frozen=True, kw_only=True):
    """Who hands the work over, in its own words; the bus trusts the subject's actor instead."""

    agent_id: Text
    runtime: Runtime
    model: str = ""
    run_id: str = ""


class ToAgent(Struct, frozen=True, kw_only=True):
    """Who shall take the work, and what it must be able to do."""

    agent_id: Text
    expected_capabilities: tuple[str, ...] = ()


class Objective(Struct, frozen=True, kw_only=True):
    """What is to be reached; `goal` has at most 500 characters."""

    goal: Annotated[str, Meta(max_length=500, pattern=r"\S")]
    acceptance_criteria: Annotated[tuple[str, ...], Meta(max_length=10)] = ()


class Progress(Struct, frozen=True, kw_only=True):
    """How far the work is; `summary` has at most 1,000 characters."""

    summary: Annotated[str, Meta(max_length=1000)] = ""
    completed_steps: Annotated[tuple[str, ...], Meta(max_length=20)] = ()
    current_step: str = ""


class Decision(Struct, frozen=True, kw_only=True):
    """A choice that the receiver should not make again."""

    decision: str = ""
    rationale: str = ""
    alternatives_considered: tuple[str, ...] = ()


class Artifact(Struct, frozen=True, kw_only=True):
    """A reference to something that the receiver may need."""

    artifact_id: str = ""
    name: str = ""
    type: str = ""
    relevance: Annotated[str, Meta(max_length=200)] = ""


class Memory(Struct, frozen=True, kw_only=True):
    """A remembered fact and where it came from."""

    key: str = ""
    summary: Annotated[str, Meta(max_length=300)] = ""
    provenance: str = ""


class Constraints(Struct, frozen=True, kw_only=True):
    """What binds the receiver. `budget_remaining` has no unit: it is carried and shown."""

    must_not_change: tuple[str, ...] = ()
    budget_remaining: float | UnsetType = UNSET
    deadline: Moment | UnsetType = UNSET


class Bundle(Struct, frozen=True, kw_only=True):
    """The bounded context that comes with the objective."""

    progress: Progress = Progress()
    decisions: Annotated[tuple[Decision, ...], Meta(max_length=15)] = ()
    artifacts: Annotated[tuple[Artifact, ...], Meta(max_length=20)] = ()
    memory: Annotated[tuple[Memory, ...], Meta(max_length=10)] = ()
    open_questions: Annotated[tuple[str, ...], Meta(max_length=10)] = ()
    constraints: Constraints = Constraints()


class ContractV1(Struct, frozen=True, kw_only=True):
    """The typed view of a contract v1 document (seed 003, JSON Schema and validation)."""

    handoff_id: UUID
    from_agent: FromAgent
    to_agent: ToAgent
    objective: Objective
    bundle: Bundle
    version: Version = "1.0"
    schema_version: Version = "1.0"
    timestamp: Moment | UnsetType = UNSET


class HandoffV1(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="handoff-v1"
):
    """A contract v1 document as the body of a handoff: `document` is kept exactly as it came.

    Making one raises `msgspec.ValidationError` (a ValueError) where the document breaks the
    contract, so there is no body with a document that was not checked.
    """

    document: dict[str, Any]

    def __post_init__(self) -> None:
        msgspec.convert(self.document, ContractV1)

    @property
    def contract(self) -> ContractV1:
        """The typed view of the document."""
        return msgspec.convert(self.document, ContractV1)

    def context(self) -> ContextHandoff | None:
        """How this document stands in a window: what ← progress, why ← decisions with rationale,
        caution ← constraints, incomplete ← open questions. None where it tells of no progress."""
        bundle = self.contract.bundle
        progress = bundle.progress
        what = _lines([progress.summary, *progress.completed_steps, progress.current_step])
        if not what:
            return None
        return ContextHandoff(
            what=what,
            why=_lines(
                ": ".join(part for part in (choice.decision, choice.rationale) if part.strip())
                for choice in bundle.decisions
            ),
            caution=_lines(
                f"must not change: {name}" for name in bundle.constraints.must_not_change
            ),
            incomplete=_lines(bundle.open_questions),
        )


def contract_limits() -> dict[str, tuple[int, str]]:
    """Every limit of the contract: of the member at a path, so many "characters" or "entries"."""
    return dict(_limits(inspect.type_info(ContractV1), ""))


def _limits(kind: inspect.Type, path: str) -> Iterator[tuple[str, tuple[int, str]]]:
    match kind:
        case inspect.StructType(fields=fields):
            for it in fields:
                yield from _limits(it.type, f"{path}.{it.encode_name}".removeprefix("."))
        case inspect.VarTupleType(item_type=item, max_length=most):
            if most is not None:
                yield path, (most, "entries")
            yield from _limits(item, f"{path}[]")
        case inspect.StrType(max_length=int(most)):
            yield path, (most, "characters")
        case _:
            pass


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(text for text in texts if text.strip())
