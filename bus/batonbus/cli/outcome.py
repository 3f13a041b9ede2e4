"""What became of a handoff that was sent: its words, its JSON, its exit code."""

import shlex
from typing import Any, cast

import msgspec
from msgspec import Struct

from batonbus.cli.output import clean
from batonbus.rules.admission import expected_capabilities
from batonbus.rules.receipts import PERSON
from batonbus.secrecy import hide_in
from batonbus_schemas import Envelope, Receipt, TaskResult, Violation

EXIT_CODES = {
    "sent": 1,
    "accepted": 0,
    "settled": 0,
    "held": 3,
    "refused": 4,
    "overdue": 5,
    "failed": 6,
    "dead": 6,
    "cancelled": 6,
}


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a handoff: its newest receipt, and its result if somebody waited for it. Its
    state is `sent` where no receipt came in the time that somebody had.

    `handoff_id` is text, for a refused document's id need not be a UUID.
    """

    handoff_id: str
    state: str
    by: str
    reason: str = ""
    violations: tuple[Violation, ...] = ()
    attempt: int | None = None
    lease: int | None = None
    waited_s: float | None = None
    listening: tuple[str, ...] = ()
    result: TaskResult | None = None

    @property
    def exit_code(self) -> int:
        """As the overview of the commands has them; a FAIL is exit code 6."""
        failed = self.result is not None and self.result.status == "FAIL"
        return EXIT_CODES["failed" if failed else self.state]


def outcome_of(receipt: Receipt, **more: object) -> Outcome:
    """A receipt as an outcome, with what is known beside it."""
    return msgspec.convert({**msgspec.to_builtins(receipt), **more}, Outcome)


def refused(data: bytes, actor: str, violations: tuple[Violation, ...]) -> Outcome:
    """The outcome of a message that never left: it takes no bus to know that it is invalid."""
    try:
        tree: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        tree = None
    names = cast("dict[str, Any]", tree) if isinstance(tree, dict) else {}
    said = names.get("handoff_id", names.get("id", ""))
    return Outcome(
        handoff_id=said if isinstance(said, str) else "",
        state="refused",
        by=actor,
        reason="the message is not valid, so it was not sent",
        # A violation repeats what is wrong.
        violations=tuple(map(hide_in, violations)),
    )


def describe(outcome: Outcome, *, known: str = "") -> list[str]:
    """An outcome in lines for people, who have been told of the handoff `known`."""
    if outcome.result is not None:
        return [outcome.result.status, *clean(outcome.result.text).splitlines()]
    after = f" after {outcome.waited_s:g} s" if outcome.waited_s is not None else ""
    lines = [f"{outcome.state} by {outcome.by}{after}"]
    if outcome.handoff_id not in {"", known}:
        lines.append(f"  handoff {clean(outcome.handoff_id)}")
    if outcome.reason:
        lines.append(f"  {clean(outcome.reason)}")
    lines += [f"  {clean(str(violation))}" for violation in outcome.violations]
    if outcome.listening:
        lines.append(f"  listening: {', '.join(outcome.listening)}")
    return lines


def advise(outcome: Outcome, envelope: Envelope, give_up_after: float) -> str:
    """What a sender can do about this outcome."""
    stays = f"It stays in the ledger, for {give_up_after:g} s"
    match outcome.state:
        case "overdue" if outcome.reason.startswith("no agent is listening"):
            needed = sorted(expected_capabilities(envelope))
            can = "".join(f" --capability {shlex.quote(clean(it))}" for it in needed)
            return (
                f"{stays}, and is delivered as soon as an agent starts:\n"
                f"  batonbus agent --role {envelope.to}{can} --command '…'"
            )
        case "overdue":
            return f"{stays}; `batonbus doctor` tells whether the bus can do its work."
        case "held" if outcome.reason == PERSON.format(role=envelope.to):
            return f"It stays in the ledger; `batonbus inbox {envelope.to}` shows it."
        case "held":
            return "It stays in the ledger until an agent has room for it."
        case _:
            return ""
