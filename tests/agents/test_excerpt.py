import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus_agents.excerpt import shortened


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert shortened("all well\n", 100) == "all well\n"


def test_a_long_text_keeps_its_beginning_and_its_end_and_says_what_is_missing() -> None:
    lines = [f"line {number}" for number in range(1_000)]

    text = shortened("\n".join(lines), 400)

    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("\nline 998\nline 999")
    left_out = len("\n".join(lines)) - len(text.partition("\n[")[0]) - len(text.partition("]\n")[2])
    assert f"\n[{left_out:,} characters left out here]\n" in text


@given(st.text(max_size=2_000), st.integers(min_value=100, max_value=1_500))
def test_it_never_takes_more_bytes_of_json_than_it_may(text: str, limit: int) -> None:
    assert len(msgspec.json.encode(shortened(text, limit))) <= limit


@pytest.mark.parametrize("letter", ["a", "\n", "\x1b", "é", "🙂"])
def test_most_of_the_room_is_used_whatever_the_letters_cost(letter: str) -> None:
    used = len(msgspec.json.encode(shortened(letter * 5_000, 1_000)))

    assert 980 <= used <= 1_000
