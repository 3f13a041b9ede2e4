"""From an element's source to a tree with canonical names: the grammar of seed 002 as a table.

The parser is hardened: no DTD, no entities but XML's own five, no network, no huge trees. What it
refuses is repaired once, by taking bare `&` and `<` in text as text, and parsed again.
"""

import re
from collections import Counter
from typing import NamedTuple

from lxml import etree
from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage] - its only name

from batonbus_schemas.xml_source import (
    XML_SPACE,
    Findings,
    XmlReadingError,
    carriable,
    excerpt,
    refusal,
)

SPACE = "{http://www.w3.org/XML/1998/namespace}space"
"""`xml:space="preserve"`: the white space around an element's text belongs to it."""


class _Shape(NamedTuple):
    """Names that an element may have in it. A child with `*` may stand more than once; no
    children at all (None) means text."""

    attributes: str = ""
    children: str | None = None


GRAMMAR: dict[str, _Shape] = {
    "dispatch": _Shape(
        "to work task execution-mode",
        "ref-cache references-dir context task-spec permission-boundary expected-evidence"
        " attention context-pack skills references context-handoff* previous-results cache-hint",
    ),
    "ref-cache": _Shape("", "ref*"),
    "context": _Shape("", "project language plan-file"),
    "task-spec": _Shape("", "file title action description"),
    "expected-evidence": _Shape("", "evidence*"),
    "skills": _Shape("", "skill*"),
    "references": _Shape("", "reference*"),
    "previous-results": _Shape("", "result* context-handoff*"),
    "cache-hint": _Shape("sections", ""),
    "task-result": _Shape(
        "work task agent status",
        "summary files-changed verification self-check notes context-handoff ref-cache",
    ),
    "files-changed": _Shape("", "file*"),
    "verification": _Shape("", "check*"),
    "self-check": _Shape("", "check*"),
    "context-handoff": _Shape("from task detail-level handoff", "what why caution incomplete"),
    "ref": _Shape("key"),
    "file": _Shape("action path"),
    "check": _Shape("name status"),
    "result": _Shape("task status"),
}
"""Elements with attributes or children; all the others that are named here hold text."""

DISPATCH_TEXTS = {
    "references-dir": "references_dir",
    "context/project": "project",
    "context/language": "language",
    "context/plan-file": "plan_file",
    "task-spec/file": "task_file",
    "task-spec/title": "title",
    "task-spec/action": "action",
    "task-spec/description": "brief",
    "permission-boundary": "permission_boundary",
    "attention": "attention",
    "context-pack": "context_pack",
}
"""Where each text of a dispatch stands, in the order in which it is written."""

DISPATCH_LISTS = {
    "expected-evidence/evidence": "expected_evidence",
    "skills/skill": "skills",
    "references/reference": "refs",
}

CONTEXT_TEXTS = ("what", "why", "caution", "incomplete")

_ROLES = ("specifier", "planner", "scheduler", "builder", "verifier", "committer")
_KNOWN_VALUES = {
    "to": _ROLES,
    "from": _ROLES,
    "agent": _ROLES,
    "execution-mode": ("direct", "pipeline", "full"),
    "detail-level": ("FULL", "SUMMARY", "DROP"),
    "status": ("PASS", "FAIL", "SKIP", "N/A"),
    "action": ("created", "modified", "deleted", "implement", "verify", "commit", "plan", "route"),
}
"""Values, by attribute or text element, that are known in any letter case."""

_BOXES = {
    name: {child.rstrip("*") for child in shape.children.split()}
    for name, shape in GRAMMAR.items()
    if shape.children is not None
}
_TEXTS = set[str]().union(*_BOXES.values()) - _BOXES.keys()
_SIBLINGS = {
    name: set[str]().union(*(names for names in _BOXES.values() if name in names))
    for name in _TEXTS
}

_TASK = re.compile(r"(?:(?P<work>WORK-\d+)[-_/. ]+)?(?P<task>TASK-\d+)", re.IGNORECASE)
_OPEN_TEXT = re.compile(
    rf"<(?P<name>{'|'.join(sorted(_TEXTS))})(?:\s(?:[^<>\"']|\"[^\"<]*+\"|'[^'<]*+')*+)?+>",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?([A-Za-z-]+)(?=[\s/>])")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9A-Fa-f]+);)")


def parse(source: str, findings: Findings) -> Element:
    """The tree of an element that `find_elements` found: canonical names, nothing unknown in it.

    Raises XmlReadingError where it is not well-formed even after the repair. Other problems, such
    as a name that stands twice, are left in `findings`.
    """
    try:
        element = _parsed(source)
    except XmlReadingError:
        element = _parsed(_with_bare_text_escaped(source))
        findings.repair("bare & or < taken as text")
    element.tag = _name(element)
    _fold(element, findings)
    return element


def text_of(element: Element | None) -> str:
    """An element's text, without the white space around it unless the element says that it counts
    (a `ref` is a file's content, where it always does); nothing where there is no element."""
    if element is None:
        return ""
    text = element.text or ""
    counts = element.tag == "ref" or element.get(SPACE) == "preserve"
    return text if counts else text.strip(XML_SPACE)


def set_text(element: Element, text: str) -> None:
    """Give an element the text that `text_of` reads again exactly."""
    element.text = carriable(text)
    if element.tag != "ref" and text != text.strip(XML_SPACE):
        element.set(SPACE, "preserve")


