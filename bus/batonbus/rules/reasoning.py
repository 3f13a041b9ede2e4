"""Raw reasoning of a model (seed 003): its blocks in a text, and its items in JSON, which may stand
in a text themselves, as programs print them."""

import functools
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import cast

Span = tuple[int, int]

_TAG = (
    r"(?:[a-z]{1,16}:)?"
    r"(think|thinking|thoughts?|analysis|reasoning|scratchpad|chain_of_thought|inner_monologue)"
)
_OPENED = re.compile(rf"<{_TAG}(?:\s[^>]{{0,1000}})?>", re.IGNORECASE)
_CLOSED = re.compile(rf"</{_TAG}\s*>", re.IGNORECASE)
_ENDED = re.compile(rf"\A.*?^[ \t]*</{_TAG}\s*>[ \t]*$", re.IGNORECASE | re.DOTALL | re.MULTILINE)
"""Reasoning without its beginning: the end stands alone on its line."""

_PAIRS = (("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"))
"""How some models write the ends of such a block."""

_CHANNEL = re.compile(r"<\|channel\|>analysis[^<\n]{0,80}<\|message\|>")
_CHANNEL_ENDED = re.compile(r"<\|(?:end|return|call)\|>|(?=<\|(?:start|channel)\|>)|\Z")

_TYPES = frozenset({"reasoning", "thinking", "redacted_thinking", "chain_of_thought"})
_KEYS = frozenset(
    {"reasoning", "reasoning_content", "thinking", "chain_of_thought", "raw_reasoning"}
)

_ITEM = re.compile(rf'\\{{0,3}}"type\\{{0,3}}"\s?:\s?\\{{0,3}}"(?:{"|".join(_TYPES)})\\{{0,3}}"')
_MEMBER = re.compile(
    r'"(?:reasoning_content|thinking|chain_of_thought|raw_reasoning)"\s?:\s?'
    r'"(?P<text>(?:(?:[^"\\\s]|\\.)+\s|[^"\\\s\x00-\x7f])(?:[^"\\]|\\.)*)"?'
)
"""A word alone is a setting; "reasoning" is one, too, and in a text also what a judge says."""

_REACH = 4_000
"""Characters before its type in which an item begins."""

_TRIES = 20
"""Braces at which one is looked for."""

_READ_IN_ALL = 2_000_000
"""Characters that are read for that in all of a text, so that one that is cut off, and holds many
of them, is looked through in a moment."""

_UNTOLD = frozenset({"type", "id", "status", "signature"})
"""Members of an item that tell nothing."""


def find_reasoning(text: str) -> Iterator[Span]:
    """Where a text holds raw reasoning."""
    if "<" in text:
        yield from _blocks(text)
        yield from _channels(text)
    for opened, closed in _PAIRS:
        yield from _pairs(text, opened, closed)
    if '"' in text and ("reasoning" in text or "thinking" in text or "chain_of_" in text):
        yield from _items(text)
        yield from (it.span("text") for it in _MEMBER.finditer(text))


def is_reasoning(value: object) -> bool:
    """Whether a value of JSON is an item of reasoning."""
    if not isinstance(value, dict):
        return False
    kind = cast("Mapping[str, object]", value).get("type")
    return isinstance(kind, str) and kind in _TYPES


@functools.lru_cache(maxsize=4096)
def is_reasoning_key(key: str) -> bool:
    """Whether a member of this name is reasoning."""
    return key.lower() in _KEYS


def _blocks(text: str) -> Iterator[Span]:
    """Whole blocks; one that is cut off, where it begins a line; and one without its beginning. Any
    other tag is a word in a sentence about tags."""
    opened = list(_OPENED.finditer(text))
    ended = _ENDED.match(text)
    if ended and not any(_is_begun(it, ended) for it in opened):
        yield 0, ended.end()
    ends: dict[str, list[int]] = {}
    for it in _CLOSED.finditer(text):
        ends.setdefault(it[1].lower(), []).append(it.end())
    at = 0
    for it in opened:
        if it.start() < at:
            continue
        closed = ends.get(it[1].lower(), [])
        if (place := bisect_right(closed, it.end())) < len(closed):
            at = closed[place]
        elif not text[text.rfind("\n", 0, it.start()) + 1 : it.start()].strip(" \t"):
            at = len(text)
        else:
            continue
        yield it.start(), at


def _is_begun(opened: re.Match[str], ended: re.Match[str]) -> bool:
    return opened[1].lower() == ended[1].lower() and opened.start() < ended.start(1)


def _channels(text: str) -> Iterator[Span]:
    """What models of the harmony format write before they answer."""
    end = 0
    while match := _CHANNEL.search(text, end):
        ended = _CHANNEL_ENDED.search(text, match.end())
        end = ended.end() if ended else len(text)
        yield match.start(), end


def _pairs(text: str, opened: str, closed: str) -> Iterator[Span]:
    at = text.find(opened)
    while at >= 0 and (end := text.find(closed, at)) >= 0:
        yield at, end + len(closed)
        at = text.find(opened, end)


def _items(text: str) -> Iterator[Span]:
    """Items of reasoning that a text quotes as JSON; one that is cut off, or within a text of JSON
    itself, to the end of its line."""
    at, left = 0, _READ_IN_ALL
    for match in _ITEM.finditer(text):
        if match.start() < at:
            continue
        whole = None
        for brace in _braces_before(text, match.start()):
            if whole or left <= 0:
                break
            whole, read = _item_at(text, brace, match.end())
            left -= read
        begin, end, is_told = whole or _rest_of_line(text, match)
        at = end
        if is_told:
            yield begin, end


def _braces_before(text: str, end: int) -> Iterator[int]:
    """The nearest first."""
    lowest = max(end - _REACH, 0)
    for _ in range(_TRIES):
        if (end := text.rfind("{", lowest, end)) < 0:
            return
        yield end


def _item_at(text: str, brace: int, behind: int) -> tuple[tuple[int, int, bool] | None, int]:
    """The item that begins there and ends behind a place, and whether it tells anything; and how
    many characters were read."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, brace)
    except json.JSONDecodeError as error:
        return None, max(error.pos - brace, 1)
    except (ValueError, RecursionError):
        return None, _REACH
    if end < behind or not is_reasoning(value):
        return None, end - brace
    told = cast("Mapping[str, object]", value)
    return (brace, end, any(told[it] for it in told if it not in _UNTOLD)), end - brace


def _rest_of_line(text: str, match: re.Match[str]) -> tuple[int, int, bool]:
    line_end = text.find("\n", match.end())
    end = line_end if line_end >= 0 else len(text)
    line = text.rfind("\n", 0, match.start()) + 1
    brace = text.rfind("{", max(match.start() - _REACH, line), match.start())
    is_told = brace >= 0 and bool(text[match.end() : end].strip(' \\"}],'))
    return brace, end, is_told
