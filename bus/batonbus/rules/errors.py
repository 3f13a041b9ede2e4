"""Everything that can go wrong by name. Each class docstring is the first sentence of its help."""

from collections.abc import Sequence
from typing import cast
from uuid import UUID

from batonbus_schemas import Receipt


class BatonbusError(Exception):
    """Something that Batonbus refuses or cannot do."""


class InvalidTokenError(BatonbusError, ValueError):
    """A name cannot stand in a subject."""

    def __init__(self, what: str, value: str) -> None:
        super().__init__(
            f"{what} {value!r} cannot stand in a subject: "
            "use 1 to 64 letters, digits, dashes and underscores"
        )


class MessageTooLargeError(BatonbusError):
    """Payload and headers together are more than the server takes."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(
            f"message of {size:,} bytes (payload and headers) exceeds the server's max_payload of "
            f"{limit:,}: refer to files instead of pasting them, or raise max_payload"
        )


class ReferenceTooLargeError(BatonbusError):
    """A content of a ref-cache is more than the object store takes as one."""

    def __init__(self, key: str, size: int, limit: int) -> None:
        self.key, self.size, self.limit = key, size, limit
        super().__init__(
            f"reference {key!r} has {size:,} bytes, limit {limit:,}: "
            "divide it, or put it into a file and name the file"
        )


class ObjectError(BatonbusError):
    """The content behind a reference is not there, or is not what its hash says."""


class NoAnswerError(BatonbusError):
    """The server did not answer in time; whether it stored the message is not known."""


class NobodyAnswersError(NoAnswerError):
    """Nobody serves this subject, so nothing was stored: without JetStream, or a keeper."""


class BusUnavailableError(BatonbusError):
    """The bus cannot do its work here."""


class ServerAwayError(BusUnavailableError):
    """No server is there yet, or none any more: whoever can wait tries again."""


class TopologyError(BatonbusError):
    """The stream or a consumer on the server is not what this version needs."""


class ContextFullError(BatonbusError):
    """The agent's context is too full for this."""

    def __init__(self, what: str, percent: float, limit: float) -> None:
        self.percent, self.limit = percent, limit
        super().__init__(
            f"context usage is {percent:g} %, and from {limit:g} % on {what}: "
            "`await ctx.compact()` first, or finish and return the result"
        )


class CompactionError(BatonbusError):
    """A context could not be compacted, so the agent is given nothing new."""


CHECKPOINT_REFUSED = "Checkpoint refused"


class CheckpointRefusedError(CompactionError):
    """A Checkpoint does not agree with the facts, so nothing is reset."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{CHECKPOINT_REFUSED}: {'; '.join(problems)}")


class ReroutedError(BatonbusError):
    """After a compaction the agent cannot go on with the handoff that it had in hand."""


class ConflictError(BatonbusError):
    """A handoff with this id is stored with other content, or by another sender."""

    def __init__(self, handoff_id: UUID, differing: tuple[str, ...]) -> None:
        self.handoff_id, self.differing = handoff_id, differing
        looks = f"`batonbus show {handoff_id}` tells how it stands"
        if differing == ("sender",):
            told = f"was sent already, by another sender: {looks}; to hand it over once more, "
        else:
            told = f"is already stored with another {', '.join(differing)}: {looks}; for this one "
        super().__init__(f"handoff {handoff_id} {told}use another id or key")


class Bounced(BatonbusError):  # noqa: N818 - what happened to the handoff, as its sender says it
    """A line of handoffs ended without a result: refused, dead or cancelled."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        details = "".join(f"\n  {violation}" for violation in receipt.violations)
        super().__init__(
            f"handoff {receipt.handoff_id} was {receipt.state} by {receipt.by}: "
            f"{receipt.reason or 'no reason given'}{details}"
        )


class Refuse(BatonbusError):  # noqa: N818 - an instruction of a handler, as TryAgain
    """Raised by a handler: this handoff cannot be done, and trying again would not help."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class TryAgain(BatonbusError):  # noqa: N818 - an instruction of a handler
    """Raised by a handler: this attempt failed, make the next one after `after` seconds."""

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        self.reason, self.after = reason, after
        super().__init__(reason or "the handler asked for another attempt")


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions themselves, without the groups that task groups put them in."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for it in group.exceptions for leaf in leaves(it)]


def describe(error: BaseException) -> str:
    """The kind of an exception and what it says."""
    name = type(error).__name__
    try:
        return f"{name}: {error}".removesuffix(": ")
    except Exception as unreadable:  # noqa: BLE001 - The exception's class is not ours either.
        return f"{name}, whose text cannot be read ({type(unreadable).__name__})"
