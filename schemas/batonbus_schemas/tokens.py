"""The small types that every message shares: names, ids, moments, and text with a limit."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

# `$` would let a trailing newline pass in Python; `(?![\s\S])` is the true end in Python and in
# the ECMA dialect of JSON Schema alike.
TOKEN_PATTERN = r"^[A-Za-z0-9_-]{1,64}(?![\s\S])"  # noqa: S105 - a pattern, not a password
TASK_PATTERN = r"^TASK-[0-9]{2,}(?![\s\S])"

Token = Annotated[str, Meta(pattern=TOKEN_PATTERN, max_length=64)]
"""A name that can stand in a NATS subject: agent, role, work, fleet."""

TaskId = Annotated[str, Meta(pattern=TASK_PATTERN, max_length=64)]
"""`TASK-NN`, without the work's prefix (seed 002, section 1)."""

Moment = Annotated[datetime, Meta(tz=True)]
"""A point in time; the zone is not optional."""

Text = Annotated[str, Meta(pattern=r"\S")]
"""Text that says something: blank is refused."""

Version = Literal["1.0"]

MESSAGE_LIMIT = 65_536
"""Bytes of encoded JSON that one handoff may have (seed 003, size limits)."""

DEPTH_LIMIT = 64
"""Levels that a part without a fixed shape (a contract document, extensions) may nest."""
