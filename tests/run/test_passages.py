"""What a window manager remembers of the dispatches of each work, and what it forgets."""

from uuid import uuid4

import pytest

from batonbus.run import passages
from batonbus.run.passages import Passages
from batonbus_schemas import Dispatch, Envelope

PASSAGE = "Write the test first, then the code, then read both of them again. " * 4


def dispatch(work: str, task: str, brief: str = PASSAGE) -> Envelope:
    body = Dispatch(brief=brief)
    return Envelope(id=uuid4(), sender="s", to="builder", work=work, task=task, body=body)


def test_each_work_is_remembered_for_itself() -> None:
    known = Passages()
    known.note(dispatch("one", "TASK-01"))
    assert known.find_pastes(dispatch("two", "TASK-02")) == []
    assert known.find_pastes(dispatch("one", "TASK-01")) == []
    (found,) = known.find_pastes(dispatch("one", "TASK-02"))
    assert "TASK-01" in found.problem


def test_the_work_that_was_used_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "KNOWN_WORKS", 2)
    known = Passages()
    for work in ("one", "two", "one", "three"):
        known.note(dispatch(work, "TASK-01"))
    found = {it: bool(known.find_pastes(dispatch(it, "TASK-02"))) for it in ("one", "two", "three")}
    assert found == {"one": True, "two": False, "three": True}


def test_of_a_work_the_newest_passages_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "KNOWN_PASSAGES", 1)
    known = Passages()
    known.note(dispatch("one", "TASK-01"))
    known.note(dispatch("one", "TASK-01", "Another thing. " * 20))
    assert known.find_pastes(dispatch("one", "TASK-02")) == []
    assert known.find_pastes(dispatch("one", "TASK-02", "Another thing. " * 20)) != []
