"""What an assignment should refer to, and not paste: five checks (seed 001, dispatch payload).

They look at the body's texts. What the sender's files hold, and what earlier dispatches of the work
said, is given to them.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

import msgspec

from batonbus_schemas import Body, Dispatch, Envelope, HandoffV1, Violation
from batonbus_schemas.envelope import ADHOC

SHARED_LIMIT = 400
"""Characters that a body may have in common with a file that it refers to."""

PASSAGE = 200
"""Characters from which on a paragraph that stands in two dispatches counts as repeated."""

_TURN = re.compile(
    r"""^[ \t>*_#<|\[-]*                            # quotes, lists, headings, chat markup
        (user|human|assistant|system|ai|agent|model|tool)
        [ \t*_\]|>]*:                               # Role:
      | <\|(?:im_start\|>)?[ \t]*(user|assistant|system)   # chat templates
      | "role"\s*:\s*"(user|assistant|system|tool)"        # exported messages
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_REPEATABLE = frozenset({"permission_boundary", "expected_evidence", "references_dir", "ref_cache"})
"""Fields that rightly say the same in every dispatch, or are references themselves."""


def find_pastes(
    envelope: Envelope,
    *,
    files: Mapping[str, str] | None = None,
    passages: Mapping[str, str] | None = None,
) -> list[Violation]:
    """All that the body pastes. `files` are texts by their path, of those that it refers to;
    `passages` are the digests of earlier dispatches of the work, each with its task."""
    found = [*_conversations(envelope.body), *_memories(envelope.body), *_foreign(envelope)]
    for path, text in body_texts(envelope.body):
        found += _history(path, text, files or {})
        found += _repeated(path, text, envelope, passages or {})
    return found


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
        turns = len(_TURN.findall(text))
        if turns >= 2:
            problem = f"pastes a conversation ({turns} turns): say what it decided"
            yield Violation(path=path, problem=problem)


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
    for index, reference in enumerate(body.refs):
        path = PurePosixPath(reference)
        parts = path.parts
        other = (
            envelope.work != ADHOC and parts[:1] == ("works",) and parts[1:2] != (envelope.work,)
        )
        if path.is_absolute() or ".." in parts or reference.startswith("~") or other:
            problem = f"refers to {reference!r}, outside of the work's folder and its context pack"
            yield Violation(path=f"$.body.refs[{index}]", problem=problem)


def _history(path: str, text: str, files: Mapping[str, str]) -> Iterator[Violation]:
    for name, whole in files.items():
        shared = _longest_shared(text, whole)
        if shared >= SHARED_LIMIT:
            problem = f"pastes {shared:,} characters that also stand in {name}: refer to it"
            yield Violation(path=path, problem=problem)


def _longest_shared(text: str, whole: str) -> int:
    """The length of the longest shared passage, if it has SHARED_LIMIT characters; else 0. Any
    such passage holds a whole block of half that length."""
    block, longest = SHARED_LIMIT // 2, 0
    for start in range(0, len(text) - block + 1, block):
        at = whole.find(text[start : start + block])
        while at >= 0:
            before = _common(text[:start][::-1], whole[:at][::-1])
            after = _common(text[start:], whole[at:])
            longest = max(longest, before + after)
            at = whole.find(text[start : start + block], at + 1)
    return longest if longest >= SHARED_LIMIT else 0


def _common(one: str, other: str) -> int:
    return next(
        (count for count, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _repeated(
    path: str, text: str, envelope: Envelope, passages: Mapping[str, str]
) -> Iterator[Violation]:
    if path.removeprefix("$.body.").split("[")[0].split(".")[0] in _REPEATABLE:
        return
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
    task, where nothing says what belongs together."""
    if envelope.task is None:
        return {}
    return {
        digest: envelope.task
        for path, text in body_texts(envelope.body)
        if path.removeprefix("$.body.").split("[")[0].split(".")[0] not in _REPEATABLE
        for digest in _digests(text)
    }


def _digests(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        plain = " ".join(paragraph.split())
        if len(plain) >= PASSAGE:
            yield hashlib.sha256(plain.encode(errors="replace")).hexdigest()[:16]
