"""Our reading of contract v1 against the limits of its own JSON Schema."""

import copy
from typing import Any

import jsonschema
import msgspec
import pytest

from batonbus_schemas import ContractV1, HandoffV1
from batonbus_schemas.contract import contract_limits
from batonbus_schemas.violations import find_violations

Place = tuple[str | int, ...]


def text(limit: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": limit}


def items(limit: int, **properties: Any) -> dict[str, Any]:
    inner = {"type": "object", "properties": properties} if properties else {"type": "string"}
    return {"type": "array", "maxItems": limit, "items": inner}


def part(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


LIMITS = part(
    objective=part(goal=text(500), acceptance_criteria=items(10)),
    bundle=part(
        progress=part(summary=text(1000), completed_steps=items(20)),
        decisions=items(15, decision={"type": "string"}),
        artifacts=items(20, relevance=text(200)),
        memory=items(10, summary=text(300)),
        open_questions=items(10),
    ),
)
"""The limits of seed 003, JSON Schema, and nothing else of it."""

TEXTS: list[tuple[Place, int]] = [
    (("objective", "goal"), 500),
    (("bundle", "progress", "summary"), 1000),
    (("bundle", "artifacts", 0, "relevance"), 200),
    (("bundle", "memory", 0, "summary"), 300),
]
ARRAYS: list[tuple[Place, int, Any]] = [
    (("objective", "acceptance_criteria"), 10, "it works"),
    (("bundle", "progress", "completed_steps"), 20, "a step"),
    (("bundle", "decisions"), 15, {"decision": "this"}),
    (("bundle", "artifacts"), 20, {"name": "a.csv"}),
    (("bundle", "memory"), 10, {"key": "k"}),
    (("bundle", "open_questions"), 10, "why?"),
]
CASES = [
    (place, limit + over, letter * (limit + over), over == 0)
    for place, limit in TEXTS
    for over in (0, 1)
    for letter in ("x", "ж", "한", "🧩", "e\u0301"[1])
] + [
    (place, limit + over, [item] * (limit + over), over == 0)
    for place, limit, item in ARRAYS
    for over in (0, 1)
]


@pytest.mark.parametrize(("place", "size", "value", "fits"), CASES)
def test_a_limit_is_where_the_contract_puts_it(
    place: Place, size: int, value: Any, fits: bool, document: dict[str, Any]
):
    inner: Any = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    theirs = jsonschema.Draft202012Validator(LIMITS).is_valid(document)
    ours = find_violations(document, ContractV1)
    assert theirs is fits
    assert (not ours) is fits
    assert all(f"{size:,} " in violation.problem for violation in ours)


def test_the_limits_are_those_of_the_seed() -> None:
    assert contract_limits() == {
        "objective.goal": (500, "characters"),
        "objective.acceptance_criteria": (10, "entries"),
        "bundle.progress.summary": (1000, "characters"),
        "bundle.progress.completed_steps": (20, "entries"),
        "bundle.decisions": (15, "entries"),
        "bundle.artifacts": (20, "entries"),
        "bundle.artifacts[].relevance": (200, "characters"),
        "bundle.memory": (10, "entries"),
        "bundle.memory[].summary": (300, "characters"),
        "bundle.open_questions": (10, "entries"),
    }


def test_a_body_cannot_be_made_of_a_document_that_breaks_the_contract(document: dict[str, Any]):
    broken = copy.deepcopy(document)
    del broken["objective"]
    with pytest.raises(msgspec.ValidationError, match="objective"):
        HandoffV1(document=broken)
    assert HandoffV1(document=document).contract.objective.goal == document["objective"]["goal"]


def test_a_document_stands_in_a_window_by_progress_decisions_constraints_and_questions(
    document: dict[str, Any],
):
    document["bundle"] = {
        "progress": {"summary": "Compared three.", "completed_steps": ["read", " "]},
        "decisions": [{"decision": "EMA", "rationale": "fits best"}, {"rationale": "fast"}, {}],
        "constraints": {"must_not_change": ["run()"]},
        "open_questions": ["Count the spread?"],
    }
    context = HandoffV1(document=document).context()
    assert context is not None
    assert context.what == "Compared three.\nread"
    assert context.why == "EMA: fits best\nfast"
    assert context.caution == "must not change: run()"
    assert context.incomplete == "Count the spread?"


def test_a_document_without_progress_is_no_step(document: dict[str, Any]):
    document["bundle"] = {"decisions": [{"decision": "EMA"}], "progress": {"summary": " "}}
    assert HandoffV1(document=document).context() is None
