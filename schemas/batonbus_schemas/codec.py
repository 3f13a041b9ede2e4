"""Messages to bytes and back: JSON in UTF-8, with the limits that every path shares.

The fast path is msgspec alone. Only when that refuses is the message read again, slowly, to say
everything that is wrong with it.
"""

import functools
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct

from batonbus_schemas.contract import ContractV1, HandoffV1
from batonbus_schemas.counts import counted
from batonbus_schemas.envelope import Delivery, Envelope, Settlement
from batonbus_schemas.receipts import Violation
from batonbus_schemas.tokens import DEPTH_LIMIT, MESSAGE_LIMIT, Token
from batonbus_schemas.violations import find_violations, member_path

T = TypeVar("T")

VIOLATION_LIMIT = 50
"""Violations that an error lists, so that the refusal itself always fits in a message."""


class InvalidMessageError(ValueError):
    """A message that cannot be written or read; `violations` says everything that is wrong."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        if len(violations) > VIOLATION_LIMIT:
            left = len(violations) - VIOLATION_LIMIT + 1
            rest = Violation(path="$", problem=f"{counted(left, 'more violation')}, not listed")
            violations = (*violations[: VIOLATION_LIMIT - 1], rest)
        super().__init__(violations)
        self.violations = violations

    def __str__(self) -> str:
        return "invalid message: " + "; ".join(map(str, self.violations))


def encode(message: Struct) -> bytes:
    """A message as JSON.

    Raises InvalidMessageError where it is too large, nests too deep, or holds what JSON cannot:
    a number that is not finite, half of a surrogate pair, an object of another kind.
    """
    try:
        data = msgspec.json.encode(message)
    except (TypeError, ValueError, RecursionError) as error:
        found = tuple(_flaws(message, "$"))
        raise InvalidMessageError(found or _whole(str(error))) from None
    _check_size(data, type(message))
    # msgspec writes a number that is not finite as null, without a word.
    if _is_open(message) and (b"null" in data or _may_be_deep(data)):
        _refuse(_flaws(message, "$"))
    return data


def decode(data: bytes, type_: type[T]) -> T:
    """The message of that type in `data`. Raises InvalidMessageError with all that is wrong."""
    _check_size(data, type_)
    try:
        message = cast("T", _decoder(cast("Any", type_)).decode(data))
    except (msgspec.DecodeError, RecursionError):
        raise InvalidMessageError(find_violations(_parse(data), type_)) from None
    if _is_open(message) and _may_be_deep(data):
        _refuse(_flaws(message, "$"))
    return message


def read_handoff(data: bytes, *, sender: str, to: str | None = None) -> Envelope:
    """A handoff as an envelope: either an encoded `Envelope`, or a raw contract v1 document,
    which is wrapped for `to` (default: its own `to_agent.agent_id`) under its own id.

    `sender` is who a raw document comes from. Raises InvalidMessageError with all that is wrong.
    """
    _check_size(data, Envelope)
    try:
        envelope = cast("Envelope", _decoder(Envelope).decode(data))
    except (msgspec.DecodeError, RecursionError):
        tree = _parse(data)
        if not _is_document(tree):
            raise InvalidMessageError(find_violations(tree, Envelope)) from None
        envelope = _wrap(cast("dict[str, Any]", tree), sender, to)
    if _is_open(envelope) and _may_be_deep(data):
        _refuse(_flaws(envelope, "$"))
    return envelope


def _is_document(tree: object) -> bool:
    """Whether this is meant as a contract v1 document: an envelope has an id and a body."""
    return isinstance(tree, dict) and ("handoff_id" in tree or not {"id", "body"} & tree.keys())


def _wrap(document: dict[str, Any], sender: str, to: str | None) -> Envelope:
    _refuse(_document_violations(document, sender, to))
    body = HandoffV1(document=document)
    contract = body.contract
    deadline = contract.bundle.constraints.deadline
    return Envelope(
        id=contract.handoff_id,
        sender=sender,
        to=to or contract.to_agent.agent_id,
        deadline=None if deadline is UNSET else deadline,
        body=body,
    )


def _document_violations(
    document: dict[str, Any], sender: str, to: str | None
) -> Iterator[Violation]:
    yield from find_violations(document, ContractV1)
    yield from find_violations(sender, Token, "$.sender")
    if to is not None:
        yield from find_violations(to, Token, "$.to")
        return
    # On the bus an address is a name in a subject; the contract alone asks only for text.
    match document:
        case {"to_agent": {"agent_id": str(agent_id)}} if agent_id.strip():
            yield from find_violations(agent_id, Token, "$.to_agent.agent_id")
        case _:
            pass


@functools.cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def _check_size(data: bytes, type_: Any) -> None:
    limit = 2 * MESSAGE_LIMIT if type_ is Delivery else MESSAGE_LIMIT
    if len(data) > limit:
        raise InvalidMessageError(
            _whole(f"{len(data):,} bytes of JSON, limit {limit:,}: refer to files instead")
        )


def _whole(problem: str) -> tuple[Violation, ...]:
    return (Violation(path="$", problem=problem),)


def _parse(data: bytes) -> object:
    """Plain JSON. Raises InvalidMessageError with the reason why it is none."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise InvalidMessageError(_whole(f"nests deeper than {DEPTH_LIMIT} levels")) from None
    except msgspec.DecodeError as error:
        raise InvalidMessageError(_syntax_flaws(data) or _whole(f"not JSON: {error}")) from None


