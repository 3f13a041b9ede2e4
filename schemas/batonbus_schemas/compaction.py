"""The compaction handoff as agents write it: ten labels, each with its text (seed 001, required
handoff). Reading takes what models really write: bold labels, headings, lists, fences, JSON."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import cast

from batonbus_schemas.bodies import CompactionHandoff

HEADING = "## Context Compression"

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "active_project": "Active project",
        "active_task": "Active task",
        "my_role": "My role",
        "current_phase": "Current phase",
        "completed": "Completed",
        "not_completed": "Not completed",
        "evidence_paths": "Evidence paths",
        "known_blockers": "Known blockers",
        "next_safe_action": "Next safe action",
        "do_not_use": "Do not use / stale context",
    }
)
"""The label of each field, in the order of the seed."""

_INDENT = "  "
"""Before the further lines of a text."""

_TRIES = 20
"""Braces at which a JSON object is looked for."""


def _plain(name: str) -> str:
    """A label or a key without its capitals, spaces and marks."""
    return re.sub(r"[\W_]+", "", name).lower()


_SPELLINGS = {
    **{label: field for field, label in LABELS.items()},
    **{field: field for field in LABELS},
    "do not use": "do_not_use",
    "stale context": "do_not_use",
}
_NAMES = {_plain(spelling): field for spelling, field in _SPELLINGS.items()}
_WRITTEN = "|".join(
    r"[ _/-]*".join(re.findall("[a-z]+", spelling.lower()))
    for spelling in sorted(_SPELLINGS, key=len, reverse=True)
)
_LABELLED = re.compile(
    r"(?P<mark>(?P<indent>[ \t]{0,20}(?:[-*+] )?)"
    r"[\s>#*_-]{0,20}(?:\d{1,3}[.)]\s{0,9})?[*_`\"]{0,9})"
    rf"(?P<label>{_WRITTEN})(?: ?\([^()]*\))?"
    r"[*_`\"]{0,9}\s{0,9}(?P<colon>[:\uff1a]?)[*_`]{0,9}[ \t]*(?P<text>.*)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\s*(?:```|~~~)[\w-]*\s*")


def write_compaction(handoff: CompactionHandoff) -> str:
    """The ten fields under their labels; further lines are indented, so a label there is none."""
    told = (f"{label}: {_indented(getattr(handoff, field))}" for field, label in LABELS.items())
    return "\n".join([HEADING, "", *told])


def read_compaction(text: str) -> dict[str, str]:
    """What a text says of the ten fields, by field; one that it leaves out, or blank, is not there.
    Of a label that says something twice the last one counts: models show the form before they fill
    it in."""
    # JSON may escape half of a letter, which cannot be stored.
    told = max(_objects(text), _lines(text), key=len)
    return {it: told[it].encode(errors="replace").decode() for it in LABELS if it in told}


def _indented(text: str) -> str:
    first, *more = text.split("\n")
    return "\n".join([first, *(f"{_INDENT}{line}" if line.strip() else "" for line in more)])


def _lines(text: str) -> dict[str, str]:
    """What stands behind labels."""
    told: dict[str, str] = {}
    for field, lines in _blocks(text):
        first, *more = lines
        if all(line.startswith(_INDENT) for line in more if line):
            more = [line.removeprefix(_INDENT) for line in more]
        if said := "\n".join([first, *more]).strip():
            told[field] = said
    return told


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """The fields with their lines, in the text's order. A label that stands deeper than the first
    one, or in a list where that does not, belongs to a text."""
    lines = [line.rstrip() for line in text.split("\n")]
    labels = {number: it for number, line in enumerate(lines) if (it := _label(line))}
    if not labels:
        return []
    depth = len(labels[min(labels)]["indent"])
    blocks: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines[: _end(lines, min(labels))]):
        label = labels.get(number)
        if label and len(label["indent"]) <= depth:
            blocks.append((_NAMES[_plain(label["label"])], [label["text"]]))
        elif blocks:
            blocks[-1][1].append(line)
    return blocks


def _label(line: str) -> re.Match[str] | None:
    """With a colon, or a heading alone on its line; else it is a word of a text."""
    match = _LABELLED.fullmatch(line)
    if match is None or match["colon"]:
        return match
    is_heading = "#" in match["mark"] or "**" in match["mark"]
    return match if is_heading and not match["text"] else None


def _end(lines: list[str], first: int) -> int:
    """Where a fence ends in which the first label stands; else the end of all."""
    fences = [number for number, line in enumerate(lines) if _FENCE.fullmatch(line)]
    is_fenced = sum(number < first for number in fences) % 2 == 1
    return fences[-1] if is_fenced and len(fences) % 2 == 0 else len(lines)


def _objects(text: str) -> dict[str, str]:
    """The fields of the first JSON object that has any, whatever stands around it."""
    for brace in islice(re.finditer("{", text), _TRIES):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        if told := dict(_fields(cast("dict[str, object]", value))):
            return told
    return {}


def _fields(value: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, it in value.items():
        field, said = _NAMES.get(_plain(key)), _said(it)
        if field and said:
            yield field, said


def _said(value: object) -> str:
    match value:
        case str():
            return value.strip()
        case list():
            return "\n".join(filter(None, map(_said, cast("list[object]", value))))
        case None:
            return ""
        case _:
            return json.dumps(value, ensure_ascii=False)
