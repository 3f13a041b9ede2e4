"""The envelope of a handoff, and what the ledger stores around it.

The envelope is closed but for `extensions`. Trace context is not in it: it travels in NATS headers.
"""

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from batonbus_schemas.bodies import Body, TaskResult
from batonbus_schemas.context import Cut, WindowEntry
from batonbus_schemas.receipts import TextForm
from batonbus_schemas.tokens import Moment, TaskId, Token, Version

ADHOC = "adhoc"
"""The work of a handoff that belongs to none."""


class Parent(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An upstream record: a settled handoff, where it stands in the ledger, its context's bytes."""

    handoff_id: UUID
    sequence: Annotated[int, Meta(ge=1)]
    bytes: Annotated[int, Meta(ge=0)] = 0


class Envelope(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One piece of work passed from one agent to another.

    A sender names earlier handoffs in `after`; the bus checks them and fills `stage_parents` and
    `task_parents`. `within` is the handoff in whose handler this one was sent; it and `reply_to`
    travel on with `then`. `retry_of` is the dead handoff that this one tries again.
    """

    id: UUID
    sender: Token
    to: Token
    body: Body
    version: Version = "1.0"
    work: Token = ADHOC
    task: TaskId | None = None
    reply_to: Token | None = None
    within: UUID | None = None
    retry_of: UUID | None = None
    after: tuple[UUID, ...] | None = None
    stage_parents: tuple[Parent, ...] = ()
    task_parents: tuple[Parent, ...] = ()
    attempt: Annotated[int, Meta(ge=1)] = 1
    hops: Annotated[int, Meta(ge=0)] = 0
    deadline: Moment | None = None
    extensions: dict[str, Any] = {}


class Hop(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One handoff of a line: to whom, and a digest (16 hexadecimal digits) of what was asked."""

    to: Token
    digest: str


class TextSize(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How long an assignment's text is, in Unicode characters and reference tokens, and how long it
    may be (seed 001, dispatch payload). `row` is the policy role whose limits count, `steps` is
    what was taken out to fit, in order."""

    row: str
    form: TextForm
    max_characters: int
    max_tokens: int
    characters: int
    tokens: int
    steps: tuple[str, ...] = ()


class Delivery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A `delivered` event: the envelope, the window that its receiver sees, and what was cut.

    `opener` is the role of the task's first stage: the same role again is a rebuild. `trail` is the
    way here, from the line's first handoff to this one: through `then`, and through sends inside
    handlers. The envelope and the window are whole: `size` is of the text that is made of them.
    """

    envelope: Envelope
    opener: Token
    window: tuple[WindowEntry, ...] = ()
    cuts: tuple[Cut, ...] = ()
    trail: tuple[Hop, ...] = ()
    size: TextSize | None = None


class Settlement(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A `settled` event: the result and, in the same write, at most one next handoff."""

    result: TaskResult
    next: Envelope | None = None
