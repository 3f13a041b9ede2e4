"""Dispatch and TaskResult to and from the XML of seeds 000 and 002.

The elements are seed 002's. Its `task-spec/description` is our `brief`; `task-spec/title` stays the
title. What it has no element for stands in optional ones of our own: `permission-boundary`,
`expected-evidence/evidence`, `attention`, `context-pack`, `skills/skill`, `references/reference`.
The window stands as `context-handoff` elements, each with the id of its handoff (`handoff`, an
attribute of our own): stages in the dispatch itself, tasks (with their `task` attribute) in
`previous-results`; a result carries its own one (seed 000).

A round trip is exact for all text that XML 1.0 can carry; a control character is written as its
picture (U+2400 and on), anything else that XML cannot carry as U+FFFD. White space around text
counts only where `xml:space="preserve"` says so, which the writer adds, and in a `ref`. Reading
gives known roles, actions and other known values in their canonical letter case.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from lxml import etree
from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage] - its only name

from batonbus_schemas.bodies import Dispatch, TaskResult
from batonbus_schemas.context import ContextHandoff, DetailLevel, Edge, WindowEntry
from batonbus_schemas.envelope import ADHOC, Envelope
from batonbus_schemas.sections import says, sections
from batonbus_schemas.xml_reading import (
    Reading,
    XmlContext,
    XmlDispatch,
    read_dispatch,
    read_result,
)
from batonbus_schemas.xml_source import XmlReadingError, carriable
from batonbus_schemas.xml_tree import CONTEXT_TEXTS, DISPATCH_LISTS, DISPATCH_TEXTS, set_text

__all__ = [
    "Reading",
    "XmlContext",
    "XmlDispatch",
    "XmlReadingError",
    "assignment_to_xml",
    "dispatch_to_xml",
    "read_dispatch",
    "read_result",
    "resolve_ref",
    "result_to_xml",
]

_NO_NAME = re.compile("[^a-z0-9]+")
_REF_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def dispatch_to_xml(envelope: Envelope, window: Sequence[WindowEntry] = ()) -> str:
    """The dispatch of seed 002, section 1, with its receiver's window.

    Raises TypeError where the body is no Dispatch, and ValueError where a name in `cache_hint` is
    blank or holds a comma or white space around it: `cache-hint` joins them by commas.
    """
    body = envelope.body
    if not isinstance(body, Dispatch):
        raise TypeError(f"only a Dispatch has a dispatch's XML, not a {type(body).__name__}")
    root = etree.Element("dispatch")
    work = None if envelope.work == ADHOC else envelope.work
    _set(root, {"to": envelope.to, "work": work, "task": envelope.task})
    _set(root, {"execution-mode": body.execution_mode})
    _add_refs(root, body.ref_cache)
    for path, name in DISPATCH_TEXTS.items():
        _add_text(root, path, getattr(body, name))
    for path, name in DISPATCH_LISTS.items():
        for text in getattr(body, name):
            _add(_box(root, path), path.rpartition("/")[2], text)
    _add_window(root, envelope, window)
    _add_cache_hint(root, body.cache_hint)
    return _written(root)


def assignment_to_xml(envelope: Envelope, window: Sequence[WindowEntry] = ()) -> str:
    """An assignment of any body: an element a section, the window as `context-handoff` elements."""
    root = etree.Element("assignment")
    work = None if envelope.work == ADHOC else envelope.work
    due = envelope.deadline.isoformat() if envelope.deadline else None
    _set(root, {"to": envelope.to, "work": work, "task": envelope.task, "from": envelope.sender})
    _set(root, {"attempt": str(envelope.attempt), "handoff": str(envelope.id), "due": due})
    for heading, text in sections(envelope.body):
        if says(text):
            _add(root, _NO_NAME.sub("-", heading.lower()), text)
    for entry in window:
        if entry.level is not DetailLevel.DROP:
            _add_entry(root, entry, entry.task)
    return _written(root)


def result_to_xml(result: TaskResult) -> str:
    """The task result of seed 002, section 2, with the context handoff of seed 000."""
    root = etree.Element("task-result")
    _set(root, {"work": result.work, "task": result.task, "agent": result.agent or None})
    _set(root, {"status": result.status})
    _add_text(root, "summary", result.summary)
    for change in result.files_changed:
        place = {"action": change.action, "path": change.path}
        _add(_box(root, "files-changed/file"), "file", change.description, place)
    for check in result.verification:
        outcome = {"name": check.name, "status": check.status}
        _add(_box(root, "verification/check"), "check", check.output, outcome)
    _add_text(root, "notes", result.notes)
    if result.context_handoff:
        whose = {"from": result.agent or None, "detail-level": DetailLevel.FULL.value}
        _add_context(root, result.context_handoff, whose)
    _add_refs(root, result.ref_cache)
    return _written(root)


def resolve_ref(
    key: str, ref_cache: Mapping[str, str], references_dir: str, read: Callable[[str], str]
) -> str:
    """A reference file's content: from the cache and then without touching the file, else what
    `read` gives for `<references_dir>/<key>.md` (seed 002, section 6).

    Raises ValueError where the key could name a file elsewhere or there is no folder to read from.
    """
    if key in ref_cache:
        return ref_cache[key]
    if not _REF_KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no file name without extension: it is not read from disk")
    if not references_dir:
        raise ValueError(f"{key} is not in the ref-cache, and there is no references-dir to read")
    return read(f"{references_dir.rstrip('/')}/{key}.md")


def _set(element: Element, attributes: Mapping[str, str | None]) -> None:
    for name, value in attributes.items():
        if value is not None:
            element.set(name, carriable(value))


def _add(
    parent: Element, tag: str, text: str, attributes: Mapping[str, str | None] | None = None
) -> None:
    child = etree.SubElement(parent, tag)
    _set(child, attributes or {})
    set_text(child, text)


def _box(root: Element, path: str) -> Element:
    """The element that holds the last one of a path; made where it is not there yet."""
    name = path.rpartition("/")[0]
    if not name:
        return root
    found = root.find(name)
    return etree.SubElement(root, name) if found is None else found


def _add_text(root: Element, path: str, text: str) -> None:
    if text:
        _add(_box(root, path), path.rpartition("/")[2], text)


def _add_refs(root: Element, ref_cache: Mapping[str, str]) -> None:
    for key, content in ref_cache.items():
        _add(_box(root, "ref-cache/ref"), "ref", content, {"key": key})


def _add_window(root: Element, envelope: Envelope, window: Sequence[WindowEntry]) -> None:
    """Stages in the dispatch (they are of its own task), then earlier tasks and their results."""
    shown = [entry for entry in window if entry.level is not DetailLevel.DROP]
    for entry in shown:
        if entry.edge is Edge.STAGE:
            task = None if entry.task == envelope.task else entry.task
            _add_entry(root, entry, task)
    for past in envelope.body.previous_results if isinstance(envelope.body, Dispatch) else ():
        outcome = {"task": past.task, "status": past.status}
        _add(_box(root, "previous-results/result"), "result", past.summary, outcome)
    for entry in shown:
        if entry.edge is Edge.TASK:
            _add_entry(_box(root, "previous-results/context-handoff"), entry, entry.task)


def _add_entry(parent: Element, entry: WindowEntry, task: str | None) -> None:
    whose = {"from": entry.from_, "task": task, "detail-level": entry.level.value}
    _add_context(parent, entry, {**whose, "handoff": str(entry.handoff_id)})


def _add_context(
    parent: Element, context: ContextHandoff | WindowEntry, whose: Mapping[str, str | None]
) -> None:
    element = etree.SubElement(parent, "context-handoff")
    _set(element, whose)
    for name in CONTEXT_TEXTS:
        text = getattr(context, name)
        if text is not None:
            _add(element, name, text)


def _add_cache_hint(root: Element, sections: Sequence[str]) -> None:
    for name in sections:
        if not name.strip() or name != name.strip() or "," in name:
            raise ValueError(
                f"cache-hint cannot name the section {name!r}: it joins names by commas"
            )
    if sections:
        _set(etree.SubElement(root, "cache-hint"), {"sections": ",".join(sections)})


def _written(root: Element) -> str:
    """One element a line: as easy to read as indented, without the characters."""
    for element in root.iter():
        if len(element):
            element.text = "\n"
        element.tail = "\n"
    return etree.tostring(root, encoding="unicode", with_tail=False)