def _syntax_flaws(data: bytes) -> tuple[Violation, ...]:
    """Where exactly bytes are no JSON: Python's own parser also reads what JSON does not allow
    (NaN, Infinity, half of a surrogate pair), so the places can be named."""
    try:
        return tuple(_flaws(json.loads(data.decode()), "$"))
    except UnicodeDecodeError as error:
        byte, place = data[error.start], error.start
        return _whole(f"not UTF-8: byte 0x{byte:02x} at position {place:,}")
    except (ValueError, RecursionError):
        return ()


def _refuse(found: Iterable[Violation]) -> None:
    """Raise what was found, if anything was."""
    if violations := tuple(found):
        raise InvalidMessageError(violations)


def _may_be_deep(data: bytes) -> bool:
    return data.count(b"{") + data.count(b"[") > DEPTH_LIMIT


def _is_open(message: object) -> bool:
    """Whether a message has parts without a fixed shape; only they nest deep or hold any number."""
    match message:
        case Envelope():
            return isinstance(message.body, HandoffV1) or bool(message.extensions)
        case Delivery():
            return _is_open(message.envelope)
        case Settlement():
            return message.next is not None and _is_open(message.next)
        case _:
            return True


def _flaws(value: object, path: str, level: int = 1) -> Iterator[Violation]:
    """All that JSON cannot hold in this value. Levels are counted in each open part by itself, so
    that a document is as deep in its envelope as it was outside."""
    match value:
        case float() if not math.isfinite(value):
            yield Violation(path=path, problem=f"{value} is no number that JSON can hold")
        case str() if _has_surrogate(value):
            yield Violation(path=path, problem="holds half of a surrogate pair")
        case Struct():
            for name, encoded in zip(
                value.__struct_fields__, value.__struct_encode_fields__, strict=True
            ):
                yield from _flaws(getattr(value, name), f"{path}.{encoded}")
        case dict() | list() | tuple() if level > DEPTH_LIMIT:
            yield Violation(path=path, problem=f"nests deeper than {DEPTH_LIMIT} levels")
        case dict():
            for key, item in cast("dict[object, object]", value).items():
                if isinstance(key, str) and _has_surrogate(key):
                    yield Violation(path=path, problem="a key holds half of a surrogate pair")
                yield from _flaws(item, member_path(path, key), level + 1)
        case list() | tuple():
            for index, item in enumerate(cast("list[object]", value)):
                yield from _flaws(item, f"{path}[{index}]", level + 1)
        case _:
            return


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
