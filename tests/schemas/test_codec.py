import json
from typing import Any
from uuid import UUID

import pytest

from batonbus_schemas import (
    MESSAGE_LIMIT,
    AgentCard,
    ContextUsage,
    Delivery,
    Dispatch,
    Envelope,
    HandoffV1,
    InvalidMessageError,
    Receipt,
    Settlement,
    TaskResult,
    Violation,
    decode,
    encode,
    read_handoff,
)
from batonbus_schemas.codec import VIOLATION_LIMIT
from batonbus_schemas.tokens import DEPTH_LIMIT

ID = UUID("7d0c1f6e-2d8b-4a55-9a52-0d3c9f0a1b22")


def envelope(**changes: Any) -> Envelope:
    return Envelope(
        **{"id": ID, "sender": "cli", "to": "builder", "body": Dispatch(brief="Go")} | changes
    )


def raw(message: object) -> bytes:
    return json.dumps(message).encode()


def nested(levels: int) -> Any:
    """Objects in objects, so many levels of them."""
    value: Any = {}
    for _ in range(levels - 1):
        value = {"in": value}
    return value


def refused(call: Any, *args: Any, **named: Any) -> dict[str, str]:
    """The violations, by path, with which the call is refused."""
    with pytest.raises(InvalidMessageError) as caught:
        call(*args, **named)
    return {violation.path: violation.problem for violation in caught.value.violations}


def padded(size: int) -> Envelope:
    """An envelope that is exactly so many bytes long."""
    return envelope(body=Dispatch(brief="x" * (size - len(encode(envelope())) + len("Go"))))


def test_a_message_comes_back_as_it_was():
    message = envelope(work="WORK-07", extensions={"a": [1, 2.5, None, "ж"]})
    assert decode(encode(message), Envelope) == message


def test_a_message_of_exactly_the_limit_passes():
    data = encode(padded(MESSAGE_LIMIT))
    assert len(data) == MESSAGE_LIMIT
    assert decode(data, Envelope).id == ID


def test_one_byte_more_is_refused_with_both_numbers():
    message = padded(MESSAGE_LIMIT)
    longer = envelope(body=Dispatch(brief=message.body.brief + "x"))  # type: ignore[union-attr]
    for found in (
        refused(encode, longer),
        refused(decode, b" " + encode(message), Envelope),
        refused(read_handoff, b" " + encode(message), sender="cli"),
        refused(encode, Settlement(result=TaskResult(status="PASS"), next=message)),
    ):
        assert "65,536" in found["$"]
    assert "65,537" in refused(encode, longer)["$"]


def test_the_limit_counts_bytes_and_not_characters():
    assert "limit 65,536" in refused(encode, envelope(body=Dispatch(brief="ж" * 33_000)))["$"]


def test_a_delivery_may_carry_its_window_besides():
    delivery = Delivery(envelope=padded(MESSAGE_LIMIT), opener="builder")
    assert decode(encode(delivery), Delivery) == delivery


def test_a_wrong_byte_is_named_with_its_place():
    data = '{"goal":"Küche"}'.encode("latin-1")
    problem = "not UTF-8: byte 0xfc at position 10"
    assert refused(decode, data, Envelope) == {"$": problem}
    assert refused(read_handoff, data, sender="cli") == {"$": problem}


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1} x', b"{'a': 1}", b"\xef\xbb\xbf{}", b"not"])
def test_what_is_no_json_is_refused(data: bytes):
    assert refused(decode, data, Envelope)["$"].startswith("not JSON")
    assert refused(read_handoff, data, sender="cli")["$"].startswith("not JSON")


