"""What agents are given stays as long as it is, however long the work before them."""

import json
from uuid import UUID

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from batonbus.bench.dispatch import is_reachable, make_context, needs
from batonbus.cli.commands import app
from batonbus_schemas import DetailLevel, Dispatch, Envelope, WindowEntry, render
from batonbus_schemas.context import Edge

STEP = UUID("5f0c2c1e-8a53-4a6e-9f3a-0d4c7f1b2a90")
SAID = make_context("builder", "TASK-04")
ENTRY = WindowEntry(
    distance=1,
    level=DetailLevel.FULL,
    edge=Edge.STAGE,
    from_="builder",
    handoff_id=STEP,
    what=SAID.what,
    why=SAID.why,
    caution=SAID.caution,
    incomplete=SAID.incomplete,
)
FILES = {".batonbus/references/1234abcd/why.md": SAID.why}
"""What a runtime wrote."""


def text_of(*window: WindowEntry) -> str:
    envelope = Envelope(id=STEP, sender="scheduler", to="verifier", body=Dispatch(brief="Verify."))
    return render(envelope, window)


def test_texts_stay_flat_while_the_history_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonbus.cli.bench.WORKS", (5, 26))
    answer = CliRunner().invoke(app, ["bench", "dispatch", "--json"])
    assert answer.exit_code == 0, answer.output
    short, long = json.loads(answer.stdout)["works"]
    assert (short["tasks"], long["tasks"]) == (5, 26)
    assert abs(long["received_chars"] - short["received_chars"]) <= 5
    # All steps but the last, which nobody comes after.
    each = sum(map(len, (SAID.what, SAID.why, SAID.caution, SAID.incomplete)))
    assert short["history_chars"] == 14 * each
    assert long["history_chars"] == 77 * each
    assert long["history_chars"] > 5 * short["history_chars"]
    assert short["last_step_kept"]
    assert long["last_step_kept"]


def test_a_step_says_about_three_kilobytes_each_task_its_own_and_equally_long() -> None:
    other = make_context("builder", "TASK-05")
    for field in ("what", "why", "caution", "incomplete"):
        lines = [getattr(it, field).splitlines() for it in (SAID, other)]
        assert [len(it) for it in lines[0]] == [len(it) for it in lines[1]]
        assert set(lines[0]).isdisjoint(lines[1])
    assert 2_900 < sum(len(getattr(SAID, it)) for it in SAID.__struct_fields__) < 3_100


def test_every_fifth_task_comes_after_two() -> None:
    assert [needs(it) for it in range(1, 7)] == [[], [1], [2], [3], [3, 4], [5]]


def test_a_field_that_is_shown_in_part_is_reachable_by_the_handoff_that_the_text_names() -> None:
    text = text_of(ENTRY)
    assert f"> {SAID.why.splitlines()[-1]}" not in text
    assert is_reachable(STEP, SAID, text, {}, SAID)


@pytest.mark.parametrize("printed", [None, replace(SAID, why="Something else.")])
def test_nothing_is_reachable_by_a_handoff_that_does_not_say_it(printed: object) -> None:
    assert not is_reachable(STEP, SAID, text_of(ENTRY), {}, printed)  # type: ignore[arg-type]


def test_a_field_is_reachable_by_a_file_that_the_text_names() -> None:
    [path] = FILES
    text = text_of(replace(ENTRY, why=f"see {path}"))
    assert is_reachable(STEP, SAID, text, FILES, SAID)
    assert not is_reachable(STEP, SAID, text, {}, SAID)
    assert not is_reachable(STEP, SAID, text, {path: SAID.why[:-1]}, SAID)


def test_a_file_that_the_text_does_not_name_counts_for_nothing() -> None:
    assert not is_reachable(STEP, SAID, text_of(replace(ENTRY, why=None)), FILES, SAID)


def test_a_step_that_is_not_in_the_text_is_not_reachable() -> None:
    assert not is_reachable(STEP, SAID, text_of(), FILES, SAID)
    summary = replace(ENTRY, distance=2, what=SAID.summary(), why=None, caution=None)
    assert not is_reachable(STEP, SAID, text_of(summary), FILES, SAID)