def path_of(element: Element, attribute: str) -> str:
    """Where an attribute stands, as an XPath."""
    return f"{element.getroottree().getpath(element)}/@{attribute}"


def _parser() -> etree.XMLParser:
    return etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _parsed(source: str) -> Element:
    """The tree of a source, or XmlReadingError where that is not well-formed or marks text up."""
    try:
        element = etree.fromstring(source.encode(), _parser())
    except etree.XMLSyntaxError as error:
        raise refusal("invalid", "$", f"not well-formed XML: {excerpt(error.msg or '')}") from None
    for inner in element.iter():
        if len(inner) and _name(inner) in _TEXTS:
            raise refusal("invalid", "$", f"<{_name(inner)}> holds elements, not text alone")
    return element


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2].lower()


def _with_bare_text_escaped(source: str) -> str:
    """The source with every `<` in a text element, and every `&` that begins no entity, escaped.

    A `<` between elements is left to the parser to refuse: to take it as text could hide an
    element. So is `]]>`, which may be where a CDATA section was meant to go on.
    """
    pieces: list[str] = []
    at = 0
    while opened := _OPEN_TEXT.search(source, at):
        pieces.append(source[at : opened.end()])
        at = opened.end()
        if opened.group().endswith("/>"):
            continue
        closed = re.compile(rf"</{opened['name']}\s*>", re.IGNORECASE).search(source, at)
        if closed is None:
            break
        pieces.append(_escaped_text(source[at : closed.start()], opened["name"]))
        pieces.append(f"</{opened['name']}>")
        at = closed.end()
    pieces.append(source[at:])
    return _BARE_AMPERSAND.sub("&amp;", "".join(pieces))


def _escaped_text(content: str, name: str) -> str:
    """Text with each `<` escaped. A tag that may stand beside the element is no text in it: the
    element was meant to end before, and a check that failed must not vanish in another's output."""
    for tag in _TAG.finditer(content):
        if tag[1].lower() in _SIBLINGS[name.lower()]:
            raise refusal(
                "invalid", "$", f"{tag[0]}> stands in <{name}>: close that first, or write &lt;"
            )
    return content.replace("<", "&lt;")


def _fold(element: Element, findings: Findings) -> None:
    """Give an element and all in it canonical names and values; take out what is unknown."""
    tag = str(element.tag)
    shape = GRAMMAR.get(tag, _Shape())
    _fold_attributes(element, shape.attributes.split(), findings)
    if shape.children is not None:
        _leave_stray_text_out(element, findings)
        _fold_children(element, shape.children.split(), findings)
    elif tag in _KNOWN_VALUES:
        set_text(element, _folded(tag, text_of(element), findings))


def _fold_attributes(element: Element, known: list[str], findings: Findings) -> None:
    given = {str(key): str(value) for key, value in element.attrib.items()}
    element.attrib.clear()
    for key, value in given.items():
        name = key.rpartition("}")[2].lower()
        if key == SPACE:
            element.set(SPACE, value)
        elif name not in known:
            findings.repair(f"unknown attribute {excerpt(key)} of <{element.tag}> left out")
        elif name in element.attrib:
            findings.problem("ambiguous", path_of(element, name), "stands twice")
        else:
            if key != name:
                findings.repair(f"attribute {key} read as {name}")
            element.set(name, _folded(name, value, findings))
    if "task" in element.attrib:
        _fold_task(element, findings)


def _folded(name: str, value: str, findings: Findings) -> str:
    """A known value in its canonical letter case; any other as it is."""
    wanted = value.strip().casefold()
    known = next((it for it in _KNOWN_VALUES.get(name, ()) if it.casefold() == wanted), value)
    if known != value:
        findings.repair(f"{name} {excerpt(value)!r} read as {known}")
    return known


def _fold_task(element: Element, findings: Findings) -> None:
    given = element.get("task", "")
    parts = _TASK.fullmatch(given.strip())
    if parts is None:
        return
    task = parts["task"].upper()
    if parts["work"]:
        findings.problem(
            "invalid",
            path_of(element, "task"),
            f"{excerpt(given)!r}: the WORK prefix must not be included: write"
            f' work="{parts["work"].upper()}" task="{task}"',
        )
    elif task != given:
        findings.repair(f"task {excerpt(given)!r} read as {task}")
    element.set("task", task)


def _leave_stray_text_out(element: Element, findings: Findings) -> None:
    stray = " ".join(
        text.strip() for text in (element.text, *(it.tail for it in element)) if text
    ).strip()
    if stray:
        findings.repair(f"text directly in <{element.tag}> left out: {excerpt(stray)!r}")


def _fold_children(element: Element, known: list[str], findings: Findings) -> None:
    for child in list(element):
        name, written = _name(child), str(child.tag).rpartition("}")[2]
        if name not in known and f"{name}*" not in known:
            inner = excerpt(" ".join("".join(map(str, child.itertext())).split()))
            findings.repair(f"unknown <{excerpt(written)}> in <{element.tag}> left out: {inner!r}")
            element.remove(child)
            continue
        if name != written:
            findings.repair(f"<{written}> read as <{name}>")
        child.tag = name
    for name, times in Counter(str(child.tag) for child in element).items():
        if times > 1 and f"{name}*" not in known:
            findings.problem("ambiguous", f"/{element.tag}/{name}", f"stands {times} times")
    for child in element:
        _fold(child, findings)
