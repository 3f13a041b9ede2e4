"""The assignment as an agent or a command reads it: Markdown, the same for the same message."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, assert_never

from msgspec import UNSET

from batonbus_schemas.bodies import Body, CompactionHandoff, Dispatch, Question, TaskResult
from batonbus_schemas.context import SHOWN_LINES, ContextHandoff, WindowEntry, shown
from batonbus_schemas.contract import ContractV1, HandoffV1
from batonbus_schemas.envelope import Envelope

Sections: TypeAlias = Iterator[tuple[str, str]]
"""Headings, each with its text; a blank text is left out with its heading."""


def render(envelope: Envelope, window: Sequence[WindowEntry] = ()) -> str:
    """The readable assignment: whose it is, what to do, and the context from earlier steps.

    Every field of the body that is not empty stands under its heading. A window entry's fields are
    shown to their line limits (`SHOWN_LINES`), and as quotes, so that no earlier agent's text can
    pass for another part of the assignment.
    """
    parts = [_opening(envelope)]
    parts += [
        f"## {heading}\n\n{text}" for heading, text in _sections(envelope.body) if _says(text)
    ]
    if window:
        parts += ["## Context from earlier steps", *(_entry(entry) for entry in window)]
    lines = "\n\n".join(parts).splitlines()
    return "\n".join(line.rstrip() for line in lines).rstrip()


def _says(text: str) -> bool:
    return bool(text.strip())


def _opening(envelope: Envelope) -> str:
    facts = [f"Work {envelope.work}"]
    if envelope.task is not None:
        facts.append(f"task {envelope.task}")
    facts += [f"attempt {envelope.attempt}", f"from {envelope.sender}", f"handoff {envelope.id}"]
    if envelope.deadline is not None:
        facts.append(f"due {envelope.deadline.isoformat()}")
    return f"# Assignment for {envelope.to}\n\n{', '.join(facts)}"


def _entry(entry: WindowEntry) -> str:
    where = f"handoff {entry.handoff_id}"
    facts = [entry.from_, entry.task or "", entry.level.value, where]
    return "\n\n".join([f"### {_joined(facts, ', ')}", *_fields(entry, where)])


def _fields(entry: WindowEntry, where: str) -> Iterator[str]:
    for name in SHOWN_LINES:
        text, cut = shown(name, getattr(entry, name) or "")
        if _says(text):
            more = f" ({cut:,} more {'line' if cut == 1 else 'lines'} in {where})" if cut else ""
            quote = "\n".join(f"> {line}" for line in text.splitlines())
            yield f"**{name.capitalize()}**{more}\n\n{quote}"


def _sections(body: Body) -> Sections:
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
            _joined([f"{result.task} {result.status}", result.summary])
            for result in body.previous_results
        ),
    )


def _question(body: Question) -> Sections:
    yield "Question", body.text
    yield "Options", _bullets(body.options)


def _result(body: TaskResult) -> Sections:
    yield "Result", _joined([body.status, body.summary])
    yield (
        "Record",
        _facts(("Work", body.work or ""), ("Task", body.task or ""), ("Agent", body.agent)),
    )
    yield (
        "Files changed",
        _bullets(
            _joined([f"{change.action} {change.path}", change.description])
            for change in body.files_changed
        ),
    )
    yield (
        "Verification",
        _bullets(
            _joined([f"{check.name} {check.status}", check.output]) for check in body.verification
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
            _joined([it.decision, it.rationale, _named("instead of", it.alternatives_considered)])
            for it in bundle.decisions
        ),
    )
    yield (
        "Artifacts",
        _bullets(
            _joined([_joined([it.artifact_id, it.name, it.type], ", "), it.relevance])
            for it in bundle.artifacts
        ),
    )
    yield (
        "Memory",
        _bullets(
            _joined([it.key, it.summary, _named("source", [it.provenance])]) for it in bundle.memory
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
    yield "Active project", body.active_project
    yield "Active task", body.active_task
    yield "My role", body.my_role
    yield "Current phase", body.current_phase
    yield "Completed", body.completed
    yield "Not completed", body.not_completed
    yield "Evidence paths", body.evidence_paths
    yield "Known blockers", body.known_blockers
    yield "Next safe action", body.next_safe_action
    yield "Do not use / stale context", body.do_not_use


def _facts(*facts: tuple[str, str]) -> str:
    return _bullets(f"{label}: {value}" for label, value in facts if _says(value))


def _bullets(items: Iterable[str]) -> str:
    """A list; the further lines of an item are indented under its first."""
    return "\n".join("- " + "\n  ".join(item.splitlines()) for item in items if _says(item))


def _named(name: str, items: Sequence[str]) -> str:
    text = _joined(items, ", ")
    return f"{name} {text}" if text else ""


def _joined(parts: Iterable[str], between: str = "; ") -> str:
    return between.join(part for part in parts if _says(part))
