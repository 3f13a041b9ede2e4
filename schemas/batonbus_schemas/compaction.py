"""The compaction handoff as agents write it: ten labels, each with its text (seed 001, required
handoff). Reading takes what models really write: bold labels, headings, lists, fences, JSON."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import msgspec

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

_NAMES = {
    **{label.lower(): field for field, label in LABELS.items()},
    **{field: field for field in LABELS},
    "do not use": "do_not_use",
    "stale context": "do_not_use",
}
_LABELLED = re.compile(
    r"(?P<mark>[\s>#*_\-]*(?:\d+[.)]\s*)?[*_`\"]*)"
    rf"(?P<label>{'|'.join(map(re.escape, sorted(_NAMES, key=len, reverse=True)))})"
    r"[*_`\"]*\s*(?P<colon>:?)[*_`]*[ \t]*(?P<text>.*)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\s*(?:```|~~~)[\w-]*\s*")


def write_compaction(handoff: CompactionHandoff) -> str:
    """The ten fields under their labels."""
    told = (f"{label}: {getattr(handoff, field)}" for field, label in LABELS.items())
    return "\n".join([HEADING, "", *told])


def read_compaction(text: str) -> dict[str, str]:
    """What a text says of the ten fields, by field; one that it leaves out, or blank, is not there.
    Of a label that stands there twice the last one counts: models show the form before they fill
    it in."""
    told = _json(text)
    if told is None:
        told = {field: "\n".join(lines).strip() for field, lines in _blocks(text)}
    return {field: told[field] for field in LABELS if told.get(field)}


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """The fields with their lines, in the text's order."""
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        labelled = _LABELLED.fullmatch(line)
        if labelled and _is_label(labelled):
            blocks.append((_NAMES[labelled["label"].lower()], [labelled["text"]]))
        elif blocks and not _FENCE.fullmatch(line):
            blocks[-1][1].append(line.rstrip())
    return blocks


def _is_label(match: re.Match[str]) -> bool:
    """With a colon, or a heading alone on its line; else it is a word of a text."""
    is_heading = "#" in match["mark"] or "**" in match["mark"]
    return bool(match["colon"]) or (is_heading and not match["text"])


def _json(text: str) -> dict[str, str] | None:
    """The fields of a JSON object, whatever stands around it; None where there is none."""
    start, end = text.find("{"), text.rfind("}")
    try:
        value: object = msgspec.json.decode(text[start : end + 1].encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    told = {_NAMES.get(key.lower(), ""): it for key, it in cast("dict[str, object]", value).items()}
    return {field: _said(it) for field, it in told.items() if field}


def _said(value: object) -> str:
    match value:
        case str():
            return value.strip()
        case list():
            return "\n".join(filter(None, map(_said, cast("list[object]", value))))
        case None:
            return ""
        case _:
            return msgspec.json.encode(value).decode()