@pytest.mark.parametrize("data", [b"null", b"[]", b'"handoff"', b"42", b"true", b"2.5"])
def test_a_root_that_is_no_object_is_refused(data: bytes):
    for found in (refused(decode, data, Envelope), refused(read_handoff, data, sender="cli")):
        assert list(found) == ["$"]
        assert found["$"].startswith("expected object, got ")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused_on_reading_with_its_path(word: str, document: Any):
    document["bundle"]["constraints"]["budget_remaining"] = "HERE"
    data = raw(document).replace(b'"HERE"', word.encode())
    found = refused(read_handoff, data, sender="cli")
    assert list(found) == ["$.bundle.constraints.budget_remaining"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused_on_writing_with_its_path(number: float):
    found = refused(encode, envelope(extensions={"a": {"b c": [0, number]}}))
    assert list(found) == ['$.extensions.a["b c"][1]']
    assert "JSON" in found['$.extensions.a["b c"][1]']


def test_a_document_with_such_a_number_is_not_written(document: dict[str, Any]):
    document["bundle"]["constraints"]["budget_remaining"] = float("inf")
    message = envelope(body=HandoffV1(document=document))
    path = "body.document.bundle.constraints.budget_remaining"
    assert list(refused(encode, message)) == [f"$.{path}"]
    delivery = Delivery(envelope=message, opener="builder")
    assert list(refused(encode, delivery)) == [f"$.envelope.{path}"]
    settlement = Settlement(result=TaskResult(status="PASS"), next=message)
    assert list(refused(encode, settlement)) == [f"$.next.{path}"]


def test_typed_numbers_are_checked_too():
    receipt = Receipt(handoff_id=ID, state="held", by="keeper", waited_s=float("nan"))
    assert list(refused(encode, receipt)) == ["$.waited_s"]
    usage = ContextUsage(source="measured", percent=float("inf"))
    card = AgentCard(id="a", role="builder", context_usage=usage)
    assert list(refused(encode, card)) == ["$.context_usage.percent"]


def test_a_null_that_is_meant_is_written():
    message = envelope(extensions={"nothing": None}, body=Dispatch(brief="null"))
    assert decode(encode(message), Envelope) == message


def test_half_of_a_surrogate_pair_is_refused_both_ways():
    message = envelope(body=Dispatch(brief="a\ud800b"), extensions={"x": {"\udc00": 1}})
    found = refused(encode, message)
    assert set(found) == {"$.body.brief", "$.extensions.x"}
    data = encode(envelope(body=Dispatch(brief="HERE"))).replace(b"HERE", rb"a\ud800b")
    assert set(refused(decode, data, Envelope)) == {"$.body.brief"}


def test_a_refusal_of_broken_text_can_itself_be_written():
    found = refused(encode, envelope(extensions={"\ud800": {"in": float("nan")}}))
    assert list(found) == ["$.extensions", '$.extensions["?"].in']


def test_deep_data_does_not_hide_what_else_is_wrong():
    data = encode(envelope(extensions={"deep": "HERE"})).replace(b'"builder"', b"5")
    data = data.replace(b'"HERE"', b"[" * 900 + b"]" * 900)
    assert refused(decode, data, Envelope)["$.to"] == "expected string, got integer"


def test_an_object_that_json_does_not_know_is_refused():
    assert "object" in refused(encode, envelope(extensions={"x": object()}))["$"]


def test_nesting_to_the_limit_passes_and_one_level_more_is_refused():
    message = envelope(extensions=nested(DEPTH_LIMIT))
    assert decode(encode(message), Envelope) == message
    deeper = envelope(extensions=nested(DEPTH_LIMIT + 1))
    data = raw({"id": str(ID), "sender": "cli", "to": "b", "body": {"kind": "dispatch"}})
    data = raw(json.loads(data) | {"extensions": deeper.extensions})
    data = data.replace(b'"dispatch"', b'"dispatch", "brief": "Go"')
    for found in (refused(encode, deeper), refused(decode, data, Envelope)):
        ((path, problem),) = found.items()
        assert path.startswith("$.extensions.in.in")
        assert problem == "nests deeper than 64 levels"


def test_a_document_may_nest_as_deep_in_an_envelope_as_outside(document: dict[str, Any]):
    document["deep"] = nested(DEPTH_LIMIT - 1)
    message = read_handoff(raw(document), sender="cli")
    assert decode(encode(message), Envelope) == message
    document["deep"] = nested(DEPTH_LIMIT)
    (path,) = refused(read_handoff, raw(document), sender="cli")
    assert path.startswith("$.body.document.deep.in")


@pytest.mark.parametrize("levels", [65, 900, 5_000, 30_000])
def test_arrays_nested_without_end_are_refused(levels: int, document: dict[str, Any]):
    document["bundle"]["x"] = "HERE"
    data = raw(document).replace(b'"HERE"', b"[" * levels + b"]" * levels)
    problems = refused(read_handoff, data, sender="cli").values()
    assert list(problems) == ["nests deeper than 64 levels"]


def test_an_object_that_holds_itself_is_refused():
    knot: dict[str, Any] = {}
    knot["in"] = knot
    assert "nests deeper than 64 levels" in refused(encode, envelope(extensions=knot)).values()


def test_all_violations_come_in_one_answer(document: dict[str, Any]):
    document["objective"] = {"goal": "x" * 612, "acceptance_criteria": ["ok"] * 11}
    document["bundle"]["constraints"]["budget_remaining"] = "50000"
    document["from_agent"]["runtime"] = "abacus"
    message = {
        "id": "a1b2c3d4-...",
        "to": "no token",
        "body": {"kind": "handoff-v1", "document": document},
        "deadline": "2026-07-20T12:00:00",
        "surprise": 1,
    }
    assert set(refused(decode, raw(message), Envelope)) == {
        "$.id",
        "$.sender",
        "$.to",
        "$.deadline",
        "$.surprise",
        "$.body.document.objective.goal",
        "$.body.document.objective.acceptance_criteria",
        "$.body.document.bundle.constraints.budget_remaining",
        "$.body.document.from_agent.runtime",
    }


def test_the_message_of_the_error_lists_every_violation():
    error = InvalidMessageError(
        (Violation(path="$.a", problem="is missing"), Violation(path="$.b", problem="is blank"))
    )
    assert str(error) == "invalid message: $.a: is missing; $.b: is blank"


def test_a_refusal_fits_in_a_message_however_much_is_wrong():
    keys = {f"{number:04}" + "\x01" * 70: 0 for number in range(140)}
    message = {"id": str(ID), "sender": "cli", "to": "b", "body": {"kind": "question", "text": "?"}}
    with pytest.raises(InvalidMessageError) as caught:
        decode(raw(message | keys), Envelope)
    violations = caught.value.violations
    assert len(violations) == VIOLATION_LIMIT
    assert violations[-1].problem == "91 more violations, not listed"
    receipt = Receipt(handoff_id=ID, state="refused", by="keeper", violations=violations)
    assert len(encode(receipt)) < MESSAGE_LIMIT
