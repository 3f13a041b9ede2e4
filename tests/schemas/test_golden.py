"""Messages that are kept for ever: what was once written must be read in every later version."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from batonbus_schemas import (
    ContractV1,
    Delivery,
    Envelope,
    HandoffV1,
    Settlement,
    decode,
    encode,
    read_handoff,
)
from batonbus_schemas.published import FOLDER, PUBLISHED

GOLDEN = Path(__file__).parents[2] / "schemas" / "golden"
FILES = sorted(GOLDEN.glob("*.json"))
ENVELOPES = [path for path in FILES if path.name.startswith("envelope.")]
BODIES = ("dispatch", "question", "task-result", "compaction-handoff")


def load(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def kind(path: Path) -> str:
    """`delivery` of `delivery.verifier.json`: its name in `PUBLISHED`."""
    return path.name.partition(".")[0]


def validate(message: Any, name: str) -> None:
    schema = load(FOLDER / f"{name}.schema.json")
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(message)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_message_is_read_and_written_again_the_same(path: Path):
    if PUBLISHED[kind(path)] is ContractV1:
        envelope = read_handoff(path.read_bytes(), sender="worker-research")
        assert isinstance(envelope.body, HandoffV1)
        assert envelope.body.document == load(path)
    else:
        message = decode(path.read_bytes(), PUBLISHED[kind(path)])
        assert json.loads(encode(message)) == load(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_message_fits_its_published_schema(path: Path):
    validate(load(path), kind(path))


@pytest.mark.parametrize("path", ENVELOPES, ids=lambda path: path.stem)
def test_a_golden_body_fits_its_own_published_schema(path: Path):
    body = load(path)["body"]
    if body["kind"] in BODIES:
        validate(body, body["kind"])
    else:
        validate(body["document"], body["kind"])
    if body.get("context_handoff"):
        validate(body["context_handoff"], "context-handoff")


def test_every_message_and_body_has_a_golden_one():
    assert {kind(path) for path in FILES} == {
        "envelope",
        "delivery",
        "settlement",
        "handoff-v1",
        "receipt",
        "agent-card",
        "presence",
        "checkpoint",
    }
    bodies = {load(path)["body"]["kind"] for path in ENVELOPES}
    assert bodies == {*BODIES, "handoff-v1"}


@pytest.mark.parametrize("name", ["seed-example", "minimal", "open"])
def test_a_raw_document_is_wrapped_as_its_golden_envelope_says(name: str, golden: Path):
    raw = (golden / f"handoff-v1.{name}.json").read_bytes()
    wrapped = (golden / f"envelope.handoff-v1-{name}.json").read_bytes()
    assert read_handoff(raw, sender="worker-research") == decode(wrapped, Envelope)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("verifier", [("builder", "TASK-02", "FULL")]),
        ("committer", [("verifier", "TASK-02", "FULL"), ("builder", "TASK-02", "SUMMARY")]),
        ("next-builder", [("committer", "TASK-02", "FULL"), ("committer", "TASK-01", "SUMMARY")]),
    ],
)
def test_the_golden_deliveries_show_the_three_windows_of_the_policy(
    name: str, shown: list[tuple[str, str, str]], golden: Path
):
    delivery = decode((golden / f"delivery.{name}.json").read_bytes(), Delivery)
    assert [(it.from_, it.task, it.level.value) for it in delivery.window] == shown
    for entry in load(golden / f"delivery.{name}.json")["window"]:
        validate(entry, "window-entry")


def test_the_golden_next_handoff_is_derived_from_its_parent(golden: Path):
    settlement = decode((golden / "settlement.full.json").read_bytes(), Settlement)
    assert settlement.next is not None
    assert settlement.next.id.version == 5
