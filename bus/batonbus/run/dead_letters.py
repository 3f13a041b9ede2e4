"""Dead letters: handoffs that were given up on, why, and trying them again."""

from uuid import UUID

from msgspec import Struct

from batonbus.rules.admission import may_be_retried
from batonbus.rules.chain import OPERATOR, Chain, retry_id
from batonbus.rules.errors import BatonbusError
from batonbus.run.core import Core
from batonbus.run.history import History, find_chains, find_parents, make_history
from batonbus.wire.subjects import kind_filter
from batonbus_schemas import Body, Envelope, InvalidMessageError, Receipt, Settlement, decode


class NotRetriedError(BatonbusError):
    """A handoff that cannot be tried again."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One time that an agent took the handoff: `error` is how it failed, empty where it was taken
    over or given up on without a word."""

    attempt: int
    agent: str
    at: float
    error: str = ""


class Retry(Struct, frozen=True, kw_only=True):
    """The handoff that tries a dead one again, and how it stands."""

    handoff_id: UUID
    state: str


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A handoff that was given up on. `at` is the server's moment (Unix seconds) at which it was;
    `handed_on_by` is the settled handoff that opened it, if one did."""

    history: History
    envelope: Envelope | None
    attempts: tuple[Attempt, ...]
    handed_on_by: UUID | None = None
    retry: Retry | None = None

    @property
    def at(self) -> float:
        """When it was given up on."""
        return self.history.chain.changed

    @property
    def reason(self) -> str:
        """Why it was given up on, in full."""
        for step in reversed(self.history.steps):
            if step.objection is None:
                return _reason(step.stored.payload) or step.stored.event.reason
        return ""

    @property
    def error(self) -> str:
        """The last error of an agent; empty where none had one."""
        return next((it.error for it in reversed(self.attempts) if it.error), "")

    @property
    def trace_id(self) -> str:
        """The trace that it belongs to; empty where nobody traced."""
        for step in self.history.steps:
            headers = {key.lower(): value for key, value in step.stored.headers.items()}
            parts = headers.get("traceparent", "").split("-")
            if step.objection is None and len(parts) == 4:
                return parts[1]
        return ""


def _reason(payload: bytes) -> str:
    try:
        return decode(payload, Receipt).reason
    except InvalidMessageError:
        return ""


async def list_dead(core: Core, work: str | None = None) -> list[DeadLetter]:
    """Every dead handoff (of a work), the last one that died first."""
    found = await find_chains(core.ledger, kind_filter(core.fleet, "dead"))
    dead = [it for it in found.values() if it.stage == "dead" and work in {None, it.work}]
    dead.sort(key=lambda it: it.changed, reverse=True)
    parents = await find_parents(core.ledger, {it.id for it in dead if it.sender is None})
    return [await _read(core, it, parents.get(it.id)) for it in dead]


async def read_dead(core: Core, handoff_id: UUID) -> DeadLetter:
    """One handoff as a dead letter, dead or not."""
    chain = await core.ledger.read_folded(Chain(id=handoff_id))
    parents = await find_parents(core.ledger, {handoff_id} if chain.sender is None else set())
    return await _read(core, chain, parents.get(handoff_id))


async def _read(core: Core, chain: Chain, parent: Chain | None) -> DeadLetter:
    retry = await core.ledger.read_folded(Chain(id=retry_id(chain.id)))
    handed_on = await _read_handed_on(core, parent) if parent else None
    history = make_history(chain.id, await core.ledger.read_chain(chain.id), handed_on)
    return DeadLetter(
        history=history,
        envelope=history.completed,
        attempts=tuple(read_attempts(history)),
        handed_on_by=parent.id if parent else None,
        retry=None if retry.stage == "none" else Retry(handoff_id=retry.id, state=retry.stage),
    )


async def _read_handed_on(core: Core, parent: Chain) -> Envelope | None:
    settled = await core.ledger.read(parent.settled_sequence or 0)
    try:
        return decode(settled.payload, Settlement).next if settled else None
    except InvalidMessageError:
        return None


def read_attempts(history: History) -> list[Attempt]:
    """Who worked on it, and how each attempt failed."""
    attempts: list[Attempt] = []
    for step in history.steps:
        event = step.stored.event
        if step.objection is not None:
            continue
        if event.kind == "accepted":
            attempts.append(Attempt(attempt=event.attempt or 1, agent=event.actor, at=event.at))
        elif event.kind == "failed" and attempts:
            error = _reason(step.stored.payload) or event.reason
            last = attempts[-1]
            attempts[-1] = Attempt(attempt=last.attempt, agent=last.agent, at=last.at, error=error)
    return attempts


def make_retry(letter: DeadLetter, body: Body | None = None) -> Envelope:
    """The handoff that tries this one again, with another body if one is given. Where it stands the
    bus finds out itself. Raises NotRetriedError where it cannot be."""
    chain, envelope = letter.history.chain, letter.envelope
    if letter.retry is not None:
        other = letter.retry
        raise NotRetriedError(
            f"handoff {chain.id} was retried already by {other.handoff_id}, which is {other.state}"
            + _advice(other)
        )
    if not may_be_retried(chain, letter.history.envelope):
        raise NotRetriedError(
            f"handoff {chain.id} is {chain.stage}: only a dead one is retried "
            "(`batonbus dead list` names them)"
        )
    if envelope is None:
        raise NotRetriedError(
            f"the content of handoff {chain.id} cannot be read: send the work again"
        )
    return Envelope(
        id=retry_id(chain.id),
        sender=OPERATOR,
        to=envelope.to,
        body=envelope.body if body is None else body,
        work=envelope.work,
        task=envelope.task,
        after=(letter.handed_on_by,) if letter.handed_on_by else envelope.after,
        retry_of=chain.id,
        extensions=envelope.extensions,
    )


def _advice(retry: Retry) -> str:
    if retry.state in {"dead", "refused", "cancelled"}:
        return f": `batonbus dead retry {retry.handoff_id}` tries that one again"
    return f": `batonbus show {retry.handoff_id}` tells more"
