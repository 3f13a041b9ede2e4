"""Long contents of a `ref-cache` become references by content hash, and contents again.

A reference is `object:sha256-<64 hexadecimal digits>` in the place of the content. The same content
is always the same reference, so two messages are alike whichever of them has its contents inline.

Source: seed 002, section 6 (ref-cache), against seed 001's payload budget; the design, section 9.7.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

from msgspec.structs import replace

from batonbus.rules.errors import ReferenceTooLargeError
from batonbus_schemas import Dispatch, TaskResult

B = TypeVar("B")

INLINE_LIMIT = 1_000
"""Characters; what is longer is referred to."""

OBJECT_LIMIT = 1_000_000
"""Bytes of UTF-8 of one content: it travels as one message, of which a server takes 1 MB."""

_REFERENCE = re.compile(r"object:sha256-([0-9a-f]{64})\Z")


def content_hash(content: bytes) -> str:
    """The name under which a content is stored: the 64 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()


def reference_to(name: str) -> str:
    """What stands in a ref-cache in the place of the content with this hash."""
    return f"object:sha256-{name}"


def refer(body: B) -> tuple[B, dict[str, bytes]]:
    """The body with a reference in the place of each long content, and those contents by hash.
    A body without any comes back as it is. Raises ReferenceTooLargeError."""
    taken: dict[str, bytes] = {}
    if not isinstance(body, Dispatch | TaskResult):
        return body, taken
    cache = dict(body.ref_cache)
    for key, text in _long(body.ref_cache):
        content = text.encode()
        if len(content) > OBJECT_LIMIT:
            raise ReferenceTooLargeError(key, len(content), OBJECT_LIMIT)
        name = content_hash(content)
        taken[name] = content
        cache[key] = reference_to(name)
    return (replace(body, ref_cache=cache) if taken else body), taken


def referred(body: object) -> dict[str, str]:
    """The keys of the contents that are referred to, each with its content's hash."""
    if not isinstance(body, Dispatch | TaskResult):
        return {}
    found = ((key, _REFERENCE.match(text)) for key, text in body.ref_cache.items())
    return {key: match[1] for key, match in found if match}


def restore(body: B, contents: Mapping[str, str]) -> B:
    """The body with these contents, by key, in the place of its references."""
    if not contents or not isinstance(body, Dispatch | TaskResult):
        return body
    return replace(body, ref_cache={**body.ref_cache, **contents})


def _long(ref_cache: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is not valid stays where it is: whoever encodes the message names it."""
    for key, text in ref_cache.items():
        is_text = isinstance(text, str)  # pyright: ignore[reportUnnecessaryIsInstance] - theirs
        if is_text and len(text) > INLINE_LIMIT and _can_be_encoded(text):
            yield key, text


def _can_be_encoded(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
