"""A long text cut to what a message can hold."""

from bisect import bisect_right
from itertools import accumulate

import msgspec


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning and its end with a line between them that says how many characters
    were left out; as JSON at most `limit` bytes long, at least 100."""
    if _size(text) <= limit:
        return text
    mark = "\n[{:,} characters left out here]\n"
    room = max(limit, 100) - _size(mark.format(len(text)))
    head = text[: _fitting(text[:room], room // 2)]
    tail = text[len(text) - _fitting(text[: -room - 1 : -1], room - room // 2) :]
    return head + mark.format(len(text) - len(head) - len(tail)) + tail


def _size(text: str) -> int:
    return len(msgspec.json.encode(text))


def _fitting(text: str, limit: int) -> int:
    """How many characters of a text fit into `limit` bytes of JSON."""
    sizes = accumulate(_size(character) - len('""') for character in text)
    return bisect_right(list(sizes), limit)
