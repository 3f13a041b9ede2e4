"""The section `Context Handoff` of a result: what each stage of the task tells the next ones."""

import re

from msgspec import Struct

from batonbus_agents.works.markdown import (
    Document,
    Field,
    Section,
    field_line,
    heading_line,
    one_line,
)
from batonbus_agents.works.problems import Problems
from batonbus_agents.works.words import (
    CONTEXT_FIELDS,
    ROLES,
    heading,
    is_heading,
    is_nothing,
    key_of,
)
from batonbus_schemas.context import NOTHING_INCOMPLETE, ContextHandoff, DetailLevel

_HEADING = re.compile(
    r"(?P<role>.+?)\s*(?:Context|컨텍스트|コンテキスト)"
    r"\s*[-—–:(\uff1a\uff08\[]*\s*(?P<level>FULL|SUMMARY)?\s*[)\uff09\]]*",
    re.IGNORECASE,
)


class StageContext(Struct, frozen=True, kw_only=True):
    """What one stage handed on, and how much of it the file keeps; SUMMARY has `what` alone.

    `role` is empty where the section has the four fields without a heading for the stage.
    """

    role: str
    level: DetailLevel = DetailLevel.FULL
    handoff: ContextHandoff


def read_contexts(document: Document, problems: Problems) -> tuple[StageContext, ...]:
    """The stages of the section; nothing where there is no such section.

    A section that is there and cannot be read is refused, never taken for none: the next builder
    would start without what this one knew.
    """
    section = document.find(lambda title: is_heading(title, "handoff"))
    if section is None:
        return ()
    stages = document.below(section)
    own = document.fields(section, _field_name)
    found = [_stage(document, stage, problems) for stage in stages]
    if own[1] or (own[0] and not is_nothing(own[0])):
        found.insert(0, _read(section, "", DetailLevel.FULL, own, problems))
    elif not stages and not own[0]:
        problems.refuse(section.line, "the context handoff is empty: write its four fields")
    return tuple(context for context in found if context is not None)


def render_contexts(contexts: tuple[StageContext, ...], language: str) -> str:
    """The section in a language; nothing where there are no stages."""
    if not contexts:
        return ""
    parts = [heading_line(2, heading("handoff", language))]
    for context in contexts:
        role = ROLES.get(context.role, (context.role,))[0]
        title = [heading_line(3, f"{role} Context ({context.level.value})")] if role else []
        parts.append("\n".join([*title, *_fields(context)]))
    return "\n\n".join(parts)


def task_context(contexts: tuple[StageContext, ...]) -> ContextHandoff | None:
    """What the task tells the next ones: the first stage's fields, with the cautions and the open
    items of the later ones joined."""
    if not contexts:
        return None
    handoffs = [context.handoff for context in contexts]
    return ContextHandoff(
        what=handoffs[0].what,
        why=handoffs[0].why,
        caution=_joined([it.caution for it in handoffs]),
        incomplete=_joined([it.incomplete for it in handoffs]) or NOTHING_INCOMPLETE,
    )


def _joined(texts: list[str]) -> str:
    return "\n".join(dict.fromkeys(text for text in texts if not is_nothing(text)))


def _fields(context: StageContext) -> list[str]:
    handoff = context.handoff
    if context.level is DetailLevel.SUMMARY:
        return [field_line("what", handoff.what)]
    told = (
        ("what", handoff.what),
        ("why", handoff.why),
        ("caution", handoff.caution),
        ("incomplete", handoff.incomplete),
    )
    return [field_line(name, text) for name, text in told if text]


def _stage(document: Document, section: Section, problems: Problems) -> StageContext | None:
    found = _HEADING.fullmatch(one_line(section.title))
    if found is None:
        problems.refuse(
            section.line, f"{section.title!r} in the context handoff is not '<Role> Context (FULL)'"
        )
        return None
    role = key_of(found["role"], ROLES) or found["role"].casefold()
    level = DetailLevel((found["level"] or "FULL").upper())
    return _read(section, role, level, document.fields(section, _field_name), problems)


def _read(
    section: Section,
    role: str,
    level: DetailLevel,
    read: tuple[str, list[Field]],
    problems: Problems,
) -> StageContext | None:
    """Prose before the first label belongs to `what`; a field that stands twice is refused."""
    lead, fields = read
    told: dict[str, str] = {}
    for it in fields:
        if it.name in told:
            problems.refuse(it.line, f"{it.name!r} stands twice in {section.title!r}: keep one")
        told.setdefault(it.name, it.text)
    if lead:
        told["what"] = "\n".join(filter(None, (lead, told.get("what"))))
    if is_nothing(told.get("what", "")):
        problems.refuse(section.line, f"{section.title!r} does not say what was done")
        return None
    return StageContext(role=role, level=level, handoff=ContextHandoff(**told))


def _field_name(label: str, _bulleted: bool) -> str | None:
    return key_of(label, CONTEXT_FIELDS)
