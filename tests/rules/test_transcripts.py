"""What agents' programs print, as they document it, and broken: nothing is guessed from it."""

import json

import pytest
from msgspec.structs import replace

from batonbus.rules.command_lines import COMMAND_LINES, CommandLine, Place
from batonbus.rules.transcripts import read_events, read_transcript, usage_of
from batonbus_schemas import ContextUsage

CLAUDE = COMMAND_LINES["claude"]
CODEX = COMMAND_LINES["codex"]
GEMINI = COMMAND_LINES["gemini"]
OPENCLAW = COMMAND_LINES["openclaw"]
SESSION = "1f0c0dda-56b1-4a0e-9c53-0b9a1d2f0a11"


NOTHING = {"input_tokens": 0, "output_tokens": 0}


def lines(*events: object) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def said(tokens: int, *, model: str = "opus", parent: str | None = None) -> object:
    """A message of claude, behind which `tokens` stand in the window."""
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": tokens - 115,
        "output_tokens": 5,
    }
    message = {"model": model, "content": [], "usage": usage}
    return {"type": "assistant", "parent_tool_use_id": parent, "message": message}


def result(text: str = "Done.", **more: object) -> dict[str, object]:
    ended = {"type": "result", "subtype": "success", "is_error": False, "session_id": SESSION}
    windows = {"opus": {"inputTokens": 900_000, "contextWindow": 200_000}}
    # The usage of a result is the sum over all requests.
    return (
        ended | {"result": text, "usage": {"input_tokens": 900_000}, "modelUsage": windows} | more
    )


def test_claude_says_how_full_the_window_of_its_main_agent_is() -> None:
    output = lines(
        {"type": "system", "subtype": "init", "session_id": SESSION, "model": "opus"},
        said(50_000),
        said(90_000, model="haiku", parent="toolu_1"),
        said(60_000),
        said(20_000, model="haiku", parent="toolu_2"),
        result(),
    )
    reading = read_transcript(CLAUDE, output)
    assert (reading.answer, reading.failure, reading.session) == ("Done.", None, SESSION)
    assert (reading.model, reading.tokens, reading.window) == ("opus", 60_000, 200_000)
    assert usage_of(reading.tokens, reading.window) == ContextUsage(source="measured", percent=30.0)


def test_one_model_that_is_declared_twice_has_the_smaller_window() -> None:
    windows = {"opus[1m]": {"contextWindow": 372_000}, "opus": {"contextWindow": 150_000}}
    twice = lines(said(75_000), result(modelUsage=windows))
    assert read_transcript(CLAUDE, twice).window == 150_000
    once = lines(said(75_000), result(modelUsage={"opus[1m]": {"contextWindow": 372_000}}))
    assert read_transcript(CLAUDE, once).window == 372_000
    declared = replace(CLAUDE, windows={"opus": 150_000, "haiku": 1_000})
    assert read_transcript(declared, once).window == 150_000


@pytest.mark.parametrize(
    "output",
    [
        lines(said(60_000, model="alias"), result()),
        lines(said(60_000), result(modelUsage={})),
        lines(said(60_000), result(modelUsage={"opus": {"contextWindow": 0}})),
        lines(said(60_000), result(modelUsage={"opus": {"contextWindow": "200000"}})),
        lines(said(60_000), result(modelUsage={"opus": {"contextWindow": True}})),
        lines(said(60_000), result(modelUsage={"opus": {}})),
        lines(result()),
        lines({"type": "assistant", "message": {"model": "opus", "usage": NOTHING}}, result()),
        lines({"type": "assistant", "message": {"model": "opus"}}, result()),
    ],
)
def test_an_unknown_model_or_size_leaves_the_usage_unknown(output: str) -> None:
    reading = read_transcript(CLAUDE, output)
    assert reading.answer == "Done."
    assert usage_of(reading.tokens, reading.window) == ContextUsage()


def test_a_full_window_is_full_and_an_estimate_is_said_to_be_one() -> None:
    assert usage_of(250_000, 200_000).percent == 100.0
    assert usage_of(1, 3, is_estimate=True) == ContextUsage(source="estimated", percent=33.3)
    assert usage_of(None, 200_000) == usage_of(1, None) == ContextUsage()


