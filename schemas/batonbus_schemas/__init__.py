"""The messages of Batonbus: msgspec Structs, JSON on the wire.

`encode` and `decode` are the one way to bytes and back; `read_handoff` also takes a raw contract
v1 document; `render` makes the text that an agent reads.
"""

from batonbus_schemas.bodies import (
    Body,
    Check,
    CompactionHandoff,
    Dispatch,
    FileChange,
    PreviousResult,
    Question,
    TaskResult,
    Then,
)
from batonbus_schemas.codec import InvalidMessageError, decode, encode, read_handoff
from batonbus_schemas.context import ContextHandoff, Cut, DetailLevel, Edge, WindowEntry
from batonbus_schemas.contract import ContractV1, HandoffV1
from batonbus_schemas.envelope import Delivery, Envelope, Hop, Parent, Settlement, TextSize
from batonbus_schemas.receipts import (
    AgentCard,
    Checkpoint,
    ContextUsage,
    Presence,
    Receipt,
    ResetJournal,
    TextForm,
    Violation,
)
from batonbus_schemas.text import render
from batonbus_schemas.tokens import MESSAGE_LIMIT

__all__ = [
    "MESSAGE_LIMIT",
    "AgentCard",
    "Body",
    "Check",
    "Checkpoint",
    "CompactionHandoff",
    "ContextHandoff",
    "ContextUsage",
    "ContractV1",
    "Cut",
    "Delivery",
    "DetailLevel",
    "Dispatch",
    "Edge",
    "Envelope",
    "FileChange",
    "HandoffV1",
    "Hop",
    "InvalidMessageError",
    "Parent",
    "Presence",
    "PreviousResult",
    "Question",
    "Receipt",
    "ResetJournal",
    "Settlement",
    "TaskResult",
    "TextForm",
    "TextSize",
    "Then",
    "Violation",
    "WindowEntry",
    "decode",
    "encode",
    "read_handoff",
    "render",
]
