"""Regular expressions that others write, and that are tried at every place of every text.

Python's own may take years for a line of text. So an expression is bounded before it is used: no
repetition without an upper limit, few ways to try it at one place, no match that is very long.
"""

import importlib
import re
from typing import Any

LENGTH = 200
"""Characters of the longest expression."""

WAYS = 128
"""Ways to try an expression at one place of a text: `[0-9A-Za-z]{20,128}` has 109."""

SHORTEST, WIDEST = 6, 256
"""Characters that a match must and may have."""

_parser: Any = importlib.import_module("re._parser")
"""How Python itself reads an expression."""


def unbounded(expression: str) -> str:
    """Why an expression may not be tried on every text; empty where it may."""
    if len(expression) > LENGTH:
        return f"has {len(expression):,} characters, limit {LENGTH}"
    try:
        re.compile(expression)
        parsed = _parser.parse(expression)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    least, most = map(int, parsed.getwidth())
    if most > WIDEST:
        return f"may match more than {WIDEST} characters: write {{0,64}} in place of * and +"
    if least < SHORTEST:
        return f"may match {least} characters, at least {SHORTEST}: less stands in many texts"
    if _ways(parsed) > WAYS:
        return (
            f"may be tried in more than {WAYS} ways at one place: let no repetition stand in "
            "another, refer back to no group, and say how long each is"
        )
    return ""


def _ways(sequence: Any) -> int:
    """How many ways there are to try a sequence at one place; `WAYS` + 1 stands for more."""
    ways = 1
    for operation, argument in sequence:
        ways = min(ways * _ways_of(str(operation), argument), WAYS + 1)
    return ways


def _ways_of(operation: str, argument: Any) -> int:
    match operation:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, repeated = argument
            # In front of nothing, as `(?=a*)`, it has no width, and many ways all the same.
            if int(most) > WIDEST:
                return WAYS + 1
            once = _ways(repeated)
            return sum(min(once**count, WAYS + 1) for count in range(least, most + 1))
        case "BRANCH":
            return sum(map(_ways, argument[1]))
        case "SUBPATTERN":
            return _ways(argument[-1])
        case "ATOMIC_GROUP":
            return _ways(argument)
        case "ASSERT" | "ASSERT_NOT":
            return _ways(argument[1])
        case "GROUPREF" | "GROUPREF_EXISTS":
            return WAYS + 1
        case _:
            return 1