@pytest.mark.parametrize(
    ("ended", "failure"),
    [
        (result("Credit balance is too low", is_error=True), "Credit balance is too low"),
        (
            {
                "type": "result",
                "subtype": "error_during_execution",
                "is_error": True,
                "errors": ["No conversation found with session ID: x"],
            },
            "No conversation found with session ID: x",
        ),
        ({"type": "result", "subtype": "error_max_turns", "is_error": True}, "error_max_turns"),
        ({"type": "result", "is_error": True}, "it does not say why"),
    ],
)
def test_an_error_of_claude_is_no_answer(ended: object, failure: str) -> None:
    assert read_transcript(CLAUDE, lines(said(60_000), ended)).failure == failure


@pytest.mark.parametrize(
    "output",
    [
        "",
        "\n",
        lines(said(60_000)),
        lines(said(60_000)) + json.dumps(result())[:-1],
        json.dumps(result())[:40],
        lines({"type": "result", "subtype": "error_max_turns", "is_error": False}),
        lines(["no", "object"], 3, None, "text"),
        "[" * 100_000,
        "Segmentation fault",
    ],
)
def test_an_output_without_a_whole_result_has_no_answer(output: str) -> None:
    reading = read_transcript(CLAUDE, output)
    assert (reading.answer, reading.session) == (None, "")


def test_a_compaction_of_claude_says_so() -> None:
    boundary = {"type": "system", "subtype": "compact_boundary"}
    metadata = {"trigger": "manual", "pre_tokens": 120_000}
    plain = read_transcript(CLAUDE, lines(boundary | {"compact_metadata": metadata}, result("")))
    assert (plain.is_compacted, plain.tokens_after) == (True, None)
    metadata |= {"post_tokens": 30_000}
    newer = read_transcript(CLAUDE, lines(boundary | {"compact_metadata": metadata}, result("")))
    assert (newer.is_compacted, newer.tokens_after) == (True, 30_000)
    assert not read_transcript(CLAUDE, lines(result("Not enough messages."))).is_compacted


CODEX_TURN = (
    {"type": "thread.started", "thread_id": SESSION},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "Looking."}},
    {"type": "item.completed", "item": {"type": "command_execution", "text": "no answer"}},
    {"type": "error", "message": "Reconnecting... 1/5"},
    {"type": "item.completed", "item": {"id": "3", "type": "agent_message", "text": "Done."}},
)
TURN_ENDED = {"type": "turn.completed", "usage": {"input_tokens": 950_000, "output_tokens": 10}}


def counted(tokens: int | None, window: int = 258_400) -> object:
    last = {"total_token_usage": {"total_tokens": 950_010}, "model_context_window": window}
    info = last | {"last_token_usage": {"total_tokens": tokens}} if tokens else None
    return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}


def test_codex_says_how_full_the_window_is_in_its_own_record() -> None:
    record = lines(
        {"type": "session_meta", "payload": {"id": SESSION}},
        {"type": "turn_context", "payload": {"model": "gpt-5"}},
        counted(36_000),
        counted(64_600),
    )
    # The record may begin in the middle of a line: only its end is read.
    reading = read_transcript(CODEX, lines(*CODEX_TURN, TURN_ENDED), record[7:])
    assert (reading.answer, reading.failure, reading.session) == ("Done.", None, SESSION)
    assert (reading.model, reading.tokens, reading.window) == ("gpt-5", 64_600, 258_400)
    assert usage_of(reading.tokens, reading.window).percent == 25.0


@pytest.mark.parametrize("record", ["", lines(counted(None)), "{", lines(counted(36_000, 0))])
def test_codexs_sum_over_a_session_is_not_taken_for_its_window(record: str) -> None:
    reading = read_transcript(CODEX, lines(*CODEX_TURN, TURN_ENDED), record)
    assert reading.answer == "Done."
    assert usage_of(reading.tokens, reading.window) == ContextUsage()


def test_a_failed_turn_of_codex_is_an_error() -> None:
    failed = {"type": "turn.failed", "error": {"message": "stream disconnected"}}
    reading = read_transcript(CODEX, lines(*CODEX_TURN, failed))
    assert (reading.failure, reading.session) == ("stream disconnected", SESSION)


