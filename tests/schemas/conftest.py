"""What the tests of the messages share."""

import json
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[2] / "schemas" / "golden"


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.fixture
def document() -> dict[str, Any]:
    """A fresh copy of the contract's own example, with a real UUID."""
    text = (GOLDEN / "handoff-v1.seed-example.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
