"""An expression that others write is refused unless it ends soon on any text."""

import re
import time

import pytest

from batonbus.rules.expressions import unbounded
from batonbus_schemas import MESSAGE_LIMIT

SOON = [
    "acme-[0-9a-f]{32}",
    "(?i)ACME_[a-z]{4}",
    "[0-9A-Za-z]{20,128}",
    r"(?:acme|emca)_[A-Z]{4}-\w{8,40}",
    ".{200}x",
    "(?:[a-z]{1,3}){2}abcdef",
    "[a-z]{100,227}1",
    "(?=.{1,64}@)acme[a-z]{4}",
]
NEVER = {
    "[": "no regular expression",
    "a{99999999999999}": "no regular expression",
    "acme" * 51: "has 204 characters, limit 200",
    "acme-.*": "more than 256 characters",
    "(a+)+b": "more than 256 characters",
    "acme-[0-9]{4,}": "more than 256 characters",
    "a{0,5}": "may match 0 characters",
    "|acme-secret": "may match 0 characters",
    "12345": "may match 5 characters, at least 6",
    "(a{0,10}){0,10}bbbbbb": "more than 400 steps",
    "(?:a|b|aa){1,6}bbbbbb": "more than 400 steps",
    "a{0,20}a{0,20}bbbbbb": "more than 400 steps",
    "[a-z]{1,11}[a-z]{1,11}[a-z]{40}1": "more than 400 steps",
    r"(x{3})\1\1": "refer back to no group",
    "(?=a*)acmeacme": "more than 400 steps",
}


@pytest.mark.parametrize("expression", SOON)
def test_one_that_is_bounded_is_tried_on_the_longest_message_in_a_moment(expression: str) -> None:
    assert unbounded(expression) == ""
    for piece in ("a", "ab", "x", "1", "acme-", "acme_ABCD-"):
        text = piece * (MESSAGE_LIMIT // len(piece))
        began = time.process_time()
        list(re.finditer(expression, text))
        assert time.process_time() - began < 1


@pytest.mark.parametrize("expression", NEVER)
def test_one_that_may_take_years_or_matches_anything_is_refused_with_the_reason(
    expression: str,
) -> None:
    assert NEVER[expression] in unbounded(expression)
