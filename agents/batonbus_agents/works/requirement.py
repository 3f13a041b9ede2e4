"""`Requirement.md`: what was asked, in the words of whoever asked, and what follows from it."""

import re

from msgspec import Struct

from batonbus_agents.works.markdown import Document, heading_line, one_line
from batonbus_agents.works.names import work_id
from batonbus_agents.works.problems import Problems, Reading
from batonbus_agents.works.task import criterion
from batonbus_agents.works.words import heading, is_heading

_TITLE = re.compile(r"(?:Requirements?|요구사항|要件)\s*(?:--|[—–:-])\s*(?P<id>\S+)", re.IGNORECASE)


class Requirement(Struct, frozen=True, kw_only=True):
    """The request verbatim, and what follows from it: items such as `FR-01: …` as they stand."""

    work: str
    request: str = ""
    functional: tuple[str, ...] = ()
    non_functional: tuple[str, ...] = ()
    acceptance_criteria: tuple[str, ...] = ()


def read_requirement(text: str, file: str = "Requirement.md") -> Reading[Requirement]:
    """Reads a requirement as far as it goes, with everything that is wrong with it."""
    document, problems = Document(text), Problems(file)
    requirement = Requirement(
        work=_work(document, problems),
        request=_request(document),
        functional=_items(document, "functional"),
        non_functional=_items(document, "non_functional"),
        acceptance_criteria=tuple(criterion(it)[1] for it in _items(document, "criteria")),
    )
    if not requirement.request:
        problems.refuse(1, "no request: quote it word for word under '## Original Request'")
    return problems.reading(requirement)


def parse_requirement(text: str, file: str = "Requirement.md") -> Requirement:
    """The requirement. Raises `WorksFileError` with everything that is wrong with its file."""
    return read_requirement(text, file).whole()


def render_requirement(requirement: Requirement, language: str = "en") -> str:
    """The requirement's file in a language."""
    sections = (
        ("request", _quoted(requirement.request)),
        ("functional", _listed(requirement.functional)),
        ("non_functional", _listed(requirement.non_functional)),
        ("criteria", _listed(tuple(f"[ ] {it}" for it in requirement.acceptance_criteria))),
    )
    parts = [heading_line(1, f"Requirement — {requirement.work}")]
    for key, body in sections:
        parts += [heading_line(2, heading(key, language)), body]
    return "\n\n".join(part for part in parts if part) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))


def _listed(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {one_line(item)}" for item in items)


def _work(document: Document, problems: Problems) -> str:
    head = document.find(lambda _: True)
    found = _TITLE.fullmatch(head.title) if head and head.level == 1 else None
    try:
        if found:
            return work_id(found["id"])
        problems.refuse(
            head.line if head else 1, "the first heading is not '# Requirement — WORK-NN'"
        )
    except ValueError as error:
        problems.refuse(head.line if head else 1, error)
    return ""


def _request(document: Document) -> str:
    """The quoted lines as they stand, without their `>`; without a quote, all of the section."""
    section = document.find(lambda title: is_heading(title, "request"))
    if section is None:
        return ""
    lines = [re.match(r" {0,3}> ?(.*)", it) for it in document.text(section).split("\n")]
    quoted = "\n".join(it[1] for it in lines if it).strip()
    return quoted or document.text(section)


def _items(document: Document, key: str) -> tuple[str, ...]:
    section = document.find(lambda title: is_heading(title, key))
    return tuple(it.text for it in section.entries() if it.depth) if section else ()
