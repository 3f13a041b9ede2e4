"""The payload budget: an assignment's text is short, and what is too long becomes a reference.

Source: seed 001, dispatch payload budget, with the shrink order of the design (section 8): `what`
last of all, and never `caution`, the permission boundary or the expected evidence. A contract v1
document has its own lists in their place, the least needed first. An inline ref-cache is counted
apart (section 9).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from batonbus.rules.errors import BatonbusError
from batonbus.rules.pastes import body_texts
from batonbus.rules.policy import Budget, Policy
from batonbus_schemas import (
    AgentCard,
    DetailLevel,
    Dispatch,
    Envelope,
    HandoffV1,
    TaskResult,
    TextForm,
    TextSize,
    WindowEntry,
    render,
)
from batonbus_schemas.sections import sections

BRIEF_STEPS = (320, 240, 160)
"""Characters to which a brief is cut, one after the other (VALP's ladder, seed 001)."""

WHAT_STEPS = (320, 160)
"""Characters to which the `what` of FULL entries is cut where nothing else helps, before it becomes
a reference: who wrote it is gone, so refusing would end the line (decisions/payload-budget.md)."""

REFERENCES = ".batonbus/references"
"""Folder, relative to where the agent works, in which its runtime writes what was taken out."""

CONTRACT_LISTS = {
    "memory": ("Memory", "key"),
    "artifacts": ("Artifacts", "name"),
    "completed_steps": ("Completed steps", None),
    "decisions": ("Decisions", "decision"),
    "open_questions": ("Open questions", None),
}
"""What of a contract v1 document may become a reference, in this order: its heading in the text,
and the key of an item that says where it is (None: an item is a text)."""

CountTokens = Callable[[str], int]


class Reference(Struct, frozen=True):
    """A text that was taken out of an assignment, and the path at which the agent finds it."""

    path: str
    text: str


class Fitted(Struct, frozen=True, kw_only=True):
    """An assignment inside its budget: its text, its size, the steps that shortened it, and what
    they took out."""

    text: str
    characters: int
    tokens: int
    steps: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()


class OverBudgetError(BatonbusError):
    """An assignment is too long for its receiver, also when all that may be taken out is."""

    def __init__(self, fitted: Fitted, budget: Budget, field: str, length: int) -> None:
        self.fitted, self.budget, self.field, self.length = fitted, budget, field, length
        super().__init__(
            f"the assignment has {fitted.characters:,} characters ({fitted.tokens:,} tokens), "
            f"limit {budget.characters:,} ({budget.tokens:,}); the longest field that may not be "
            f"left out is {field} with {length:,}: put its text into a file and name the file"
        )


class _Draft(Struct, frozen=True):
    """An assignment on its way through the steps."""

    envelope: Envelope
    window: tuple[WindowEntry, ...]
    references: tuple[Reference, ...] = ()


_Step = tuple[str, Callable[[_Draft], _Draft]]


def reference_tokens(text: str) -> int:
    """The portable estimate of seed 001: `ceil(characters / 4)`."""
    return -(-count_characters(text) // 4)


def count_characters(text: str) -> int:
    """Unicode code points, a line end counting as one."""
    return len(text.replace("\r\n", "\n"))


def fit(
    envelope: Envelope,
    window: Sequence[WindowEntry],
    budget: Budget,
    form: TextForm = "markdown",
    count_tokens: CountTokens = reference_tokens,
) -> Fitted:
    """The assignment as text of a form, within `budget`. Steps are taken in their order, only until
    it fits, and only where they make it shorter; each is named. `count_tokens` counts exactly where
    an agent can.

    Raises OverBudgetError where it is still too long, ValueError where there is no such XML.
    """
    draft = _Draft(envelope, tuple(window))
    fitted = _measure(draft, (), form, count_tokens)
    for name, step in _steps(draft):
        if _fits(fitted, budget):
            break
        changed = step(draft)
        if changed is not draft:
            shorter = _measure(changed, (*fitted.steps, name), form, count_tokens)
            if shorter.characters < fitted.characters:
                draft, fitted = changed, shorter
    if not _fits(fitted, budget):
        field, length = _longest(draft)
        raise OverBudgetError(fitted, budget, field, length)
    return fitted


def measure(
    envelope: Envelope,
    window: Sequence[WindowEntry],
    policy: Policy,
    listening: Sequence[AgentCard],
) -> TextSize:
    """The size of an assignment for its addressee, in the longest of the forms that its live agents
    read (Markdown where none is known). `listening` are their cards: a role has its row's limits,
    and an agent that is addressed by its id its own.

    Raises OverBudgetError, ValueError.
    """
    addressed = next((it for it in listening if it.id == envelope.to), None)
    if addressed is None:
        row, limits = policy.row_of(envelope.to), policy.limits_of_role(envelope.to)
    else:
        row, limits = policy.row_of(addressed.role), policy.limits_of(addressed)
    budget = limits.budget
    fits: dict[TextForm, Fitted] = {
        it: fit(envelope, window, budget, it) for it in _forms(listening)
    }
    form, longest = max(fits.items(), key=lambda it: it[1].characters)
    return TextSize(
        row=row,
        form=form,
        max_characters=budget.characters,
        max_tokens=budget.tokens,
        characters=longest.characters,
        tokens=longest.tokens,
        steps=longest.steps,
    )


def _forms(listening: Sequence[AgentCard]) -> set[TextForm]:
    return {it.text_form for it in listening} if listening else {"markdown"}


def _fits(fitted: Fitted, budget: Budget) -> bool:
    return fitted.characters <= budget.characters and fitted.tokens <= budget.tokens


def _measure(
    draft: _Draft, steps: tuple[str, ...], form: TextForm, count_tokens: CountTokens
) -> Fitted:
    text = render(draft.envelope, draft.window, form)
    counted, body = text, draft.envelope.body
    if form == "xml" and isinstance(body, Dispatch | TaskResult) and body.ref_cache:
        # Markdown names the cached files; XML holds them.
        without = replace(draft.envelope, body=replace(body, ref_cache={}))
        counted = render(without, draft.window, form)
    return Fitted(
        text=text,
        characters=count_characters(counted),
        tokens=count_tokens(counted),
        steps=steps,
        references=draft.references,
    )


def _steps(draft: _Draft) -> Iterator[_Step]:
    """What may be taken out, in this order. Farther entries come first."""
    body = draft.envelope.body
    if isinstance(body, Dispatch):
        for limit in BRIEF_STEPS:
            yield f"brief cut to {limit} characters", _cut_brief(body.brief, limit)
        yield "attention by reference", _refer_attention
        yield "skills by reference", _refer_skills
    if isinstance(body, HandoffV1):
        for name in CONTRACT_LISTS:
            yield f"{name} by reference", _refer_list(name)
    farthest_first = sorted(range(len(draft.window)), key=lambda it: -draft.window[it].distance)
    full = [it for it in farthest_first if draft.window[it].level is DetailLevel.FULL]
    for index in farthest_first:
        if draft.window[index].level is DetailLevel.SUMMARY:
            yield f"summary of {_name(draft.window[index])} by reference", _refer(index, "what")
    for field in ("why", "incomplete"):
        for index in full:
            yield f"{field} of {_name(draft.window[index])} by reference", _refer(index, field)
    for limit in WHAT_STEPS:
        for index in full:
            entry = draft.window[index]
            yield f"what of {_name(entry)} cut to {limit} characters", _cut_what(index, limit)
    for index in full:
        yield f"what of {_name(draft.window[index])} by reference", _refer(index, "what")


def _cut_brief(whole: str, limit: int) -> Callable[[_Draft], _Draft]:
    def cut(draft: _Draft) -> _Draft:
        if len(whole) <= limit:
            return draft
        reference = _reference(draft, "brief", whole)
        kept = whole[:limit].rstrip()
        return _with_body(draft, reference, brief=f"{kept}…\n\nAll of it: {reference.path}")

    return cut


def _refer_attention(draft: _Draft) -> _Draft:
    body = draft.envelope.body
    if not isinstance(body, Dispatch) or not body.attention:
        return draft
    reference = _reference(draft, "attention", body.attention)
    return _with_body(draft, reference, attention=_see(reference))


def _refer_skills(draft: _Draft) -> _Draft:
    body = draft.envelope.body
    if not isinstance(body, Dispatch) or not body.skills:
        return draft
    reference = _reference(draft, "skills", "\n".join(body.skills))
    return _with_body(draft, reference, skills=(_see(reference),))


def _refer_list(name: str) -> Callable[[_Draft], _Draft]:
    heading, key = CONTRACT_LISTS[name]

    def refer(draft: _Draft) -> _Draft:
        body = draft.envelope.body
        text = dict(sections(body)).get(heading, "")
        if not isinstance(body, HandoffV1) or not text:
            return draft
        reference = _reference(draft, name, text)
        items = [{key: _see(reference)} if key else _see(reference)]
        bundle = body.document["bundle"]
        holder = bundle["progress"] if name == "completed_steps" else bundle
        holder = {**holder, name: items}
        bundle = {**bundle, "progress": holder} if name == "completed_steps" else holder
        return _with_body(draft, reference, document={**body.document, "bundle": bundle})

    return refer


def _with_body(draft: _Draft, reference: Reference, **fields: Any) -> _Draft:
    envelope = replace(draft.envelope, body=replace(draft.envelope.body, **fields))
    return replace(draft, envelope=envelope, references=_added(draft, reference))


def _refer(index: int, field: str) -> Callable[[_Draft], _Draft]:
    def refer(draft: _Draft) -> _Draft:
        entry = draft.window[index]
        name = f"{field}-{str(entry.handoff_id)[:8]}"
        text = _whole(draft, name, getattr(entry, field) or "")
        reference = _reference(draft, name, text)
        if not text:
            return draft
        window = list(draft.window)
        window[index] = replace(entry, **{field: _see(reference)})
        return replace(draft, window=tuple(window), references=_added(draft, reference))

    return refer


def _cut_what(index: int, limit: int) -> Callable[[_Draft], _Draft]:
    def cut(draft: _Draft) -> _Draft:
        entry = draft.window[index]
        name = f"what-{str(entry.handoff_id)[:8]}"
        whole = _whole(draft, name, entry.what)
        if len(whole) <= limit:
            return draft
        reference = _reference(draft, name, whole)
        window = list(draft.window)
        kept = whole[:limit].rstrip()
        window[index] = replace(entry, what=f"{kept}…\nAll of it: {reference.path}")
        return replace(draft, window=tuple(window), references=_added(draft, reference))

    return cut


def _whole(draft: _Draft, name: str, text: str) -> str:
    """The text before any step took something out of it."""
    path = _reference(draft, name, "").path
    return next((it.text for it in draft.references if it.path == path), text)


def folder_of(handoff_id: UUID) -> str:
    """The name of its folder: 48 bits of its hash, for an id may begin with its moment (UUIDv7)."""
    return hashlib.sha256(handoff_id.bytes).hexdigest()[:12]


def references_of(handoff_id: UUID) -> str:
    """The folder of one handoff's references, relative to where its agent works: what stands there
    is needed for as long as the handoff is open."""
    return f"{REFERENCES}/{folder_of(handoff_id)}"


def _reference(draft: _Draft, name: str, text: str) -> Reference:
    return Reference(f"{references_of(draft.envelope.id)}/{name}.md", text)


def _added(draft: _Draft, reference: Reference) -> tuple[Reference, ...]:
    others = [it for it in draft.references if it.path != reference.path]
    return (*others, reference)


def _see(reference: Reference) -> str:
    return f"see {reference.path}"


def _name(entry: WindowEntry) -> str:
    return f"{entry.task or entry.from_} ({str(entry.handoff_id)[:8]})"


def _longest(draft: _Draft) -> tuple[str, int]:
    """The longest text that is left, by its path."""
    own = body_texts(draft.envelope.body)
    texts = [it for it in own if not it[0].startswith("$.body.ref_cache")]
    for index, entry in enumerate(draft.window):
        fields = ("what", "why", "caution", "incomplete")
        texts += [(f"$.window[{index}].{it}", getattr(entry, it) or "") for it in fields]
    path, text = max(texts, key=lambda it: len(it[1]))
    return path, len(text)
