import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus_schemas import ContextHandoff, TaskResult
from batonbus_schemas.context import NOTHING_INCOMPLETE, SHOWN_LINES, shown


@pytest.mark.parametrize("incomplete", ["", " ", "\n"])
def test_nothing_incomplete_is_said_in_a_word(incomplete: str):
    assert ContextHandoff(what="Did it.", incomplete=incomplete).incomplete == NOTHING_INCOMPLETE


def test_a_summary_is_the_first_three_non_empty_lines_verbatim():
    context = ContextHandoff(what="\n  one \n\n두\n\nтри\nfour")
    assert context.summary() == "  one \n두\nтри"


@pytest.mark.parametrize(("name", "limit"), [*SHOWN_LINES.items()])
def test_a_field_is_shown_to_its_limit_and_the_rest_is_counted(name: str, limit: int):
    lines = [f"line {number}" for number in range(limit + 3)]
    assert shown(name, "\n".join(lines[:limit])) == ("\n".join(lines[:limit]), 0)
    assert shown(name, "\n\n".join(lines)) == ("\n".join(lines[:limit]), 3)


def test_the_limits_are_those_of_the_policy():
    assert SHOWN_LINES == {"what": 5, "why": 4, "caution": 3, "incomplete": 2}


@given(st.text(), st.sampled_from([*SHOWN_LINES]))
def test_shown_and_cut_lines_are_all_the_lines_that_say_something(text: str, name: str):
    part, cut = shown(name, text)
    said = [line for line in text.splitlines() if line.strip()]
    assert said[: len(said) - cut] == part.splitlines()
    assert (cut > 0) == (len(said) > SHOWN_LINES[name])


def test_a_result_must_say_what_was_done():
    with pytest.raises(ValueError, match="`what` is blank"):
        TaskResult.passed(what=" \n")


def test_a_result_is_summed_up_by_its_first_lines():
    result = TaskResult.failed(what="one\ntwo\nthree\nfour", caution="careful")
    assert (result.status, result.summary) == ("FAIL", "one\ntwo\nthree")
    assert result.context_handoff == ContextHandoff(
        what="one\ntwo\nthree\nfour", caution="careful", incomplete=NOTHING_INCOMPLETE
    )


def test_a_results_text_is_what_was_done_or_else_its_summary() -> None:
    assert TaskResult.passed(what="one\ntwo\nthree\nfour").text == "one\ntwo\nthree\nfour"
    assert TaskResult(status="PASS", summary="short").text == "short"
