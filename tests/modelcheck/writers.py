"""Whoever writes into the ledger, step by step, with every place where one may die between two of
its steps. What they decide, they decide by the product's rules.
"""

from collections.abc import Iterator

from agent_side import agent
from bus_side import gate, keepers, managers, verdicts
from msgspec.structs import replace
from world import (
    ENDED,
    ROGUE,
    SENDER,
    STALE,
    HarmError,
    Scenario,
    State,
    Step,
    Writing,
    append,
    begun,
    event,
    may,
    spent,
)

from batonbus.rules import chain as rules
from batonbus.rules.chain import OPERATOR, Chain


def steps(state: State, scenario: Scenario) -> Iterator[Step]:
    """All that may happen next. Raises Found where it must not."""
    yield from sender(state, scenario)
    yield from managers(state, scenario)
    yield from keepers(state, scenario)
    for worker in state.workers:
        yield from agent(state, worker, scenario)
    yield from canceller(state, scenario)
    yield from rogue(state, scenario)
    yield from gate(state, scenario)


def sender(state: State, scenario: Scenario) -> Iterator[Step]:
    """Sends; after a lost race it asks the bus, and goes on behind void events alone."""
    writing = state.sending
    if writing is None:
        if may(state, scenario, "repeat"):
            again = Writing(0, event("sent", SENDER, STALE, attempt=1, waiter=SENDER))
            yield Step(SENDER, "sends again", spent(replace(state, sending=again)), fault=True)
        return
    stored = append(state, writing, scenario)
    if stored is None:
        chain = state.chains[0]
        after = None if chain.stage != "none" else on_tail(writing, chain)
        yield Step(SENDER, "lost the race, asks", replace(state, sending=after))
        return
    yield Step(SENDER, "sends", replace(stored, sending=None), writes=True)
    if may(state, scenario, "answer"):
        yield Step(SENDER, "sends, hears nothing", spent(stored), fault=True, writes=True)


def on_tail(writing: Writing, chain: Chain) -> Writing:
    """The same event behind the tail as it is now."""
    return Writing(writing.handoff, replace(writing.event, tail=chain.tail))


def canceller(state: State, scenario: Scenario) -> Iterator[Step]:
    """The sender wants an end to its line, wherever it is by then."""
    if not state.wish:
        return
    if state.cancelling is not None:
        stored = append(state, state.cancelling, scenario)
        if stored is None:
            yield Step(SENDER, "lost the race, looks again", replace(state, cancelling=None))
        else:
            ended = replace(stored, cancelling=None, wish=False)
            yield Step(SENDER, "cancels", ended, writes=True)
        return
    at = 1 if state.chains[0].child is not None else 0
    chain = state.chains[at]
    if chain.stage != "none" and not chain.final:
        it = event("cancelled", SENDER, chain.tail)
        yield Step(SENDER, "wants an end", replace(state, cancelling=Writing(at, it)))


def rogue(state: State, scenario: Scenario) -> Iterator[Step]:
    """Writes once, without the compare-and-set, and guesses all but what permissions pin: its own
    name. Whether it also guesses the tail is the scenario's to say."""
    if not state.strays:
        return
    after = replace(state, strays=0)
    for kind, knows_tail in scenario.strays:
        for handoff, chain in enumerate(state.chains):
            it = event(
                kind,
                ROGUE,
                chain.tail if knows_tail else STALE,
                accepted=chain.owner_sequence,
                attempt=chain.next_attempt,
                lease=chain.lease + 1,
                child_to="next" if kind == "settled" else None,
            )
            stored = append(after, Writing(handoff, it), scenario, blind=True)
            if stored is not None:
                yield Step(ROGUE, f"writes {kind}({handoff})", stored, fault=True, writes=True)


def check(state: State, scenario: Scenario) -> None:
    """What must hold now, whatever comes: what is open can be answered, and ended.
    Raises HarmError."""
    for handoff, chain in enumerate(state.chains):
        if not begun(state, handoff, scenario) or chain.stage in ENDED:
            continue
        if chain.stage in {"none", "sent", "delivered"}:
            due = [it for it, gives_up in verdicts(state, handoff, scenario) if not gives_up]
            if not due or rules.objection(chain, due[0].event):
                raise HarmError("dark", f"handoff {handoff} is {chain.stage}, no keeper may answer")
        enders = [("dead", OPERATOR), ("cancelled", OPERATOR)]
        if chain.sender is not None:
            enders.append(("cancelled", chain.sender))
        for kind, actor in enders:
            problem = rules.objection(chain, event(kind, actor, chain.tail))
            if problem is not None:
                raise HarmError("denied", f"handoff {handoff} is {chain.stage}: {kind}, {problem}")
