"""The rows of known programs, and rows that users write."""

import pytest

from batonbus.rules.command_lines import (
    COMMAND_LINES,
    CommandLineError,
    Place,
    fill,
    parse_command_line,
)

MINE = """
start = ["mine", "--json"]
resume = ["mine", "--json", "--resume", "{session}", "{options}", "{text}"]
compact = "/compact"
lost = ["no such session"]
answer = { where = { type = "end", "item.ok" = true }, at = ["text"] }
session = { at = ["id"] }

[windows]
"my.model" = 128000
"""


def test_a_file_of_a_few_lines_is_a_command_line() -> None:
    line = parse_command_line(MINE)
    assert line.name == "mine"
    assert line.answer == Place(where={"type": "end", "item.ok": True}, at=("text",))
    assert line.windows == {"my.model": 128_000}
    assert line.compact == "/compact"


def test_a_users_options_stand_in_their_place_or_at_the_end() -> None:
    line = parse_command_line(MINE).with_options(["--model", "m"])
    assert line.start == ("mine", "--json", "--model", "m")
    assert line.resume[3:] == ("{session}", "--model", "m", "{text}")
    assert line.with_options([]).start == line.start


def test_no_option_gives_a_program_a_way_to_resume() -> None:
    assert COMMAND_LINES["hermes"].with_options(["--yolo"]).resume == ()


def test_the_words_of_a_call_are_filled_in_one_by_one() -> None:
    words = ("mine", "{session}", "{text}", "x{text}")
    filled = fill(words, session="s-1", text="{session} --rm; $(x)")
    assert filled == ("mine", "s-1", "{session} --rm; $(x)", "x{text}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("start = [", "is no TOML"),
        ("start = " + "[" * 9_000, "is no TOML"),
        ("", "$.start"),
        ("start = []", "$.start"),
        ('start = ["x"]\nanswers = "y"', "$.answers"),
        ('start = ["x"]\nanswer = { at = [] }', "$.answer.at"),
        ('start = ["x"]\nwindows = { m = 0 }', "$.windows"),
        ('start = ["x"]\nresume = ["x", "-c"]', "$.resume: has no word {session}"),
    ],
)
def test_a_file_that_is_wrong_is_told_what_is(text: str, problem: str) -> None:
    with pytest.raises(CommandLineError) as caught:
        parse_command_line(text)
    assert problem in str(caught.value)


def test_every_row_starts_the_program_of_its_name_and_resumes_by_id() -> None:
    for name, line in COMMAND_LINES.items():
        assert line.name == name
        assert not line.resume or "{session}" in line.resume
        assert line.resume[:1] in ((), (name,))
