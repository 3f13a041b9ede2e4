"""Regular expressions that others write, and that are tried at every place of every text.

Python's own may take years for a line of text. So an expression is bounded before it is used: no
repetition without an upper limit, few steps at one place, no match that is very long.
"""

import importlib
import re
from typing import Any, NamedTuple

LENGTH = 200
"""Characters of the longest expression."""

STEPS = 400
"""Steps that an expression may need at one place of a text: `[0-9A-Za-z]{20,128}` needs 128."""

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
    if _cost(parsed).steps > STEPS:
        return (
            f"may need more than {STEPS} steps at one place of a text: let no repetition stand in "
            "another or beside another, refer back to no group, and say how long each is"
        )
    return ""


class _Cost(NamedTuple):
    """What it may take to try a part of an expression at one place: in how many ways it may match,
    for what follows is tried behind each, and the steps of all of them."""

    ways: int
    steps: int


_TOO_MUCH = _Cost(STEPS + 1, STEPS + 1)


def _cost(sequence: Any) -> _Cost:
    ways, steps = 1, 0
    for operation, argument in sequence:
        one = _cost_of(str(operation), argument)
        steps = min(steps + ways * one.steps, STEPS + 1)
        ways = min(ways * one.ways, STEPS + 1)
    return _Cost(ways, steps)


def _cost_of(operation: str, argument: Any) -> _Cost:
    match operation:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, repeated = argument
            # In front of something, as `(?=a*)`, it has no width, and many steps all the same.
            if int(most) > WIDEST:
                return _TOO_MUCH
            ways, steps = _cost(repeated)
            each = [min(ways**count, STEPS + 1) for count in range(most + 1)]
            return _Cost(sum(each[least:]), steps * sum(each[:-1]))
        case "BRANCH":
            costs = [_cost(it) for it in argument[1]]
            return _Cost(sum(it.ways for it in costs), sum(it.steps for it in costs))
        case "SUBPATTERN":
            return _cost(argument[-1])
        case "ATOMIC_GROUP":
            return _Cost(1, _cost(argument).steps)
        case "ASSERT" | "ASSERT_NOT":
            return _Cost(1, _cost(argument[1]).steps)
        case "GROUPREF" | "GROUPREF_EXISTS":
            return _TOO_MUCH
        case _:
            return _Cost(1, 1)
