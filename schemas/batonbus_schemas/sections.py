"""What a body says, as sections: the parts that its readable forms have in common."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, assert_never

from msgspec import UNSET

from batonbus_schemas.bodies import Body, CompactionHandoff, Dispatch, Question, TaskResult
from batonbus_schemas.compaction import LABELS
from batonbus_schemas.context import ContextHandoff
from batonbus_schemas.contract import ContractV1, HandoffV1

Sections: TypeAlias = Iterator[tuple[str, str]]
"""Headings, each with its text; a blank text is left out with its heading."""


def says(text: str) -> bool:
    """Whether a text says anything."""
    return bool(text.strip())


def sections(body: Body) -> Sections:
    """What a body says, by heading, in the order in which it is read."""
    match body:
        case Dispatch():
            return _dispatch(body)
        case Question():
            return _question(body)
        case TaskResult():
            return _result(body)
        case HandoffV1():
            return _contract(body.contract)
        case CompactionHandoff():
            return _compaction(body)
        case _:
            assert_never(body)


def _dispatch(body: Dispatch) -> Sections:
    yield "Brief", body.brief
    yield (
        "Task",
        _facts(
            ("Title", body.title),
            ("Action", body.action),
            # A plain assignment has no mode; it is the default only where there is a plan.
            ("Execution mode", body.execution_mode if body.plan_file or body.task_file else ""),
            ("Project", body.project),
            ("Language", body.language),
            ("Plan", body.plan_file),
            ("Task file", body.task_file),
            ("References folder", body.references_dir),
        ),
    )
    yield "Permission boundary", body.permission_boundary
    yield "Expected evidence", _bullets(body.expected_evidence)
    yield "Attention", body.attention
    yield "Context pack", body.context_pack
    yield "Skills", _bullets(body.skills)
    yield "References", _bullets(body.refs)
    yield "Cached references", _bullets(body.ref_cache)
    yield "Sections to read", _bullets(body.cache_hint)
    yield (
        "Previous results",
        _bullets(
            joined([f"{result.task} {result.status}", result.summary])
            for result in body.previous_results
        ),
    )


def _question(body: Question) -> Sections:
    yield "Question", body.text
    yield "Options", _bullets(body.options)


def _result(body: TaskResult) -> Sections:
    yield "Result", joined([body.status, body.summary])
    yield (
        "Record",
        _facts(("Work", body.work or ""), ("Task", body.task or ""), ("Agent", body.agent)),
    )
    yield (
        "Files changed",
        _bullets(
            joined([f"{change.action} {change.path}", change.description])
            for change in body.files_changed
        ),
    )
    yield (
        "Verification",
        _bullets(
            joined([f"{check.name} {check.status}", check.output]) for check in body.verification
        ),
    )
    yield "Notes", body.notes
    if body.context_handoff is not None:
        yield from _context(body.context_handoff)
    yield "Cached references", _bullets(body.ref_cache)


def _context(context: ContextHandoff) -> Sections:
    yield "What", context.what
    yield "Why", context.why
    yield "Caution", context.caution
    yield "Incomplete", context.incomplete


def _contract(contract: ContractV1) -> Sections:
    bundle = contract.bundle
    yield "Goal", contract.objective.goal
    yield "Acceptance criteria", _bullets(contract.objective.acceptance_criteria)
    yield "Progress", bundle.progress.summary
    yield "Completed steps", _bullets(bundle.progress.completed_steps)
    yield "Current step", bundle.progress.current_step
    yield (
        "Decisions",
        _bullets(
            joined([it.decision, it.rationale, _named("instead of", it.alternatives_considered)])
            for it in bundle.decisions
        ),
    )
    yield (
        "Artifacts",
        _bullets(
            joined([joined([it.artifact_id, it.name, it.type], ", "), it.relevance])
            for it in bundle.artifacts
        ),
    )
    yield (
        "Memory",
        _bullets(
            joined([it.key, it.summary, _named("source", [it.provenance])]) for it in bundle.memory
        ),
    )
    yield "Open questions", _bullets(bundle.open_questions)
    yield "Must not change", _bullets(bundle.constraints.must_not_change)
    yield "Limits", _limits(contract)
    yield "Expected capabilities", _bullets(contract.to_agent.expected_capabilities)
    sender = contract.from_agent
    yield (
        "Handed over by",
        _facts(
            ("Agent", sender.agent_id),
            ("Runtime", sender.runtime),
            ("Model", sender.model),
            ("Run", sender.run_id),
            ("Written", "" if contract.timestamp is UNSET else contract.timestamp.isoformat()),
        ),
    )


def _limits(contract: ContractV1) -> str:
    constraints = contract.bundle.constraints
    budget, deadline = constraints.budget_remaining, constraints.deadline
    return _facts(
        ("Budget remaining", "" if budget is UNSET else repr(budget).removesuffix(".0")),
        ("Deadline", "" if deadline is UNSET else deadline.isoformat()),
    )


def _compaction(body: CompactionHandoff) -> Sections:
    for field, label in LABELS.items():
        yield label, getattr(body, field)


def _facts(*facts: tuple[str, str]) -> str:
    return _bullets(f"{label}: {value}" for label, value in facts if says(value))


def _bullets(items: Iterable[str]) -> str:
    """A list; the further lines of an item are indented under its first."""
    return "\n".join("- " + "\n  ".join(item.splitlines()) for item in items if says(item))


def _named(name: str, items: Sequence[str]) -> str:
    text = joined(items, ", ")
    return f"{name} {text}" if text else ""


def joined(parts: Iterable[str], between: str = "; ") -> str:
    return between.join(part for part in parts if says(part))
