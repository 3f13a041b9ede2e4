"""Secrets and raw reasoning in a message (seed 003): every place of them named, never the value, or
all masked. What a text holds is found by `rules.secrets`; here the names of members tell, too."""

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from batonbus.rules.reasoning import is_reasoning, is_reasoning_key
from batonbus.rules.secrets import SHORTEST, find_banned, is_secret_key, mask
from batonbus_schemas import Violation
from batonbus_schemas.violations import member_path

S = TypeVar("S", bound=Struct)


def find_bans(message: object, known: Collection[str] = (), path: str = "$") -> list[Violation]:
    """Every place of a message (a Struct or builtins) that holds a secret or reasoning."""
    tree = msgspec.to_builtins(message)
    return [] if _is_clean(tree, known) else list(_walk(tree, known, path))


def _is_clean(tree: object, known: Collection[str]) -> bool:
    """Whether nothing is found in all texts at once: one look is a tenth of one for each text."""
    texts: list[str] = []
    # Two line ends: lines of several texts make no picture.
    return _gather(tree, texts) and not find_banned("\n\n".join(texts), known)


def _gather(value: object, texts: list[str]) -> bool:
    """Add all texts of a tree; False as soon as a name alone says that something is banned."""
    match value:
        case str():
            texts.append(value)
            return True
        case dict():
            members = cast("Mapping[str, object]", value)
            texts += filter(_may_be_secret, members)
            return not is_reasoning(members) and all(
                not _is_banned_member(key, item) and _gather(item, texts)
                for key, item in members.items()
            )
        case list() | tuple():
            return all(_gather(item, texts) for item in cast("list[object]", value))
        case _:
            return True


def _is_banned_member(key: str, item: object) -> bool:
    return bool(item and is_reasoning_key(key)) or _is_secret_member(key, item)


def _walk(value: object, known: Collection[str], path: str) -> Iterator[Violation]:
    match value:
        case str():
            for kind in dict.fromkeys(it.kind for it in find_banned(value, known)):
                yield _violation(path, kind)
        case dict():
            members = cast("Mapping[str, object]", value)
            if is_reasoning(members):
                yield _violation(path, "reasoning")
                return
            for key, item in members.items():
                named = find_banned(key, known) if _may_be_secret(key) else []
                if named:
                    yield _violation(f"{path} in the name of a member", named[0].kind)
                where = member_path(path, mask(key, known) if named else key)
                if item and is_reasoning_key(key):
                    yield _violation(where, "reasoning")
                elif _is_secret_member(key, item):
                    yield _violation(where, "named secret")
                else:
                    yield from _walk(item, known, where)
        case list() | tuple():
            for index, item in enumerate(cast("list[object]", value)):
                yield from _walk(item, known, f"{path}[{index}]")
        case _:
            pass


def _is_secret_member(key: str, value: object) -> bool:
    """Whether a member is a secret by its name: any text that is no placeholder."""
    if not isinstance(value, str) or not is_secret_key(key):
        return False
    return len(value) >= SHORTEST and not re.search(r"[\s<>${}*]", value)


def _violation(path: str, kind: str) -> Violation:
    if kind == "reasoning":
        return Violation(
            path=path, problem="holds raw reasoning: hand on what was decided, and why"
        )
    return Violation(path=path, problem=f"holds a secret ({kind}): name where it is kept instead")


def masked(message: S, known: Collection[str] = ()) -> S:
    """The message with every text masked; members that are secrets by name, and reasoning items,
    are emptied."""
    tree = msgspec.to_builtins(message)
    if _is_clean(tree, known):
        return message
    return msgspec.convert(_map(tree, lambda text: mask(text, known)), type(message))


def _map(value: object, change: Callable[[str], str]) -> object:
    match value:
        case str():
            return change(value)
        case dict():
            members = cast("Mapping[str, object]", value)
            return {
                _masked_key(key, change): _mapped(key, item, change)
                for key, item in members.items()
            }
        case list() | tuple():
            items = cast("list[object]", value)
            return [_map(it, change) for it in items if not is_reasoning(it)]
        case _:
            return value


def _masked_key(key: str, change: Callable[[str], str]) -> str:
    return change(key) if _may_be_secret(key) else key


@functools.lru_cache(maxsize=4096)
def _may_be_secret(name: str) -> bool:
    """Whether a member's name may hold one, or reasoning: no field of ours does."""
    is_word = name.replace("-", "_").isidentifier() and not any(map(str.isdecimal, name))
    return len(name) >= SHORTEST and not is_word


def _mapped(key: str, item: object, change: Callable[[str], str]) -> object:
    if _is_secret_member(key, item):
        return "[masked: named secret]"
    if isinstance(item, str) and is_reasoning_key(key):
        return ""
    return _map(item, change)
