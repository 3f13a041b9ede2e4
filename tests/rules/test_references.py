"""Long contents become references by their hash, and contents again: nothing is lost, and the same
content is always the same reference."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus.rules.errors import ReferenceTooLargeError
from batonbus.rules.references import (
    INLINE_LIMIT,
    OBJECT_LIMIT,
    content_hash,
    refer,
    reference_to,
    referred,
    restore,
)
from batonbus.secrecy import find_in
from batonbus_schemas import Dispatch, Question, TaskResult, encode

LETTERS = "ab\n é가🛠"
CONTENTS = st.one_of(
    st.text(LETTERS, max_size=30),
    st.builds(lambda text, more: text * 400 + more, st.text(LETTERS, min_size=3), st.text(LETTERS)),
)
CACHES = st.dictionaries(st.text(LETTERS, max_size=5), CONTENTS, max_size=5)


def dispatch(**ref_cache: str) -> Dispatch:
    return Dispatch(brief="x", ref_cache=ref_cache)


@given(CACHES)
def test_what_is_referred_to_and_restored_is_what_it_was(cache: dict[str, str]) -> None:
    body = Dispatch(brief="x", ref_cache=cache)
    shortened, contents = refer(body)
    names = referred(shortened)
    assert set(names) == {key for key, text in cache.items() if len(text) > INLINE_LIMIT}
    assert set(names.values()) == set(contents)
    assert restore(shortened, {key: contents[it].decode() for key, it in names.items()}) == body


@given(CACHES)
def test_referring_twice_changes_nothing_more(cache: dict[str, str]) -> None:
    """So a message that has its contents inline and one that refers to them are the same."""
    once, _ = refer(Dispatch(brief="x", ref_cache=cache))
    assert refer(once) == (once, {})


@pytest.mark.parametrize("letter", ["a", "가", "🛠"])
def test_a_content_of_the_limit_stays_and_one_character_more_does_not(letter: str) -> None:
    body = dispatch(short=letter * INLINE_LIMIT, long=letter * (INLINE_LIMIT + 1))
    shortened, contents = refer(body)
    digest = hashlib.sha256((letter * (INLINE_LIMIT + 1)).encode()).hexdigest()
    assert shortened.ref_cache == {
        "short": letter * INLINE_LIMIT,
        "long": f"object:sha256-{digest}",
    }
    assert contents == {digest: (letter * (INLINE_LIMIT + 1)).encode()}


def test_two_keys_with_one_content_are_stored_as_one() -> None:
    shortened, contents = refer(dispatch(one="x" * 5000, two="x" * 5000, three="y" * 5000))
    assert len(contents) == 2
    assert shortened.ref_cache["one"] == shortened.ref_cache["two"]


def test_a_result_has_its_references_too() -> None:
    result = TaskResult(status="PASS", summary="x", ref_cache={"style": "s" * 5000})
    shortened, contents = refer(result)
    (name,) = contents
    assert shortened.ref_cache == {"style": reference_to(name)}
    assert restore(shortened, {"style": "s" * 5000}) == result


def test_a_body_without_a_ref_cache_stays_the_very_same() -> None:
    question = Question(text="x" * 5000)
    body, contents = refer(question)
    assert body is question
    assert contents == {}
    assert referred(question) == {}


@pytest.mark.parametrize(
    "text",
    [
        "object:sha256-" + "0" * 63,
        "object:sha256-" + "0" * 65,
        "object:sha256-" + "A" * 64,
        "object:sha256-" + "0" * 64 + "\n",
        " object:sha256-" + "0" * 64,
        "sha256-" + "0" * 64,
    ],
)
def test_what_only_looks_like_a_reference_is_a_content(text: str) -> None:
    assert referred(dispatch(it=text)) == {}


def test_a_content_of_more_than_one_message_is_refused_by_its_key_and_size() -> None:
    refer(dispatch(whole="x" * OBJECT_LIMIT))
    with pytest.raises(ReferenceTooLargeError) as caught:
        refer(dispatch(manual="é" * (OBJECT_LIMIT // 2 + 1)))
    assert str(caught.value) == (
        "reference 'manual' has 1,000,002 bytes, limit 1,000,000: "
        "divide it, or put it into a file and name the file"
    )


def test_what_cannot_be_stored_as_text_is_left_to_whoever_encodes_the_message() -> None:
    body = Dispatch(brief="x", ref_cache={"half": "\ud800" * 2000, "number": 7})  # type: ignore[dict-item]
    assert refer(body) == (body, {})


def test_forty_references_take_little_room_and_are_no_secrets() -> None:
    cache = {f"key-{number}": f"{number} " * 5000 for number in range(40)}
    shortened, contents = refer(Dispatch(brief="x", ref_cache=cache))
    assert len(encode(shortened)) < 5000
    assert find_in(shortened) == []
    assert all(content_hash(content) == name for name, content in contents.items())
