import copy
import string
from datetime import UTC
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from batonbus_schemas import (
    AgentCard,
    Checkpoint,
    ContextUsage,
    ContractV1,
    Delivery,
    Envelope,
    HandoffV1,
    Receipt,
    Settlement,
    TaskResult,
    WindowEntry,
)
from batonbus_schemas.tokens import TASK_PATTERN, TOKEN_PATTERN
from batonbus_schemas.violations import find_violations, member_path

Path = tuple[str | int, ...]

TYPES = [ContractV1, Envelope, Delivery, Settlement, Receipt, AgentCard, Checkpoint]
WORDS = string.ascii_letters + " \nжя한글🧩é"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(WORDS, max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def valid(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Data, as JSON decodes to, that fits a type."""
    match kind:
        case inspect.StructType():
            return valid_object(kind)
        case inspect.UnionType():
            return st.one_of([valid(member) for member in kind.types])
        case inspect.VarTupleType():
            return st.lists(valid(kind.item_type), max_size=min(kind.max_length or 2, 2))
        case inspect.DictType():
            return st.dictionaries(st.text(max_size=4), valid(kind.value_type), max_size=2)
        case inspect.StrType():
            return valid_text(kind)
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.EnumType():
            return st.sampled_from([member.value for member in kind.cls])
        case inspect.IntType():
            return st.integers(kind.ge or 0, kind.le or 10**30)
        case inspect.FloatType():
            return st.floats(kind.ge or 0, kind.le or 1e300) | st.integers(0, 100)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.DateTimeType():
            return st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat())
        case inspect.UUIDType():
            return st.uuids().map(str)
        case _:
            return ANYTHING


def valid_object(kind: inspect.StructType) -> st.SearchStrategy[dict[str, Any]]:
    members = {field.encode_name: valid(field.type) for field in kind.fields}
    if kind.cls is HandoffV1:
        members = {"document": valid(inspect.type_info(ContractV1))}
    required = {field.encode_name for field in kind.fields if field.required}
    always = {name: members.pop(name) for name in required}
    if kind.tag_field:
        always[kind.tag_field] = st.just(kind.tag)
    return st.fixed_dictionaries(always, optional=members)


def valid_text(kind: inspect.StrType) -> st.SearchStrategy[str]:
    match kind.pattern:
        case None:
            return st.text(WORDS, max_size=6)
        case r"\S":
            return st.text(WORDS, max_size=6).map(lambda text: text + "x")
        case _:
            tokens = {TOKEN_PATTERN: r"\A[A-Za-z0-9_-]{1,64}\Z", TASK_PATTERN: r"\ATASK-[0-9]{2}\Z"}
            return st.from_regex(tokens[kind.pattern])


def places(data: Any, at: Path = ()) -> list[Path]:
    """Where everything stands in the data, the root first."""
    match data:
        case dict():
            members = list(data.items())
        case list():
            members = list(enumerate(data))
        case _:
            members = []
    return [at, *(place for key, value in members for place in places(value, (*at, key)))]


def spoiled(data: Any, at: Path, value: Any) -> Any:
    """A copy with another value in one place."""
    if not at:
        return value
    data = copy.deepcopy(data)
    inner = data
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return data


def json_path(at: Path) -> str:
    path = "$"
    for key in at:
        path = f"{path}[{key}]" if isinstance(key, int) else member_path(path, key)
    return path


def accepts(data: Any, type_: Any) -> bool:
    try:
        msgspec.convert(data, type_)
    except msgspec.ValidationError:
        return False
    return True


DATA = {type_: valid(inspect.type_info(type_)) for type_ in TYPES}
EXAMPLES = st.sampled_from(TYPES).flatmap(lambda type_: st.tuples(st.just(type_), DATA[type_]))


@given(EXAMPLES)
@settings(max_examples=60, deadline=None)
def test_what_fits_has_no_violation(example: tuple[Any, Any]):
    type_, data = example
    assert accepts(data, type_)
    assert find_violations(data, type_) == ()


@given(EXAMPLES, ANYTHING, st.data())
@settings(max_examples=300, deadline=None)
def test_one_wrong_place_is_found_there_exactly_when_msgspec_refuses(
    example: tuple[Any, Any], value: Any, data: st.DataObject
):
    type_, whole = example
    at = data.draw(st.sampled_from(places(whole)))
    broken = spoiled(whole, at, value)
    found = find_violations(broken, type_)
    assert bool(found) != accepts(broken, type_)
    for violation in found:
        # Ours is said in our words: a sentence of msgspec would mean that our rules missed it.
        assert "Expected `" not in violation.problem
        assert violation.path.startswith(json_path(at))


@given(EXAMPLES, st.data())
@settings(max_examples=150, deadline=None)
def test_a_member_that_is_taken_out_or_put_in_is_the_only_thing_said(
    example: tuple[Any, Any], data: st.DataObject
):
    type_, whole = example
    objects = [at for at in places(whole) if isinstance(value_at(whole, at), dict)]
    at = data.draw(st.sampled_from(objects))
    inner = dict(value_at(whole, at))
    key = data.draw(st.sampled_from([*inner, "surprise"]))
    if key in inner:
        del inner[key]
    else:
        inner[key] = 0
    broken = spoiled(whole, at, inner)
    found = find_violations(broken, type_)
    assert bool(found) != accepts(broken, type_)
    assert {violation.path for violation in found} <= {json_path((*at, key))}


def value_at(data: Any, at: Path) -> Any:
    for key in at:
        data = data[key]
    return data


ENVELOPE: dict[str, Any] = {
    "id": "7d0c1f6e-2d8b-4a55-9a52-0d3c9f0a1b22",
    "sender": "planner",
    "to": "builder",
    "body": {"kind": "dispatch", "brief": "Go"},
}
ENTRY: dict[str, Any] = {
    "distance": 1,
    "level": "FULL",
    "edge": "stage",
    "from": "builder",
    "handoff_id": ENVELOPE["id"],
    "what": "Did it.",
}


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        ({"to": None}, "$.to", "expected string, got null"),
        ({"to": ""}, "$.to", "`` is no name of 1 to 64 letters A-Z a-z, digits, `_` or `-`"),
        ({"to": "a\n"}, "$.to", "`a\n` is no name of 1 to 64 letters A-Z a-z, digits, `_` or `-`"),
        ({"task": "WORK-07-TASK-02"}, "$.task", "without the work's prefix"),
        ({"attempt": 0}, "$.attempt", "0 is less than 1"),
        ({"attempt": True}, "$.attempt", "expected integer, got boolean"),
        ({"attempt": 1.0}, "$.attempt", "expected integer, got number"),
        ({"attempt": "1"}, "$.attempt", "expected integer, got string"),
        ({"after": ["x"]}, "$.after[0]", "`x` is no UUID"),
        ({"after": "x"}, "$.after", "expected array, got string"),
        ({"deadline": 1784548800}, "$.deadline", "expected string (a moment), got integer"),
        ({"deadline": "tomorrow"}, "$.deadline", "`tomorrow` is no moment such as 2026-"),
        ({"deadline": "2026-07-20T12:00:00"}, "$.deadline", "has no time zone: add Z"),
        ({"version": "2.0"}, "$.version", "`2.0` is not allowed, allowed: 1.0"),
        ({"extensions": []}, "$.extensions", "expected object, got array"),
        ({"a b": 1}, '$["a b"]', "unknown field, known: id, sender, to, body"),
        ({"body": None}, "$.body", "expected object, got null"),
        ({"body": {}}, "$.body.kind", "is missing, known: dispatch, question, task-result"),
        ({"body": {"kind": 1}}, "$.body.kind", "expected string, got integer"),
        ({"body": {"kind": "note"}}, "$.body.kind", "unknown kind `note`, known: dispatch"),
        ({"body": {"kind": "dispatch", "brief": " \n"}}, "$.body.brief", "is blank"),
        ({"body": {"kind": "question"}}, "$.body.text", "is missing"),
    ],
)
def test_a_violation_says_what_is_wrong_and_what_would_be_right(
    change: dict[str, Any], path: str, problem: str
):
    (violation,) = find_violations(ENVELOPE | change, Envelope)
    assert violation.path == path
    assert problem in violation.problem


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        ({"level": "full"}, "$.level", "`full` is not allowed, allowed: FULL, SUMMARY, DROP"),
        ({"level": 1}, "$.level", "expected string, got integer"),
        ({"distance": 3}, "$.distance", "3 is more than 2"),
        ({"from": "no token"}, "$.from", "is no name"),
    ],
)
def test_choices_and_bounds_are_named(change: dict[str, Any], path: str, problem: str):
    (violation,) = find_violations(ENTRY | change, WindowEntry)
    assert (violation.path, problem in violation.problem) == (path, True)


def test_a_percentage_has_its_bounds():
    (violation,) = find_violations({"percent": 100.5}, ContextUsage)
    assert str(violation) == "$.percent: 100.5 is more than 100"


@pytest.mark.parametrize("letter", ["x", "ж", "한", "🧩"])
def test_lengths_are_counted_in_characters(letter: str, document: dict[str, Any]):
    document["objective"]["goal"] = letter * 500
    assert find_violations(document, ContractV1) == ()
    document["objective"]["goal"] = letter * 612
    (violation,) = find_violations(document, ContractV1)
    assert str(violation) == "$.objective.goal: 612 characters, limit 500"


def test_an_item_is_named_by_its_place(document: dict[str, Any]):
    document["bundle"]["decisions"] = [{}, {}, {}, {"decision": 7}]
    (violation,) = find_violations(document, ContractV1)
    assert str(violation) == "$.bundle.decisions[3].decision: expected string, got integer"


def test_a_document_in_a_body_is_judged_with_the_rest(document: dict[str, Any]):
    document["handoff_id"] = "a1b2c3d4-..."
    document["bundle"]["memory"] = [{}] * 11
    body = {"kind": "handoff-v1", "document": document, "note": ""}
    found = find_violations(ENVELOPE | {"to": "", "body": body}, Envelope)
    assert [violation.path for violation in found] == [
        "$.to",
        "$.body.note",
        "$.body.document.handoff_id",
        "$.body.document.bundle.memory",
    ]


def test_a_wrong_value_is_repeated_only_in_part():
    (violation,) = find_violations(ENVELOPE | {"to": "no token " * 7}, Envelope)
    assert len(violation.problem) < 160
    found = find_violations(ENVELOPE | {"to": "no token " * 50, "k" * 5_000: 1}, Envelope)
    assert max(len(violation.path) for violation in found) < 80


def test_a_body_of_another_kind_is_refused_where_only_one_is_expected():
    for kind, problem in (
        ("question", "unknown kind `question`, known: task-result"),
        (["task-result"], "expected string, got array"),
    ):
        (violation,) = find_violations({"kind": kind, "status": "PASS"}, TaskResult)
        assert str(violation) == f"$.kind: {problem}"


def test_a_key_of_python_that_is_no_string_is_refused():
    (violation,) = find_violations({**ENVELOPE, 7: 1}, Envelope)
    assert violation.path == '$["7"]'


def test_a_violation_can_always_be_written():
    for violation in find_violations(ENVELOPE | {"to": "\ud800", "\udc00": 1}, Envelope):
        assert str(violation).encode()


@pytest.mark.parametrize("data", [None, [], "handoff", 42, 1.5, True])
@pytest.mark.parametrize("type_", [Envelope, ContractV1, TaskResult])
def test_another_root_is_no_message(data: object, type_: Any):
    (violation,) = find_violations(data, type_)
    assert violation.path == "$"
    assert violation.problem.startswith("expected object, got ")


def test_values_of_python_fit_where_msgspec_takes_them():
    data = {"handoff_id": UUID(int=1), "state": "held", "by": "keeper", "listening": ("a",)}
    assert find_violations(data, Receipt) == ()
