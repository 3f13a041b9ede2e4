from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batonbus_agents.runtimes import PROTOCOL, Assignment, RuntimeAnswerError
from batonbus_agents.runtimes.answer import Unreadable, read_answer, reformat_request
from batonbus_schemas import FileChange, TaskResult, encode
from batonbus_schemas.xml import result_to_xml

ASSIGNMENT = Assignment(
    role="builder", work="WORK-07", task="TASK-02", attempt=1, text="Do it.", cwd=Path()
)
RESULT = TaskResult.passed(
    "Wrote the parser.\nAnd its tests.",
    why="It was asked for.",
    files=(FileChange(action="created", path="parser.py"),),
)
WHOLE = replace(RESULT, work="WORK-07", task="TASK-02", agent="builder")


def read(text: str) -> TaskResult:
    found = read_answer(text, ASSIGNMENT)
    assert isinstance(found, TaskResult), found
    return found


def refused(text: str) -> Unreadable:
    found = read_answer(text, ASSIGNMENT)
    assert isinstance(found, Unreadable), found
    return found


@pytest.mark.parametrize(
    "text",
    [
        result_to_xml(RESULT),
        result_to_xml(WHOLE),
        f"Here it is.\n```xml\n{result_to_xml(RESULT)}\n```\nDone!",
        encode(RESULT).decode(),
        f"```json\n{encode(WHOLE).decode()}\n```\n",
    ],
)
def test_xml_anywhere_and_json_alone_are_read_and_completed(text: str) -> None:
    assert read(text) == WHOLE


def test_a_result_without_a_context_handoff_hands_on_its_summary() -> None:
    handoff = read('<task-result status="PASS"><summary>ok</summary></task-result>').context_handoff

    assert handoff is not None
    assert handoff.what == "ok"


def test_a_result_that_says_nothing_is_none() -> None:
    found = refused('<task-result status="PASS"/>')

    assert found.reasons == ("neither a context-handoff nor a summary says what was done",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "All done, everything passes!",
        "PASS",
        PROTOCOL,
        "not json",
        '{"status": "PASS", "summary": "ok", "surprise": 1}',
        '{"kind": "dispatch", "brief": "ok"}',
        '["status", "PASS"]',
        "<task-result><summary>no status</summary></task-result>",
    ],
)
def test_what_is_no_result_is_never_a_pass(text: str) -> None:
    assert refused(text).reasons


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_no_free_text_is_ever_a_result(text: str) -> None:
    assert isinstance(read_answer(text, ASSIGNMENT), Unreadable)


@pytest.mark.parametrize(
    ("name", "other"), [("work", "WORK-08"), ("task", "TASK-03"), ("agent", "verifier")]
)
@pytest.mark.parametrize("form", ["xml", "json"])
def test_a_result_for_another_is_refused_and_named(name: str, other: str, form: str) -> None:
    result = replace(WHOLE, **{name: other})
    text = result_to_xml(result) if form == "xml" else encode(result).decode()

    reasons = "; ".join(refused(text).reasons)

    assert other in reasons
    assert str(getattr(WHOLE, name)) in reasons


@pytest.mark.parametrize("text", [result_to_xml(RESULT), encode(RESULT).decode()])
def test_a_stump_is_too_long_and_never_a_result(text: str) -> None:
    for end in range(len(text) - 1, len(text) // 2, -7):
        assert refused(text[:end]).too_long


def test_a_result_larger_than_a_message_is_too_long() -> None:
    huge = TaskResult.passed("x" * 70_000)

    assert refused(result_to_xml(huge)).too_long


def test_a_role_that_works_on_a_whole_work_names_no_task() -> None:
    planner = replace(ASSIGNMENT, role="planner", task="")
    result = read_answer('<task-result status="PASS"><summary>ok</summary></task-result>', planner)

    assert isinstance(result, TaskResult)
    assert result.task is None
    assert result.agent == "planner"


def test_a_request_gives_the_reasons_the_answer_and_the_shape() -> None:
    request = reformat_request("not json", refused("not json"))

    assert "- no-result" in request
    assert "Do no further work and change no file." in request
    assert "Your last answer was:\n\nnot json" in request
    assert PROTOCOL.strip() in request
    assert "truncated" not in request


def test_a_request_after_a_stump_names_truncation_and_a_smaller_size() -> None:
    stump = '<task-result status="PASS"><summary>' + "word " * 1_000

    request = reformat_request(stump, refused(stump))

    assert f"truncated at {len(stump):,} characters" in request
    assert f"at most {len(stump) // 2:,} characters in all" in request


def test_a_request_is_bounded_whatever_was_answered() -> None:
    answer = "<task-result>" + "<x>\x00" * 200_000

    assert len(reformat_request(answer, Unreadable(("bad " * 2_000,) * 50, too_long=True))) < 12_000


def test_an_error_quotes_at_most_200_characters() -> None:
    error = RuntimeAnswerError("builder", ["long " * 1_000, "more"])

    assert str(error).startswith("builder gave no usable answer: long long")
    assert len(str(error)) <= len("builder gave no usable answer: ") + 200
    assert max(map(len, error.reasons)) == 200
