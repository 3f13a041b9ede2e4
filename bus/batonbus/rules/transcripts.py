"""What an agent's program printed: its answer, its session, and how full the model's window is.

Nothing here guesses. A text that is cut off lacks its last object, and with it the answer; a model
or a size that is not said leaves the usage unknown.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from batonbus.rules.command_lines import CommandLine, Place
from batonbus_schemas import ContextUsage

Event = dict[str, object]

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
"""An id that can stand among a command's words, and in a file's name."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\))")
"""What a program tells a terminal; in JSON itself it would be escaped."""


class Reading(Struct, frozen=True, kw_only=True):
    """What was found. `answer` is None where there is none, `failure` where there is no error;
    `session` and `model` are blank, `tokens` and `compacted` None where they are not said.
    `window` is the smallest size that is said of the model, by the output or by the row."""

    answer: str | None = None
    failure: str | None = None
    session: str = ""
    model: str = ""
    tokens: int | None = None
    window: int | None = None
    is_compacted: bool = False
    tokens_after: int | None = None


def read_transcript(line: CommandLine, output: str, record: str = "") -> Reading:
    """What a program printed, and wrote into its own record of the session."""
    said = read_events(output)
    events = [*said, *read_events(record)]
    model = _text(line.model, events) or ""
    sizes = [*_sizes(line.window, events, model), *_declared(line, model)]
    session = _text(line.session, said) or ""
    boundary = _last(line.compacted, said)
    return Reading(
        answer=_text(line.answer, said) if line.answer else output,
        failure=_failure(line.failed, said),
        session=session if _SESSION.fullmatch(session) else "",
        model=model,
        tokens=_sum(line.tokens, events),
        window=min(sizes, default=None),
        is_compacted=boundary is not None,
        tokens_after=next(iter(_numbers(line.compacted, said)), None),
    )


def usage_of(tokens: int | None, window: int | None, *, is_estimate: bool = False) -> ContextUsage:
    """Percent of a window of `window` tokens that `tokens` take: unknown where one is unknown."""
    if tokens is None or window is None:
        return ContextUsage()
    percent = min(round(100 * tokens / window, 1), 100.0)
    return ContextUsage(source="estimated" if is_estimate else "measured", percent=percent)


def read_events(text: str) -> list[Event]:
    """The JSON objects of a text: one, a list of them, one a line, or one behind other lines."""
    text = _ESCAPES.sub("", text).removeprefix("\ufeff")
    whole = _decoded(text)
    if whole is not None:
        return whole
    # Only a line feed ends a line: JSON may hold other ends of lines as they are.
    found = [event for line in re.split(r"[\r\n]", text) for event in _decoded(line) or ()]
    return found or _decoded(text[max(text.find("\n{"), 0) :]) or []


def _decoded(text: str) -> list[Event] | None:
    text = text.strip()
    if not text.startswith(("{", "[")):
        return None
    value: object
    try:
        value = msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        try:
            # Programs also print what JSON has not: half of a letter, NaN.
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [cast("Event", it) for it in items if isinstance(it, dict)]


def _failure(place: Place | None, events: Sequence[Event]) -> str | None:
    """An error is one though it says nothing; without `where` it is one only if it says so."""
    found = _text(place, events)
    if place is None or found or not place.where:
        return found or None
    return "it does not say why" if _last(place, events) is not None else None


def _text(place: Place | None, events: Sequence[Event]) -> str | None:
    """The text there, joined where it is several; None where the last such object has none."""
    event = _last(place, events)
    if place is None or event is None:
        return None
    for path in place.at:
        found = _follow(event, path.split("."))
        if texts := [it for it in found if isinstance(it, str) and it]:
            return "\n".join(texts).encode(errors="replace").decode()
    return None


def _numbers(place: Place | None, events: Sequence[Event], model: str = "") -> list[int]:
    event = _last(place, events)
    if place is None or event is None:
        return []
    found = (_follow(event, path.split("."), model) for path in place.at)
    # JSON's true is no number.
    return [it for values in found for it in values if type(it) is int and it > 0]


def _sizes(place: Place | None, events: Sequence[Event], model: str) -> list[int]:
    """Of the last object that says any: one that counts nothing yet says none, either."""
    found = (_numbers(place, [event], model) for event in reversed(events))
    return next(filter(None, found), list[int]())


def _sum(place: Place | None, events: Sequence[Event]) -> int | None:
    """The tokens of the last object that counts any: what a program says of itself counts none."""
    for event in reversed(events):
        if total := sum(_numbers(place, [event])):
            return total
    return None


def _declared(line: CommandLine, model: str) -> list[int]:
    return [size for name, size in line.windows.items() if model and _is_model(name, model)]


def _last(place: Place | None, events: Sequence[Event]) -> Event | None:
    if place is None:
        return None
    return next((event for event in reversed(events) if _fits(event, place)), None)


def _fits(event: Event, place: Place) -> bool:
    return all(
        next(_follow(event, path.split(".")), None) == value for path, value in place.where.items()
    )


def _follow(value: object, path: Sequence[str], model: str = "") -> Iterator[object]:
    """Everything that the path leads to."""
    if not path:
        yield value
        return
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        inner = cast("list[object]", value) if key == "*" else []
    elif isinstance(value, dict):
        inner = [it for name, it in cast("Event", value).items() if _is_key(name, key, model)]
    else:
        inner = []
    for item in inner:
        yield from _follow(item, rest, model)


def _is_key(name: str, key: str, model: str) -> bool:
    return bool(model) and _is_model(name, model) if key == "{model}" else key in (name, "*")


def _is_model(name: str, model: str) -> bool:
    """Whether a name is the model's; one with a suffix such as `[1m]` is the same model."""
    return name.partition("[")[0] == model.partition("[")[0]
