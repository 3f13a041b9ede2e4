"""A result as a message can hold it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonbus_agents.stages import FIELD_LIMIT, fitted
from batonbus_schemas import Check, ContextHandoff, FileChange, TaskResult, encode
from batonbus_schemas.tokens import MESSAGE_LIMIT

HUGE = 'line "quoted"\n\x00é' * 5_000


def result(text: str, *, checks: int = 1, files: int = 1) -> TaskResult:
    return TaskResult(
        status="PASS",
        summary=text,
        notes=text,
        context_handoff=ContextHandoff(what=text, why=text, caution=text, incomplete=text),
        verification=tuple(
            Check(name=f"check {it}", status="PASS", output=text) for it in range(checks)
        ),
        files_changed=tuple(
            FileChange(action="created", path=f"folder/{it}.txt", description=text)
            for it in range(files)
        ),
        ref_cache={"file-content-schema": text},
    )


def test_what_fits_is_left_as_it_is() -> None:
    small = TaskResult.passed(
        "Wrote it.",
        why="It was asked for.",
        files=(FileChange(action="created", path="a.txt", description="all of it"),),
        checks=(Check(name="tests", status="PASS", output="3 passed"),),
    )
    assert fitted(small) == small


@pytest.mark.parametrize(("checks", "files"), [(1, 1), (12, 500), (0, 0)])
def test_the_largest_result_leaves_room_for_the_next_dispatch(checks: int, files: int) -> None:
    size = len(encode(fitted(result(HUGE, checks=checks, files=files))))
    assert size < MESSAGE_LIMIT - 3_000


def test_files_that_find_no_room_are_counted() -> None:
    cut = fitted(result("short", files=500))
    assert 10 < len(cut.files_changed) < 500
    assert f"{500 - len(cut.files_changed):,} more files" in cut.notes


@given(st.text(min_size=1, max_size=2 * FIELD_LIMIT))
@settings(max_examples=30)
def test_a_field_keeps_its_beginning_and_its_end(text: str) -> None:
    context = fitted(TaskResult.passed(f"begins {text} ends")).context_handoff
    assert context is not None
    assert context.what.startswith("begins")
    assert context.what.endswith("ends")
