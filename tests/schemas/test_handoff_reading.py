"""`read_handoff`: an encoded envelope, or a raw contract v1 document that is wrapped."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batonbus_schemas import (
    Dispatch,
    Envelope,
    HandoffV1,
    InvalidMessageError,
    decode,
    encode,
    read_handoff,
)

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
EXTRA = st.dictionaries(st.text(max_size=12).map(lambda key: f"x{key}"), VALUES, max_size=3)


def read(document: object, **named: Any) -> Envelope:
    return read_handoff(json.dumps(document).encode(), **{"sender": "research-1"} | named)


def paths(document: object, **named: Any) -> dict[str, str]:
    with pytest.raises(InvalidMessageError) as caught:
        read(document, **named)
    return {violation.path: violation.problem for violation in caught.value.violations}


def test_a_raw_document_is_wrapped_under_its_own_id(document: dict[str, Any]):
    envelope = read(document)
    assert envelope == Envelope(
        id=UUID(document["handoff_id"]),
        sender="research-1",
        to="worker-code",
        body=HandoffV1(document=document),
    )


def test_a_deadline_of_the_document_becomes_the_deadline_of_the_envelope(document: dict[str, Any]):
    document["bundle"]["constraints"]["deadline"] = "2026-07-20T12:00:00+09:00"
    seoul = timezone(timedelta(hours=9))
    assert read(document).deadline == datetime(2026, 7, 20, 12, tzinfo=seoul)
    assert read(document).deadline == datetime(2026, 7, 20, 3, tzinfo=UTC)


def test_an_encoded_envelope_is_read_as_it_is():
    envelope = Envelope(
        id=UUID(int=7), sender="planner", to="builder", body=Dispatch(brief="Go"), hops=3
    )
    assert read_handoff(encode(envelope), sender="other", to="another") == envelope


def test_a_document_in_an_envelope_may_travel_under_another_id(document: dict[str, Any]):
    envelope = Envelope(id=UUID(int=7), sender="a", to="b", body=HandoffV1(document=document))
    assert read_handoff(encode(envelope), sender="a").id == UUID(int=7)


def test_a_receiver_that_is_no_token_is_refused(document: dict[str, Any]):
    document["to_agent"]["agent_id"] = "worker code"
    assert set(paths(document)) == {"$.to_agent.agent_id"}


def test_a_given_receiver_goes_before_the_one_in_the_document(document: dict[str, Any]):
    document["to_agent"]["agent_id"] = "worker code"
    assert read(document, to="coder").to == "coder"
    assert set(paths(document, to="no token")) == {"$.to"}


def test_a_sender_that_is_no_token_is_refused(document: dict[str, Any]):
    assert set(paths(document, sender="a.b")) == {"$.sender"}


def test_an_address_and_the_document_are_judged_in_one_answer(document: dict[str, Any]):
    document["to_agent"]["agent_id"] = "worker.code"
    del document["objective"]["goal"]
    assert set(paths(document)) == {"$.to_agent.agent_id", "$.objective.goal"}


@pytest.mark.parametrize("name", ["handoff_id", "from_agent", "to_agent", "objective", "bundle"])
def test_a_missing_part_is_named(name: str, document: dict[str, Any]):
    del document[name]
    assert paths(document) == {f"$.{name}": "is missing"}


def test_an_empty_object_lacks_all_parts():
    assert list(paths({})) == [
        "$.handoff_id",
        "$.from_agent",
        "$.to_agent",
        "$.objective",
        "$.bundle",
    ]


def test_an_id_that_is_no_uuid_is_refused_with_that_reason(document: dict[str, Any]):
    document["handoff_id"] = "a1b2c3d4-..."
    assert "`a1b2c3d4-...` is no UUID" in paths(document)["$.handoff_id"]


@pytest.mark.parametrize("goal", [None, "", "  \n\t", "\u2003"])
def test_a_goal_that_says_nothing_is_refused(goal: str | None, document: dict[str, Any]):
    document["objective"]["goal"] = goal
    assert set(paths(document)) == {"$.objective.goal"}


def test_a_string_is_never_read_as_a_number(document: dict[str, Any]):
    document["bundle"]["constraints"]["budget_remaining"] = "50000"
    problem = paths(document)["$.bundle.constraints.budget_remaining"]
    assert problem == "expected number, got string"


def test_a_time_without_a_zone_is_refused_wherever_this_runs(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TZ", "Asia/Seoul")
    document["timestamp"] = "2026-07-20T12:00:00"
    assert "has no time zone: add Z" in paths(document)["$.timestamp"]


@pytest.mark.parametrize(
    ("names", "valid"),
    [
        ({"version": "1.0"}, True),
        ({"schema_version": "1.0"}, True),
        ({"version": "1.0", "schema_version": "1.0"}, True),
        ({}, True),
        ({"version": "1.1"}, False),
        ({"schema_version": "0.1.0-draft"}, False),
        ({"version": "1.0", "schema_version": "2.0"}, False),
        ({"version": None}, False),
        ({"version": 1.0}, False),
    ],
)
def test_a_version_is_1_0_or_absent(names: dict[str, Any], valid: bool, document: dict[str, Any]):
    del document["version"]
    document |= names
    if valid:
        assert read(document).body == HandoffV1(document=document)
    else:
        assert set(paths(document)) <= {"$.version", "$.schema_version"}


@given(extra=st.lists(EXTRA, min_size=9, max_size=9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_unknown_keys_go_on_unchanged_at_every_level(extra: list[dict[str, Any]], golden: Any):
    document = json.loads((golden / "handoff-v1.open.json").read_text("utf-8"))
    bundle = document["bundle"]
    levels = [document, document["from_agent"], document["to_agent"], document["objective"]]
    levels += [bundle, bundle["progress"], bundle["decisions"][0], bundle["constraints"]]
    for level, keys in zip([*levels, bundle["memory"][0]], extra, strict=True):
        level.update(keys)
    envelope = read(document)
    again = decode(encode(envelope), Envelope)
    assert again == envelope
    assert isinstance(again.body, HandoffV1)
    assert json.dumps(again.body.document) == json.dumps(document)
