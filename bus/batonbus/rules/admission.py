"""What the window manager checks before it delivers a handoff.

Each check returns every violation that it finds; an empty answer admits the handoff.
"""

from collections.abc import Sequence
from datetime import datetime

from batonbus.rules.chain import ATTEMPT_LIMIT, OPERATOR, Chain, retry_id
from batonbus_schemas import Envelope, HandoffV1, Presence, Violation


def check_origin(envelope: Envelope, *, actor: str, handoff_id: str, to: str) -> list[Violation]:
    """The subject is the one trusted identity: the envelope must say the same."""
    said = {
        "$.id": (str(envelope.id), handoff_id),
        "$.sender": (envelope.sender, actor),
        "$.to": (envelope.to, to),
    }
    problems = [
        Violation(path=path, problem=f"says {text!r}, but its subject says {subject!r}")
        for path, (text, subject) in said.items()
        if text != subject
    ]
    if envelope.attempt > ATTEMPT_LIMIT:
        problem = f"is {envelope.attempt}, and nobody works more than {ATTEMPT_LIMIT} times on it"
        problems.append(Violation(path="$.attempt", problem=problem))
    if envelope.retry_of is not None:
        problems += _check_retry(envelope, actor)
    if envelope.stage_parents or envelope.task_parents:
        problems.append(
            Violation(path="$", problem="parents are filled by the bus: name handoffs in `after`")
        )
    return problems


def _check_retry(envelope: Envelope, actor: str) -> list[Violation]:
    if actor != OPERATOR:
        return [Violation(path="$.retry_of", problem="only an operator tries a handoff again")]
    if envelope.retry_of is not None and envelope.id != (only := retry_id(envelope.retry_of)):
        problem = f"is not {only}, the one retry of handoff {envelope.retry_of}"
        return [Violation(path="$.id", problem=problem)]
    return []


def may_be_retried(chain: Chain, tried: Envelope | None) -> bool:
    """Whether an operator may try this handoff again: a dead one, or a retry that was refused or
    cancelled, for the dead one has no other. `tried` is its envelope as it was sent."""
    is_retry = tried is not None and tried.retry_of is not None
    return chain.stage == "dead" or (is_retry and chain.stage in {"refused", "cancelled"})


def check_deadline(envelope: Envelope, now: datetime) -> list[Violation]:
    """A handoff whose deadline has passed is not started. `now` is the server's moment."""
    if envelope.deadline is None or envelope.deadline > now:
        return []
    late = (now - envelope.deadline).total_seconds()
    return [Violation(path="$.deadline", problem=f"passed {late:.0f} s ago")]


def check_capabilities(envelope: Envelope, agents: Sequence[Presence]) -> list[Violation]:
    """What contract v1 expects of its addressee must be declared by one of its live agents. Where
    none is registered yet nothing is known, and nothing is refused."""
    expected = expected_capabilities(envelope)
    if not agents or any(expected <= set(it.card.capabilities) for it in agents):
        return []
    declared = sorted({capability for it in agents for capability in it.card.capabilities})
    missing = ", ".join(sorted(expected - set(declared)))
    lacking = missing or f"all of {', '.join(sorted(expected))}"
    return [
        Violation(
            path="$.body.document.to_agent.expected_capabilities",
            problem=f"no agent listening as {envelope.to} declares {lacking} "
            f"(declared: {', '.join(declared) or 'nothing'})",
        )
    ]


def expected_capabilities(envelope: Envelope) -> frozenset[str]:
    """The capabilities that the body asks of its receiver."""
    if not isinstance(envelope.body, HandoffV1):
        return frozenset()
    return frozenset(envelope.body.contract.to_agent.expected_capabilities)
