"""Everything that is wrong with a message, each thing with its place.

msgspec stops at the first error. A sender that learns of one error a round needs as many rounds as
it made errors, so this walks the data itself, by `msgspec.inspect`, and says all of it in one
answer. It agrees with msgspec: it finds nothing exactly where `msgspec.convert` succeeds.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import msgspec
from msgspec import inspect

from batonbus_schemas.contract import ContractV1, HandoffV1
from batonbus_schemas.receipts import Violation
from batonbus_schemas.tokens import TASK_PATTERN, TOKEN_PATTERN, Moment

ECHO_LIMIT = 60
"""Characters of a wrong value or an unknown key that a violation repeats."""

_DOCUMENTS = {HandoffV1: ("document", ContractV1)}
"""Open fields that their Struct checks against a type when it is made."""

_PATTERNS = {
    r"\S": "is blank",
    TOKEN_PATTERN: "is no name of 1 to 64 letters A-Z a-z, digits, `_` or `-`",
    TASK_PATTERN: "is no task id: TASK- and at least two digits, without the work's prefix",
}


def find_violations(data: object, type_: Any, path: str = "$") -> tuple[Violation, ...]:
    """All the places where `data` (builtins, as JSON decodes to) breaks `type_`; none if it fits.

    `path` is the JSON path of `data` itself.
    """
    try:
        msgspec.convert(data, type_)
    except msgspec.ValidationError as error:
        found = tuple(_walk(data, _type_info(type_), path))
        return found or (Violation(path=path, problem=str(error)),)
    return ()


@functools.cache
def _type_info(type_: Any) -> inspect.Type:
    return inspect.type_info(type_)


def _walk(data: object, kind: inspect.Type, path: str) -> Iterator[Violation]:
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    rule = _RULES.get(type(kind))
    return rule(data, kind, path) if rule else iter(())


def _wrong(path: str, problem: str) -> Iterator[Violation]:
    yield Violation(path=path, problem=problem)


def _mismatch(data: object, expected: str, path: str) -> Iterator[Violation]:
    return _wrong(path, f"expected {expected}, got {_json_type(data)}")


def _json_type(data: object) -> str:
    match data:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case _:
            return type(data).__name__


def _echo(data: object) -> str:
    return f"`{_clipped(str(data))}`"


def _clipped(text: str) -> str:
    """So much of a foreign text as can be repeated, and always as valid UTF-8."""
    part = text if len(text) <= ECHO_LIMIT else f"{text[:ECHO_LIMIT]}…"
    return part.encode(errors="replace").decode()


def member_path(path: str, key: object) -> str:
    """The path of an object's member; a key that is no plain word stands in brackets."""
    key = str(key)
    if key.isidentifier() and len(key) <= ECHO_LIMIT:
        return f"{path}.{key}"
    return f"{path}[{json.dumps(_clipped(key), ensure_ascii=False)}]"


def _struct(data: object, kind: inspect.StructType, path: str) -> Iterator[Violation]:
    if not isinstance(data, dict):
        yield from _mismatch(data, "object", path)
        return
    members = cast("dict[str, object]", data)
    fields = {field.encode_name: field for field in kind.fields}
    if kind.tag_field in members:
        yield from _tag(members[kind.tag_field], [kind.tag], f"{path}.{kind.tag_field}")
    for name, field in fields.items():
        if name in members:
            yield from _walk(members[name], field.type, member_path(path, name))
        elif field.required:
            yield from _wrong(member_path(path, name), "is missing")
    if kind.forbid_unknown_fields:
        for key in members:
            if key not in fields and key != kind.tag_field:
                known = ", ".join(fields)
                yield from _wrong(member_path(path, key), f"unknown field, known: {known}")
    if kind.cls in _DOCUMENTS:
        name, type_ = _DOCUMENTS[kind.cls]
        if isinstance(members.get(name), dict):
            yield from _walk(members[name], _type_info(type_), member_path(path, name))


def _tag(tag: object, known: list[Any], path: str) -> Iterator[Violation]:
    if not isinstance(tag, str):
        return _mismatch(tag, "string", path)
    if tag in known:
        return iter(())
    return _wrong(path, f"unknown kind {_echo(tag)}, known: {', '.join(known)}")


def _union(data: object, kind: inspect.UnionType, path: str) -> Iterator[Violation]:
    if data is None and kind.includes_none:
        return iter(())
    members = [it for it in kind.types if not isinstance(it, inspect.NoneType)]
    if len(members) == 1:
        return _walk(data, members[0], path)
    structs = {it.tag: it for it in members if isinstance(it, inspect.StructType)}
    return _tagged(data, structs, path)


def _tagged(
    data: object, structs: Mapping[Any, inspect.StructType], path: str
) -> Iterator[Violation]:
    if not isinstance(data, dict):
        return _mismatch(data, "object", path)
    members = cast("dict[str, object]", data)
    tag_field = next(iter(structs.values())).tag_field or ""
    where = f"{path}.{tag_field}"
    if tag_field not in members:
        return _wrong(where, f"is missing, known: {', '.join(structs)}")
    tag = members[tag_field]
    if isinstance(tag, str) and tag in structs:
        return _struct(members, structs[tag], path)
    return _tag(tag, list(structs), where)


