"""From a text with seed 002's XML to a Dispatch or a TaskResult, or to all that is wrong."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage] - its only name
from msgspec import Struct, field

from batonbus_schemas.bodies import Dispatch, TaskResult
from batonbus_schemas.context import DetailLevel, Edge
from batonbus_schemas.envelope import ADHOC
from batonbus_schemas.tokens import TaskId, Text, Token
from batonbus_schemas.violations import find_violations
from batonbus_schemas.xml_source import Findings, excerpt, find_elements, refusal
from batonbus_schemas.xml_tree import (
    CONTEXT_TEXTS,
    DISPATCH_LISTS,
    DISPATCH_TEXTS,
    parse,
    path_of,
    text_of,
)

T = TypeVar("T")


class XmlContext(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An ancestor's context as XML shows it: a window entry without its distance; XML of others
    may not say which handoff it is from."""

    edge: Edge
    level: DetailLevel
    from_: Token = field(name="from")
    what: Text
    task: TaskId | None = None
    why: str | None = None
    caution: str | None = None
    incomplete: str | None = None
    handoff_id: UUID | None = None


class XmlDispatch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the XML of a dispatch says: for whom, about what, and what came before."""

    to: Token
    body: Dispatch
    work: Token = ADHOC
    task: TaskId | None = None
    window: tuple[XmlContext, ...] = ()


class Reading(Struct, Generic[T], frozen=True):
    """A value read from a text, and what was read otherwise than it was written."""

    value: T
    repairs: tuple[str, ...] = ()


def read_dispatch(text: str) -> Reading[XmlDispatch]:
    """The one dispatch in a text.

    A dispatch without a description has as its brief the first that it has of title, file, action,
    task and receiver. Raises XmlReadingError with all that is wrong.
    """
    return _read(text, "dispatch", XmlDispatch, _dispatch_document)


def read_result(
    text: str,
    *,
    expected_work: str | None = None,
    expected_task: str | None = None,
    expected_agent: str | None = None,
) -> Reading[TaskResult]:
    """The one task result in a text.

    Checks in `self-check` count as verification; where only the context handoff names an agent,
    that is the result's. Raises XmlReadingError with all that is wrong, also where the text names
    another work, task or agent than is expected; it may name none.
    """
    expected = {"work": expected_work, "task": expected_task, "agent": expected_agent}

    def document(root: Element, findings: Findings) -> dict[str, Any]:
        return _result_document(root, expected, findings)

    return _read(text, "task-result", TaskResult, document)


def _read(
    text: str, root: str, type_: type[T], document: Callable[[Element, Findings], dict[str, Any]]
) -> Reading[T]:
    """The one value in a text, though it may stand there more than once."""
    findings = Findings()
    values: list[T] = []
    for source in find_elements(text, root, findings):
        content = document(parse(source, findings), findings)
        for violation in find_violations(content, type_):
            findings.problem("invalid", violation.path, violation.problem)
        findings.check()
        values.append(msgspec.convert(content, type_))
    if len(values) > 1:
        findings.repair(f"<{root}> stood {len(values)} times, always the same")
    if any(value != values[0] for value in values):
        raise refusal("ambiguous", "$", f"{len(values)} differing <{root}> elements: give one")
    return Reading(values[0], tuple(dict.fromkeys(findings.repairs)))


def _dispatch_document(root: Element, findings: Findings) -> dict[str, Any]:
    top = _attributes(root, "to", "work", "task")
    own_task = _attributes(root, "task")
    stages = [own_task | stage for stage in _contexts(root, Edge.STAGE, findings)]
    tasks = _contexts(root.find("previous-results"), Edge.TASK, findings)
    body = _dispatch_body(root, findings)
    briefs = [body[name] for name in ("brief", "title", "task_file", "action")]
    briefs += [top.get("task", ""), top.get("to", "")]
    body["brief"] = next(filter(str.strip, briefs), "")
    return {**top, "body": body, "window": stages + tasks}


def _dispatch_body(root: Element, findings: Findings) -> dict[str, Any]:
    body: dict[str, Any] = {name: text_of(root.find(at)) for at, name in DISPATCH_TEXTS.items()}
    for path, name in DISPATCH_LISTS.items():
        body[name] = [text_of(it) for it in root.findall(path)]
    body["execution_mode"] = root.get("execution-mode", "full")
    body["ref_cache"] = _refs(root, findings)
    body["previous_results"] = [
        _attributes(it, "task", "status") | {"summary": text_of(it)}
        for it in root.findall("previous-results/result")
    ]
    hint = root.find("cache-hint")
    sections = "" if hint is None else hint.get("sections", "")
    body["cache_hint"] = [name.strip() for name in sections.split(",") if name.strip()]
    return body


def _contexts(box: Element | None, edge: Edge, findings: Findings) -> list[dict[str, Any]]:
    contexts: list[dict[str, Any]] = []
    for element in [] if box is None else box.findall("context-handoff"):
        context = _attributes(element, "from", "task") | _context_texts(element)
        if handoff := element.get("handoff"):
            context["handoff_id"] = handoff
        if level := element.get("detail-level"):
            context["level"] = level
        if level == DetailLevel.DROP.value:
            findings.repair("a context-handoff of level DROP left out")
        else:
            contexts.append({**context, "edge": edge.value})
    return contexts


def _result_document(
    root: Element, expected: Mapping[str, str | None], findings: Findings
) -> dict[str, Any]:
    handoff = root.find("context-handoff")
    _settle_agent(root, handoff, findings)
    _check_expected(root, expected, findings)
    checks = [*root.findall("verification/check"), *root.findall("self-check/check")]
    document: dict[str, Any] = {
        **_attributes(root, "status", "work", "task", "agent"),
        "summary": text_of(root.find("summary")),
        "files_changed": [
            _attributes(it, "action", "path") | {"description": text_of(it)}
            for it in root.findall("files-changed/file")
        ],
        "verification": [
            _attributes(it, "name", "status") | {"output": text_of(it)} for it in checks
        ],
        "notes": text_of(root.find("notes")),
        "ref_cache": _refs(root, findings),
    }
    if handoff is not None:
        document["context_handoff"] = _context_texts(handoff)
    return document


def _settle_agent(root: Element, handoff: Element | None, findings: Findings) -> None:
    """The agent of a result and of its context handoff are one: either may name it for both."""
    named = None if handoff is None else handoff.get("from")
    agent = root.get("agent")
    if named and agent and named != agent:
        findings.problem(
            "contradiction",
            "/task-result/context-handoff/@from",
            f"{excerpt(named)!r} hands on in a result of {excerpt(agent)!r}",
        )
    if named and not agent:
        root.set("agent", named)


def _check_expected(root: Element, expected: Mapping[str, str | None], findings: Findings) -> None:
    for name, wanted in expected.items():
        given = root.get(name)
        if given is None or wanted is None or given == wanted:
            continue
        if given.strip().casefold() == wanted.casefold():
            findings.repair(f"{name} {excerpt(given)!r} read as {wanted}")
            root.set(name, wanted)
        else:
            findings.problem(
                "contradiction",
                path_of(root, name),
                f"{excerpt(given)!r}, expected {wanted!r}",
            )


def _attributes(element: Element, *names: str) -> dict[str, Any]:
    """Those of the attributes that are there."""
    return {name: element.attrib[name] for name in names if name in element.attrib}


def _context_texts(element: Element) -> dict[str, Any]:
    """Those of the four fields that are there."""
    return {name: text_of(it) for name in CONTEXT_TEXTS if (it := element.find(name)) is not None}


def _refs(root: Element, findings: Findings) -> dict[str, str]:
    """The files in a ref-cache; unknown keys are kept, one key with two contents is a problem."""
    refs: dict[str, str] = {}
    for element in root.findall("ref-cache/ref"):
        key, content = element.get("key"), text_of(element)
        if key is None:
            findings.problem("invalid", path_of(element, "key"), "is missing")
        elif refs.setdefault(key, content) != content:
            findings.problem("ambiguous", path_of(element, "key"), f"{excerpt(key)!r} stands twice")
    return refs
