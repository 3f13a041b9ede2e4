"""From what a command printed to a result, or to the reasons why it is none. Nothing here runs.

Free text stands for no result, in no role: a pipeline that took it for a PASS would commit what
nobody has claimed to be done.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from batonbus import BatonbusError
from batonbus_agents.excerpt import shortened
from batonbus_agents.runtimes.assignment import Assignment
from batonbus_agents.works.words import is_nothing
from batonbus_schemas import ContextHandoff, InvalidMessageError, TaskResult, decode, encode
from batonbus_schemas.xml import XmlReadingError, read_result

PROTOCOL = """\
## How to answer

End your answer with exactly one element of this shape. PASS is for what you have done and checked
yourself; say FAIL where anything is missing. Name every file that you changed.

<task-result status="PASS|FAIL">
  <summary>1-2 lines</summary>
  <files-changed>
    <file action="created|modified|deleted" path="path/in/the/project">what changed in it</file>
  </files-changed>
  <verification>
    <check name="what you ran" status="PASS|FAIL|N/A">its output</check>
  </verification>
  <context-handoff detail-level="FULL">
    <what>2-5 lines: what you did</what>
    <why>2-4 lines: why in this way</why>
    <caution>1-3 lines: what the next ones must know</caution>
    <incomplete>1-2 lines: what is left, or None</incomplete>
  </context-handoff>
</task-result>
"""
"""What a command is told about its answer (seed 002, section 2, with seed 000's context)."""

QUOTE_LIMIT = 200
"""Characters of an answer, or of what was wrong with it, that an error quotes."""

RETURNED_LIMIT = 6_000
"""Bytes of an unreadable answer that are given back with the request to write it again."""

SHORTEST_ANSWER = 500
"""Characters that an answer needs at least; none shorter is asked for."""

_FENCE = re.compile(r"\A```(?:json)?\s*(\{.*\})\s*```\Z", re.DOTALL)


class RuntimeAnswerError(BatonbusError):
    """An agent's command gave no answer that can be used."""

    def __init__(self, agent: str, reasons: Sequence[str]) -> None:
        self.agent, self.reasons = agent, tuple(quoted(it) for it in reasons)
        super().__init__(f"{agent} gave no usable answer: {quoted('; '.join(reasons))}")


class Unreadable(Struct, frozen=True):
    """Why an answer is no result; `too_long`: it was cut off, or is more than a message holds."""

    reasons: tuple[str, ...]
    too_long: bool = False


def read_answer(text: str, assignment: Assignment) -> TaskResult | Unreadable:
    """The result in a command's output: the XML of seed 002 anywhere in it, or a TaskResult as
    JSON that is all of it.

    What it leaves out of work, task and agent is the assignment's, and a missing context handoff
    says what the summary says. A result without either, for another task, or larger than a message
    is unreadable.
    """
    found = _FENCE.match(text.strip())
    source = found[1] if found else text.strip()
    if not source:
        return Unreadable(("it is empty",))
    try:
        read = _read_json if source.startswith("{") else _read_xml
        result = read(source, assignment)
        if reasons := tuple(_objections(result, assignment)):
            return Unreadable(reasons)
        result = _completed(result, assignment)
        encode(result)
    except InvalidMessageError as error:
        return _unreadable(error)
    return result


def reformat_request(answer: str, unreadable: Unreadable) -> str:
    """What a command is asked after an answer that could not be read: the same once more."""
    reasons = quoted("\n".join(f"- {it}" for it in unreadable.reasons), 2_000)
    parts = [
        f"Your last answer could not be read:\n\n{reasons}",
        "Do no further work and change no file. Write the same answer again, in the shape below.",
        PROTOCOL.strip(),
        f"Your last answer was:\n\n{shortened(answer, RETURNED_LIMIT)}",
    ]
    if unreadable.too_long:
        target = max(len(answer) // 2, SHORTEST_ANSWER)
        parts.insert(
            2,
            f"It was truncated at {len(answer):,} characters, or too long: "
            f"use at most {target:,} characters in all.",
        )
    return "\n\n".join(parts) + "\n"


def quoted(text: str, limit: int = QUOTE_LIMIT) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _read_xml(source: str, assignment: Assignment) -> TaskResult:
    return read_result(
        source,
        expected_work=assignment.work,
        expected_task=assignment.task or None,
        expected_agent=assignment.role,
    ).value


def _read_json(source: str, _assignment: Assignment) -> TaskResult:
    return decode(source.encode(errors="replace"), TaskResult)


def _objections(result: TaskResult, assignment: Assignment) -> Iterator[str]:
    expected = (
        ("work", result.work, assignment.work),
        ("task", result.task, assignment.task),
        ("agent", result.agent, assignment.role),
    )
    for name, given, wanted in expected:
        if given and wanted and given != wanted:
            yield f"{name} is {quoted(given, 60)!r}, expected {wanted!r}"
    context = result.context_handoff
    if context is not None and is_nothing(context.what):
        yield f"the context-handoff's what is {quoted(context.what, 60)!r}: say what was done"
    if context is None and is_nothing(result.summary):
        yield "neither a context-handoff nor a summary says what was done"


def _completed(result: TaskResult, assignment: Assignment) -> TaskResult:
    return replace(
        result,
        work=assignment.work,
        task=assignment.task or None,
        agent=assignment.role,
        context_handoff=result.context_handoff or ContextHandoff(what=result.summary),
    )


def _unreadable(error: InvalidMessageError) -> Unreadable:
    reasons = tuple(map(str, error.violations))
    if isinstance(error, XmlReadingError):
        return Unreadable((error.reason, *reasons), error.reason == "truncated")
    # The only words that msgspec has for a stump, and ours for what is too large.
    too_long = any("truncated" in it or "bytes of JSON" in it for it in reasons)
    return Unreadable(reasons, too_long)