def test_gemini_says_its_answer_and_its_session_and_no_usage() -> None:
    stats = {"models": {"gemini-2.5-pro": {"tokens": {"total": 24_000}}}}
    output = json.dumps({"session_id": SESSION, "response": "Done.", "stats": stats}, indent=2)
    reading = read_transcript(GEMINI, f"Loaded cached credentials.\n{output}\n")
    assert (reading.answer, reading.failure, reading.session) == ("Done.", None, SESSION)
    assert usage_of(reading.tokens, reading.window) == ContextUsage()
    failed = read_transcript(GEMINI, json.dumps({"error": {"message": "quota", "code": 429}}))
    assert (failed.answer, failed.failure) == (None, "quota")


def test_openclaw_says_its_answer_in_parts() -> None:
    payloads = [{"text": "First."}, {"mediaUrl": None}, {"text": "Second."}]
    for said_so in ({"payloads": payloads}, {"status": "ok", "result": {"payloads": payloads}}):
        assert read_transcript(OPENCLAW, json.dumps(said_so)).answer == "First.\nSecond."
    assert read_transcript(OPENCLAW, json.dumps({"status": "ok"})).answer is None


def test_a_program_that_prints_text_has_said_all_of_it() -> None:
    output = 'Done.\n{"result": 3}\n'
    assert read_transcript(COMMAND_LINES["hermes"], output).answer == output


@pytest.mark.parametrize("id", ["-rf", "--help", "a b", "a/../b", "*", "x" * 129, ""])
def test_an_id_that_could_be_an_option_or_a_path_is_none(id: str) -> None:
    assert read_transcript(CLAUDE, lines(result(session_id=id))).session == ""


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('{"a": 1}', [{"a": 1}]),
        ('[{"a": 1}, {"b": 2}, 3]', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}\r\n{"b": 2}\nnoise\n{"c"', [{"a": 1}, {"b": 2}]),
        ('noise {\n{\n  "a": {\n    "b": 1\n  }\n}\n', [{"a": {"b": 1}}]),
        ('\x1b[?25l{"a": "\\u001b[0m"}\x1b[0m\n\x1b[?1004l', [{"a": "\x1b[0m"}]),
        ('\x1b]0;at work\x07{"a": 1}\n\x1b]8;;\x1b\\{"b": 2}', [{"a": 1}, {"b": 2}]),
        ('\ufeff{"a": 1}\n{"b": 2}', [{"a": 1}, {"b": 2}]),
        ('{"a": "one\u2028{two\x85three"}\n{"b": 2}', [{"a": "one\u2028{two\x85three"}, {"b": 2}]),
        ('{"a": 1e999, "b": "\\ud83d"}', [{"a": float("inf"), "b": "\ud83d"}]),
        ("noise", []),
        ("\ud800", []),
    ],
)
def test_objects_are_read_in_every_shape_that_programs_print(text: str, events: object) -> None:
    assert read_events(text) == events


def test_half_of_a_letter_in_an_answer_can_be_stored() -> None:
    """Who cuts a text by its UTF-16 units cuts some letters in two."""
    reading = read_transcript(CLAUDE, lines(said(60_000), result("Done \ud83d")))
    assert (reading.answer, reading.tokens) == ("Done ?", 60_000)


def test_a_count_that_says_nothing_yet_takes_nothing_back() -> None:
    record = lines({"type": "turn_context", "payload": {"model": "gpt-5"}}, counted(64_600))
    reading = read_transcript(CODEX, lines(*CODEX_TURN), record + lines(counted(None)))
    assert (reading.tokens, reading.window) == (64_600, 258_400)


def test_a_row_can_say_where_everything_stands() -> None:
    mine = CommandLine(
        start=("mine",),
        answer=Place(where={"kind": "end", "ok": True}, at=("missing", "out.*.text")),
        tokens=Place(at=("used",)),
        model=Place(at=("model",)),
        windows={"m": 1_000},
    )
    ended = {"kind": "end", "ok": True, "out": [{"text": "a"}], "used": 250, "model": "m"}
    reading = read_transcript(
        mine, lines(ended | {"out": []}, ended, {"used": "250", "model": "m"})
    )
    assert (reading.answer, reading.tokens, reading.window) == ("a", 250, 1_000)


def test_a_line_that_a_carriage_return_ends_hides_none_of_the_others() -> None:
    events = read_events('Working...\r{"a":1}\n{"b":2}\r')
    assert events == [{"a": 1}, {"b": 2}]
