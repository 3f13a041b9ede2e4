"""What an assignment should refer to, and not paste: five checks (seed 001, dispatch payload).

They look at the body's texts. What the sender's files hold, and what earlier dispatches of the work
said, is given to them.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import PurePosixPath

import msgspec

from batonbus.rules.letters import lowered
from batonbus_schemas import Body, Dispatch, Envelope, HandoffV1, Violation
from batonbus_schemas.envelope import ADHOC

SHARED_LIMIT = 400
"""Characters that a body may have in common with a file that it refers to."""

PASSAGE = 200
"""Characters from which on a paragraph that stands in two dispatches counts as repeated."""

_ASKING = ("user", "human", "you", "사용자", "пользователь", "ユーザー", "用户")
_ANSWERING = (
    *("assistant", "ai", "agent", "model", "claude", "chatgpt", "gemini", "codex"),
    *("어시스턴트", "ассистент", "アシスタント", "助手"),
)
_KEYS = frozenset({"agent", "model"})
"""What stands before a colon in programs and configurations, beside `user`."""

_SERVICES = _KEYS | {"claude", "chatgpt", "gemini", "codex"}
"""What does so in small letters."""

_WHO = f"(?P<who>{'|'.join((*_ASKING, *_ANSWERING))})"
_LABEL = re.compile(  # quotes, lists, markup, a time; then `Role:`
    r"[^\w\n]{0,24}(?:\d[\d:.,/tz -]{0,24}[^\w\n]{0,8})?"
    rf"{_WHO}[ \t*_\]|>]{{0,8}}(?:\([^()\n]{{1,40}}\)[ \t*_]{{0,8}})?[:\uff1a]",
)
_HEADING = re.compile(rf"^\#{{1,6}}[ \t]+{_WHO}[ \t]*$", re.MULTILINE)
_EXPORTED = re.compile(rf"(?:role[\"']?|[\"']type[\"'])\s?[:=]\s?[\"']?{_WHO}\b")
"""Messages, or lines of them, in JSON, YAML or XML."""

_TEMPLATE = re.compile(
    r"<\|(?:im_start\|>|start_header_id\|>)?[ \t]*(?:user|assistant|system)\b|\[/?inst\]"
)
"""How the templates of chats begin a turn: nothing else looks so."""

_ROLES = (*_ASKING, *_ANSWERING, "system", "inst]")

_ELSEWHERE = re.compile(
    r"~|\$|%\w+%|file:|(?!https?:)[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:|[a-z]:[\\/]|\\\\",
    re.IGNORECASE,
)
"""How a reference begins that no folder of the work holds, on any system."""

_BEFORE_LINES = re.compile(r"^[ \t>|]+", re.MULTILINE)

_REPEATABLE = frozenset(
    {"permission_boundary", "expected_evidence", "references_dir", "ref_cache", "previous_results"}
)
"""Fields that rightly say the same in every dispatch, or what a file says too: a boundary and the
evidence name the files that the plan declares, a previous result is told to each task that needs
it, the others are references themselves."""


def find_pastes(
    envelope: Envelope, *, passages: Mapping[str, str] | None = None
) -> list[Violation]:
    """All that the body pastes. `passages` are the digests of earlier dispatches of the work, each
    with its task."""
    found = [*_conversations(envelope.body), *_memories(envelope.body), *_foreign(envelope)]
    if passages:
        for path, text in _own_texts(envelope.body):
            found += _repeated(path, text, envelope, passages)
    return found


def find_copies(body: Body, files: Mapping[str, str]) -> list[Violation]:
    """Where the body pastes what also stands in a file that it refers to: `files` are their texts
    by path. A copy that is quoted or indented is one, too."""
    plain = {name: _plain(whole) for name, whole in files.items()}
    return [
        Violation(
            path=path,
            problem=f"pastes {shared:,} characters that also stand in {name}: refer to it",
        )
        for path, text in _own_texts(body)
        for name, whole in files.items()
        if (shared := _shared(text, whole) or _shared(_plain(text), plain[name]))
    ]


def _plain(text: str) -> str:
    """Without ends of lines of other systems, and what a quotation puts before each line."""
    return _BEFORE_LINES.sub("", text.replace("\r\n", "\n"))


def named_files(body: Body) -> tuple[str, ...]:
    """The files that a dispatch refers to, by the relative paths that it names."""
    if not isinstance(body, Dispatch):
        return ()
    names = (body.task_file, body.plan_file, *body.refs)
    return tuple(dict.fromkeys(it for it in names if it and not _is_elsewhere(it)))


def _own_texts(body: Body) -> Iterator[tuple[str, str]]:
    """The texts of a dispatch that should be its own; other bodies are no dispatches."""
    if isinstance(body, Dispatch):
        for name, value in msgspec.to_builtins(body).items():
            if name not in _REPEATABLE:
                yield from _texts(value, f"$.body.{name}")


def body_texts(body: Body) -> Iterator[tuple[str, str]]:
    """Every text of a body with its path."""
    yield from _texts(msgspec.to_builtins(body), "$.body")


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType] - builtins
            yield from _texts(item, f"{path}.{key}")  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield from _texts(item, f"{path}[{index}]")  # pyright: ignore[reportUnknownArgumentType]


def _conversations(body: Body) -> Iterator[Violation]:
    for path, text in body_texts(body):
        if turns := _turns(text):
            problem = f"pastes a conversation ({turns} turns): say what it decided"
            yield Violation(path=path, problem=problem)


def _turns(text: str) -> int:
    """The turns of a conversation; 0 where there is none. Both sides speak, for `user:` alone may
    be a key of a configuration, or one side again and again under its capitalized name."""
    lower = lowered(text)
    if not any(map(lower.__contains__, _ROLES)):
        return 0
    if "<|" in lower or "inst]" in lower:
        templates = len(_TEMPLATE.findall(lower))
        if templates > 1:
            return templates
    labels = list(_labels(text, lower))
    named = Counter(it for it in labels if it.istitle() and it.lower() not in _KEYS)
    if any(count > 1 for count in named.values()):
        return len(labels)
    headings = [it["who"] for it in _HEADING.finditer(lower)] if "#" in lower else []
    headings = [it for it in headings if it not in _KEYS]
    is_exported = "role" in lower or '"type"' in lower or "'type'" in lower
    exported = [it["who"] for it in _EXPORTED.finditer(lower)] if is_exported else []
    exported = [it for it in exported if it != "agent"]
    for said in ([it for it in labels if it not in _SERVICES], headings, exported):
        speakers = {it.lower() for it in said}
        if not speakers.isdisjoint(_ASKING) and not speakers.isdisjoint(_ANSWERING):
            return len(said)
    return 0


def _labels(text: str, lower: str) -> Iterator[str]:
    """Who is named before a colon, as it is spelled."""
    at = 0
    for line in lower.split("\n"):
        if (":" in line or "\uff1a" in line) and (match := _LABEL.match(line)):
            start, end = match.span("who")
            yield text[at + start : at + end]
        at += len(line) + 1


def _memories(body: Body) -> Iterator[Violation]:
    if not isinstance(body, HandoffV1):
        return
    for index, memory in enumerate(body.contract.bundle.memory):
        if memory.summary.strip() and not memory.provenance.strip():
            path = f"$.body.document.bundle.memory[{index}].provenance"
            problem = "is missing: a memory without its source may be stale, name where it is from"
            yield Violation(path=path, problem=problem)


def _foreign(envelope: Envelope) -> Iterator[Violation]:
    """References out of the work's folder and the context pack. Those are relative paths; whatever
    climbs out of them, or names another place, is private to somebody else."""
    body = envelope.body
    if not isinstance(body, Dispatch):
        return
    named = {f"refs[{index}]": it for index, it in enumerate(body.refs)}
    named |= {"task_file": body.task_file, "plan_file": body.plan_file}
    for field, reference in named.items():
        parts = PurePosixPath(reference.strip().replace("\\", "/")).parts
        # Some file systems make no difference of case.
        is_work = "".join(parts[:1]).lower() == "works"
        other = envelope.work != ADHOC and is_work and parts[1:2] != (envelope.work,)
        if other or _is_elsewhere(reference):
            problem = f"refers to {reference!r}, outside of the work's folder and its context pack"
            yield Violation(path=f"$.body.{field}", problem=problem)


def _is_elsewhere(reference: str) -> bool:
    reference = reference.strip()
    path = PurePosixPath(reference.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or _ELSEWHERE.match(reference) is not None


def _shared(text: str, whole: str) -> int:
    """The length of the first passage in `whole` that stands in `text` too, if it has SHARED_LIMIT
    characters; else 0. Each place of both is looked at once, whatever stands there."""
    size = SHARED_LIMIT
    known = {hash(text[at : at + size]) for at in range(len(text) - size + 1)}
    if not known:
        return 0
    for at in range(len(whole) - size + 1):
        passage = whole[at : at + size]
        if hash(passage) in known and (start := text.find(passage)) >= 0:
            further = zip(text[start + size :], whole[at + size :], strict=False)
            return size + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], further))
    return 0


def _repeated(
    path: str, text: str, envelope: Envelope, passages: Mapping[str, str]
) -> Iterator[Violation]:
    for digest in _digests(text):
        task = passages.get(digest)
        if task is not None and task != envelope.task:
            problem = (
                f"repeats a passage of the dispatch of {task}: put it into a file, refer to it"
            )
            yield Violation(path=path, problem=problem)
            return


def passages_of(envelope: Envelope) -> dict[str, str]:
    """The digests of a dispatch's long passages, for `find_pastes` on later ones; none outside of a
    task of a work, where nothing says what belongs together."""
    if envelope.task is None or envelope.work == ADHOC:
        return {}
    return {
        digest: envelope.task for _, text in _own_texts(envelope.body) for digest in _digests(text)
    }


def _digests(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        plain = " ".join(paragraph.split())
        if len(plain) >= PASSAGE:
            yield hashlib.sha256(plain.encode(errors="replace")).hexdigest()[:16]
