"""What a fleet calls a secret beside what is one everywhere: `[secrets]` of its policy.

What `rules.secrets` finds is found all the same: it is extended, never switched off.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from batonbus.rules.expressions import unbounded
from batonbus.rules.secrets import Banned, without_overlaps
from batonbus_schemas import Violation
from batonbus_schemas.counts import counted
from batonbus_schemas.violations import member_path

S = TypeVar("S", bound=Struct)

ENTRIES = 20
"""Patterns, and names, that a policy may have."""

SCANNED = 1_000_000
"""Characters of a text that are looked through: as many as the longest content has bytes."""

KIND = "secret of the fleet"
MASK = f"[masked: {KIND}]"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{2,63}")
_NO_VALUE = r"\s\"',;<>(){}\[\]|$`\\"
_SIGN = r"\\\\|\\(?![\"'nrt\\])"
_GIVEN = (
    r"[\w-]{0,32}(?:\\{0,3}[\"'`*\])]){0,4}\s{0,16}(?:=>|:=|=|[:：＝]|\b(?:is|was)\b)\s{0,16}"
    r"(?:[*_]{1,3}\s?)?\\{0,3}[\"'`]?"
    rf"(?=[A-Za-z.]{{0,255}}(?:[^A-Za-z.{_NO_VALUE}]|{_SIGN}))"
    rf"(?P<value>(?:[^{_NO_VALUE}]|{_SIGN}){{4,256}})(?<!\.)"
)
"""What follows a name, where it is given a value: one of letters alone is a word."""


class Secrets(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`patterns` are regular expressions of secrets, `names` those of variables and members that
    hold one; case, and dash or underscore, make no difference there."""

    patterns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def problems(secrets: Secrets) -> Iterator[Violation]:
    """What is wrong with a table of secrets, each with its key."""
    for field, entries in (("patterns", secrets.patterns), ("names", secrets.names)):
        if len(entries) > ENTRIES:
            problem = f"has {len(entries)} entries, limit {ENTRIES}"
            yield Violation(path=f"secrets.{field}", problem=problem)
    for index, pattern in enumerate(secrets.patterns):
        if problem := unbounded(pattern):
            yield Violation(path=f"secrets.patterns[{index}]", problem=problem)
    for index, name in enumerate(secrets.names):
        if not _NAME.fullmatch(name):
            problem = f"is {name[:64]!r}, and not 3 to 64 letters, digits, dashes and underscores"
            yield Violation(path=f"secrets.names[{index}]", problem=problem)


class FleetSecrets:
    """Finds and masks what a table of secrets names, one in which `problems` are none."""

    def __init__(self, secrets: Secrets) -> None:
        self._patterns = [re.compile(it) for it in secrets.patterns]
        names = "|".join(re.sub("[_-]", "[_-]?", it) for it in secrets.names)
        self._given = re.compile(f"(?i)(?:{names}){_GIVEN}") if names else None
        self._key = re.compile(f"(?i)(?:^|[_-])(?:{names})$") if names else None

    def is_secret_key(self, key: str) -> bool:
        """Whether what is called so is a secret."""
        return self._key is not None and self._key.search(key) is not None

    def find(self, text: str) -> list[Banned]:
        """Where a text holds one, in order, without overlaps."""
        text = text[:SCANNED]
        spans = [match.span() for it in self._patterns for match in it.finditer(text)]
        if self._given is not None:
            spans += [it.span("value") for it in self._given.finditer(text)]
        return without_overlaps([Banned(KIND, *it) for it in spans])

    def mask(self, text: str) -> str:
        """The text with each masked; what was not looked through is left out."""
        parts, at = list[str](), 0
        for it in self.find(text):
            parts += (text[at : it.start], MASK)
            at = it.end
        parts.append(text[at:SCANNED])
        if len(text) > SCANNED:
            parts.append(
                f"[{counted(len(text) - SCANNED, 'character')} that nobody looked through]"
            )
        return "".join(parts)

    def find_bans(self, message: object, path: str = "$") -> list[Violation]:
        """Every place of a message (a Struct or builtins) that holds one."""
        problem = f"holds a {KIND}: name where it is kept instead"
        return [
            Violation(path=it, problem=problem)
            for it in self._places(msgspec.to_builtins(message), path)
        ]

    def masked(self, message: S) -> S:
        """The message with each masked."""
        if not self.find_bans(message):
            return message
        return msgspec.convert(self._map(msgspec.to_builtins(message)), type(message))

    def _places(self, value: object, path: str) -> Iterator[str]:
        match value:
            case str():
                if self.find(value):
                    yield path
            case dict():
                for key, item in cast("Mapping[str, object]", value).items():
                    where = member_path(path, key)
                    if self._is_secret_member(key, item):
                        yield where
                    else:
                        yield from self._places(item, where)
            case list() | tuple():
                for index, item in enumerate(cast("list[object]", value)):
                    yield from self._places(item, f"{path}[{index}]")
            case _:
                pass

    def _map(self, value: object) -> object:
        match value:
            case str():
                return self.mask(value)
            case dict():
                members = cast("Mapping[str, object]", value)
                return {
                    key: MASK if self._is_secret_member(key, item) else self._map(item)
                    for key, item in members.items()
                }
            case list() | tuple():
                return [self._map(it) for it in cast("list[object]", value)]
            case _:
                return value

    def _is_secret_member(self, key: str, item: object) -> bool:
        """Any text is one that is no placeholder, and not masked yet."""
        if not isinstance(item, str) or not self.is_secret_key(key):
            return False
        return len(item) >= 4 and not re.search(r"[\s<>${}*\[]", item)
