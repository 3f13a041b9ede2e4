"""The assignment as an agent or a command reads it: the same text for the same message.

Two forms from one message: readable Markdown, and XML (seed 002). Both say of every entry of the
window whose it is: from, task, level, handoff.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from batonbus_schemas.bodies import Dispatch
from batonbus_schemas.context import SHOWN_LINES, WindowEntry, shown
from batonbus_schemas.counts import counted
from batonbus_schemas.envelope import Envelope
from batonbus_schemas.receipts import TextForm
from batonbus_schemas.sections import joined, says, sections
from batonbus_schemas.xml import assignment_to_xml, dispatch_to_xml

_HEADING = re.compile(r"^(\s{0,3})(#{1,2}\s)", re.MULTILINE)
_ESCAPED = r"\1\\\2"


def render(
    envelope: Envelope, window: Sequence[WindowEntry] = (), form: TextForm = "markdown"
) -> str:
    """The assignment as text: whose it is, what to do, and the context from earlier steps.

    Every field of the body that is not empty is in it. A window entry's fields are shown to their
    line limits (`SHOWN_LINES`); in Markdown as quotes, so that no earlier agent's text can pass for
    another part of the assignment. Raises ValueError where XML cannot hold a name in `cache_hint`
    (see `dispatch_to_xml`).
    """
    if form == "markdown":
        return _markdown(envelope, window)
    entries = [_as_shown(entry) for entry in window]
    if isinstance(envelope.body, Dispatch):
        return dispatch_to_xml(envelope, entries)
    return assignment_to_xml(envelope, entries)


def _as_shown(entry: WindowEntry) -> WindowEntry:
    texts = {name: getattr(entry, name) for name in SHOWN_LINES}
    return replace(
        entry, **{name: shown(name, text)[0] for name, text in texts.items() if text is not None}
    )


def _markdown(envelope: Envelope, window: Sequence[WindowEntry]) -> str:
    parts = [_opening(envelope)]
    parts += [
        f"## {heading}\n\n{_as_written(text)}"
        for heading, text in sections(envelope.body)
        if says(text)
    ]
    if window:
        parts += ["## Context from earlier steps", *(_entry(entry) for entry in window)]
    lines = "\n\n".join(parts).splitlines()
    return "\n".join(line.rstrip() for line in lines).rstrip()


def _as_written(text: str) -> str:
    """A heading within a text of the body is shown as it is written: only ours divide an
    assignment. Most texts have none, and the pattern is tried at each of their characters."""
    return _HEADING.sub(_ESCAPED, text) if "#" in text else text


def _opening(envelope: Envelope) -> str:
    facts = [f"Work {envelope.work}"]
    if envelope.task is not None:
        facts.append(f"task {envelope.task}")
    facts += [f"attempt {envelope.attempt}", f"from {envelope.sender}", f"handoff {envelope.id}"]
    if envelope.deadline is not None:
        facts.append(f"due {envelope.deadline.isoformat()}")
    return f"# Assignment for {envelope.to}\n\n{', '.join(facts)}"


def _entry(entry: WindowEntry) -> str:
    where = f"handoff {entry.handoff_id}"
    facts = [entry.from_, entry.task or "", entry.level.value, where]
    return "\n\n".join([f"### {joined(facts, ', ')}", *_fields(entry, where)])


def _fields(entry: WindowEntry, where: str) -> Iterator[str]:
    for name in SHOWN_LINES:
        text, cut = shown(name, getattr(entry, name) or "")
        if says(text):
            more = f" ({counted(cut, 'more line')} in {where})" if cut else ""
            quote = "\n".join(f"> {line}" for line in text.splitlines())
            yield f"**{name.capitalize()}**{more}\n\n{quote}"