def _array(data: object, kind: inspect.CollectionType, path: str) -> Iterator[Violation]:
    if not isinstance(data, list | tuple):
        yield from _mismatch(data, "array", path)
        return
    items = cast("list[object]", data)
    yield from _length(len(items), "items", kind, path)
    for index, item in enumerate(items):
        yield from _walk(item, kind.item_type, f"{path}[{index}]")


def _object(data: object, kind: inspect.DictType, path: str) -> Iterator[Violation]:
    if not isinstance(data, dict):
        yield from _mismatch(data, "object", path)
        return
    for key, value in cast("dict[str, object]", data).items():
        yield from _walk(key, kind.key_type, member_path(path, key))
        yield from _walk(value, kind.value_type, member_path(path, key))


def _length(
    count: int, unit: str, kind: inspect.StrType | inspect.CollectionType, path: str
) -> Iterator[Violation]:
    if kind.max_length is not None and count > kind.max_length:
        yield from _wrong(path, f"{count:,} {unit}, limit {kind.max_length:,}")
    if kind.min_length is not None and count < kind.min_length:
        yield from _wrong(path, f"{count:,} {unit}, at least {kind.min_length:,}")


def _string(data: object, kind: inspect.StrType, path: str) -> Iterator[Violation]:
    if not isinstance(data, str):
        yield from _mismatch(data, "string", path)
        return
    yield from _length(len(data), "characters", kind, path)
    if kind.pattern is not None and not re.search(kind.pattern, data):
        problem = _PATTERNS.get(kind.pattern, f"does not match {kind.pattern}")
        blank = kind.pattern == r"\S"
        yield from _wrong(path, problem if blank else f"{_echo(data)} {problem}")


def _integer(data: object, kind: inspect.IntType, path: str) -> Iterator[Violation]:
    if not isinstance(data, int) or isinstance(data, bool):
        return _mismatch(data, "integer", path)
    return _bounds(data, kind, path)


def _number(data: object, kind: inspect.FloatType, path: str) -> Iterator[Violation]:
    if not isinstance(data, int | float) or isinstance(data, bool):
        return _mismatch(data, "number", path)
    return _bounds(data, kind, path)


def _bounds(
    value: float, kind: inspect.IntType | inspect.FloatType, path: str
) -> Iterator[Violation]:
    if kind.ge is not None and not value >= kind.ge:
        yield from _wrong(path, f"{value} is less than {kind.ge}")
    if kind.le is not None and not value <= kind.le:
        yield from _wrong(path, f"{value} is more than {kind.le}")


def _boolean(data: object, kind: inspect.Type, path: str) -> Iterator[Violation]:
    return iter(()) if isinstance(data, bool) else _mismatch(data, "boolean", path)


def _null(data: object, kind: inspect.Type, path: str) -> Iterator[Violation]:
    return iter(()) if data is None else _mismatch(data, "null", path)


def _literal(data: object, kind: inspect.LiteralType, path: str) -> Iterator[Violation]:
    return _choice(data, list(kind.values), path)


def _enum(data: object, kind: inspect.EnumType, path: str) -> Iterator[Violation]:
    return _choice(data, [it.value for it in kind.cls], path)


def _choice(data: object, allowed: list[Any], path: str) -> Iterator[Violation]:
    if not isinstance(data, str):
        return _mismatch(data, "string", path)
    if data in allowed:
        return iter(())
    return _wrong(path, f"{_echo(data)} is not allowed, allowed: {', '.join(allowed)}")


def _moment(data: object, kind: inspect.DateTimeType, path: str) -> Iterator[Violation]:
    if isinstance(data, datetime):
        naive = data.tzinfo is None
    elif not isinstance(data, str):
        return _mismatch(data, "string (a moment)", path)
    elif _fits(data, Moment):
        return iter(())
    elif not _fits(data, datetime):
        return _wrong(path, f"{_echo(data)} is no moment such as 2026-07-20T12:00:00Z (RFC 3339)")
    else:
        naive = True
    if kind.tz and naive:
        return _wrong(path, f"{_echo(data)} has no time zone: add Z or an offset such as +09:00")
    return iter(())


def _uuid(data: object, kind: inspect.UUIDType, path: str) -> Iterator[Violation]:
    if not isinstance(data, str | UUID):
        return _mismatch(data, "string (a UUID)", path)
    if _fits(data, UUID):
        return iter(())
    return _wrong(path, f"{_echo(data)} is no UUID (hexadecimal digits, 8-4-4-4-12)")


def _fits(data: object, type_: Any) -> bool:
    try:
        msgspec.convert(data, type_)
    except msgspec.ValidationError:
        return False
    return True


_RULES: dict[type[inspect.Type], Callable[[object, Any, str], Iterator[Violation]]] = {
    inspect.StructType: _struct,
    inspect.UnionType: _union,
    inspect.ListType: _array,
    inspect.VarTupleType: _array,
    inspect.DictType: _object,
    inspect.StrType: _string,
    inspect.IntType: _integer,
    inspect.FloatType: _number,
    inspect.BoolType: _boolean,
    inspect.NoneType: _null,
    inspect.LiteralType: _literal,
    inspect.EnumType: _enum,
    inspect.DateTimeType: _moment,
    inspect.UUIDType: _uuid,
}
