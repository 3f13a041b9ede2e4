"""What an agent hands on about its step, and how much of it the next agents see.

Source: seed 000 (sliding window, four fields) and seed 002, section 4.
"""

import enum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from batonbus_schemas.tokens import TaskId, Text, Token

NOTHING_INCOMPLETE = "None"

SHOWN_LINES = {"what": 5, "why": 4, "caution": 3, "incomplete": 2}
"""Lines of each field that a FULL entry shows (seed 000); longer fields are stored whole."""

SUMMARY_LINES = 3
"""Lines of `what` that a SUMMARY keeps (seed 000)."""


class DetailLevel(enum.Enum):
    """How much of an ancestor's context a window shows."""

    FULL = "FULL"
    SUMMARY = "SUMMARY"
    DROP = "DROP"


class ContextHandoff(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The four fields by which a step tells the next ones about itself."""

    what: Text
    why: str = ""
    caution: str = ""
    incomplete: str = NOTHING_INCOMPLETE

    def __post_init__(self) -> None:
        if not self.incomplete.strip():
            force_setattr(self, "incomplete", NOTHING_INCOMPLETE)

    def summary(self) -> str:
        """The first three non-empty lines of `what`, verbatim."""
        return "\n".join(first_lines(self.what, SUMMARY_LINES))


def first_lines(text: str, limit: int) -> list[str]:
    """The first `limit` non-empty lines of a text, each exactly as it stands."""
    return _lines(text)[:limit]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def shown(field_name: str, text: str) -> tuple[str, int]:
    """What of a field stands in an assignment: its first non-empty lines, to the field's limit in
    `SHOWN_LINES`, and how many more there are."""
    lines = _lines(text)
    limit = SHOWN_LINES[field_name]
    return "\n".join(lines[:limit]), max(len(lines) - limit, 0)


class Edge(enum.Enum):
    """What joins two records: the stages of one task, or one task and the task it needs."""

    STAGE = "stage"
    TASK = "task"


class WindowEntry(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """One ancestor as the receiving agent sees it; a SUMMARY has `what` alone."""

    distance: Annotated[int, Meta(ge=1, le=2)]
    level: DetailLevel
    edge: Edge
    from_: Token = field(name="from")
    handoff_id: UUID
    what: str
    task: TaskId | None = None
    why: str | None = None
    caution: str | None = None
    incomplete: str | None = None


class Cut(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a window did to one ancestor: its level, and its context's bytes before and after.

    `distance` 3 is the nearest that is dropped; what lies behind it is never read.
    """

    distance: Annotated[int, Meta(ge=1, le=3)]
    level: DetailLevel
    edge: Edge
    handoff_id: UUID
    bytes_before: int
    bytes_after: int
    from_: Token | None = field(name="from", default=None)
    task: TaskId | None = None
