"""The agents: accept, work, answer, ack; and all that may happen to them in between."""

from collections.abc import Iterator

from msgspec.structs import replace
from world import (
    STALE,
    Mail,
    Scenario,
    State,
    Step,
    Worker,
    Writing,
    ack,
    append,
    event,
    may,
    owner_lives,
    put_mail,
    spent,
    take_mail,
)

from batonbus.rules import chain as rules
from batonbus.rules import ownership
from batonbus.rules.chain import Chain


def with_worker(state: State, worker: Worker) -> State:
    """The state with this agent as it is now."""
    return replace(
        state, workers=tuple(worker if it.name == worker.name else it for it in state.workers)
    )


def idle(worker: Worker) -> Worker:
    """With nothing in hand; the registry hears of it at once."""
    entry = None if worker.entry is None else 0
    return Worker(worker.name, entry=entry, stopping=worker.stopping)


def agent(state: State, me: Worker, scenario: Scenario) -> Iterator[Step]:
    """All that an agent may do next, or that may happen to it."""
    if not me.up:
        yield from comes_back(state, me, scenario)
        return
    if me.entry is None:
        beats = with_worker(state, replace(me, entry=me.accepted if me.handoff >= 0 else 0))
        yield Step(me.name, "beats", beats)
    yield from mishaps(state, me, scenario)
    if me.idle:
        if me.stopping:
            gone = Worker(me.name, up=False, entry=None)
            yield Step(me.name, "leaves", with_worker(state, gone))
            return
        for mail in state.mail:
            if mail.kind == "delivered" and me.name in scenario.readers(mail.handoff):
                yield receives(take_mail(state, mail), me, mail, scenario)
    elif me.own:
        yield finds_its_own(state, me)
    elif me.writing is not None:
        yield from accepts(state, me, me.writing, scenario)
    else:
        yield from works(state, me, scenario)


def comes_back(state: State, me: Worker, scenario: Scenario) -> Iterator[Step]:
    """A dead agent: its entry expires, and it may be started again."""
    if me.entry is not None:
        expired = with_worker(state, Worker(me.name, up=False, entry=None))
        yield Step(me.name, "is gone from the registry", expired)
    if scenario.returns:
        yield Step(me.name, "starts", with_worker(state, Worker(me.name)), returns=True)


def mishaps(state: State, me: Worker, scenario: Scenario) -> Iterator[Step]:
    """What may happen to an agent at any time."""
    if me.name in scenario.safe:
        return
    if may(state, scenario, "kill"):
        yield Step(me.name, "is killed", spent(killed(state, me)), fault=True)
    if me.entry is not None and may(state, scenario, "pause"):
        blind = with_worker(state, replace(me, entry=None))
        if me.mail is not None:
            # What stands still for so long also lets its message be handed out again.
            blind = put_mail(blind, replace(me.mail, again=True))
        yield Step(me.name, "stands still", spent(blind), fault=True)
    if me.mail and may(state, scenario, "late") and put_mail(state, me.mail) is not state:
        copy = put_mail(state, replace(me.mail, again=True))
        yield Step(me.name, "has its message handed out again", spent(copy), fault=True)
    if not me.stopping and may(state, scenario, "stop"):
        stopping = with_worker(state, replace(me, stopping=True))
        yield Step(me.name, "is asked to stop", spent(stopping), fault=True)


def killed(state: State, me: Worker) -> State:
    """Its entry stays until it expires, its message is handed out again."""
    dead = with_worker(state, Worker(me.name, up=False, entry=me.entry))
    return put_mail(dead, replace(me.mail, again=True)) if me.mail else dead


def receives(state: State, me: Worker, mail: Mail, scenario: Scenario) -> Step:
    """A first delivery is the chain's tail; what a redelivery means, only the chain can say."""
    if mail.again:
        return asks(state, me, mail, "takes it again, asks", scenario)
    known = Chain(id=state.chains[mail.handoff].id, stage="delivered", delivered_sequence=1)
    return claims(state, me, mail, (known, mail.tail, None), "takes it")


def asks(state: State, me: Worker, mail: Mail, does: str, scenario: Scenario) -> Step:
    """Claims by the chain as it is now, and by what the registry says of its owner."""
    chain = state.chains[mail.handoff]
    lives = owner_lives(state, chain) and scenario.without != "ask whether the owner lives"
    return claims(state, me, mail, (chain, chain.tail, lives), does)


def claims(
    state: State, me: Worker, mail: Mail, view: tuple[Chain, int, bool | None], does: str
) -> Step:
    """Decide by the product's rule."""
    chain, tail, owner_alive = view
    claim = ownership.claim(chain, owner_alive=owner_alive)
    if claim.act == "drop":
        return Step(me.name, f"{does}: over", ack(with_worker(state, idle(me)), mail))
    if claim.act == "wait":
        back = put_mail(with_worker(state, idle(me)), replace(mail, again=True))
        return Step(me.name, f"{does}: naks", back)
    it = event("accepted", me.name, tail, attempt=claim.attempt, lease=claim.lease)
    taking = replace(me, mail=mail, writing=Writing(mail.handoff, it))
    return Step(me.name, f"{does}: attempt {claim.attempt}", with_worker(state, taking))


def accepts(state: State, me: Worker, writing: Writing, scenario: Scenario) -> Iterator[Step]:
    """Writes `accepted`; one that lost the race asks and decides again."""
    assert me.mail is not None
    stored = append(state, writing, scenario)
    if stored is None:
        if scenario.without == "ask after a lost race":
            dropped = ack(with_worker(state, idle(me)), me.mail)
            yield Step(me.name, "lost the race, acks", dropped)
        else:
            yield asks(state, me, me.mail, "lost the race, asks", scenario)
        return
    chain = stored.chains[writing.handoff]
    lease = 10 * (writing.handoff + 1) + 3 if chain.owner == me.name else STALE
    me = next(it for it in stored.workers if it.name == me.name)
    owning = Worker(
        me.name,
        entry=lease,
        stopping=me.stopping,
        mail=me.mail,
        handoff=writing.handoff,
        accepted=lease,
        attempt=chain.attempt,
        tail=chain.tail,
    )
    yield Step(me.name, "writes accepted", with_worker(stored, owning), writes=True)
    if may(state, scenario, "answer"):
        deaf = replace(owning, own="accepted", entry=me.entry)
        does = "writes accepted, hears nothing"
        yield Step(me.name, does, spent(with_worker(stored, deaf)), fault=True, writes=True)


def finds_its_own(state: State, me: Worker) -> Step:
    """It tried again, lost the race against its own write, and found that out."""
    assert me.mail is not None
    if me.own == "accepted":
        works_on = replace(me, own="", entry=me.accepted)
        return Step(me.name, "finds its own accepted", with_worker(state, works_on))
    return Step(me.name, f"finds its own {me.own}", close(state, me, me.own))


def close(state: State, me: Worker, kind: str) -> State:
    """The answer is stored: ack, or nak where another attempt follows. One that was interrupted is
    always handed back."""
    assert me.mail is not None
    free = with_worker(state, idle(me))
    if kind == "interrupted" or (kind == "failed" and me.attempt < rules.ATTEMPT_LIMIT):
        return put_mail(free, replace(me.mail, again=True))
    return ack(free, me.mail)


def works(state: State, me: Worker, scenario: Scenario) -> Iterator[Step]:
    """The handler sends what it asks others, and answers; meanwhile the lease is checked."""
    chain = state.chains[me.handoff]
    if not ownership.holds(chain, me.name, me.accepted):
        yield Step(me.name, "finds that it lost it", lose(state, me))
    if scenario.shape == "fan" and me.handoff == 0:
        yield from asks_others(state, me, scenario)
        if len(me.asked) < scenario.questions or not all(it.final for it in state.chains[1:]):
            return
    for outcome in scenario.outcomes:
        yield from answers(state, me, outcome, scenario)
    if me.stopping:
        yield from answers(state, me, "interrupted", scenario)


def lose(state: State, me: Worker) -> State:
    """Somebody else has it, and the message is theirs to ack; or it is over."""
    assert me.mail is not None
    free = with_worker(state, idle(me))
    if state.chains[me.handoff].final:
        return ack(free, me.mail)
    return put_mail(free, replace(me.mail, again=True))


def asks_others(state: State, me: Worker, scenario: Scenario) -> Iterator[Step]:
    """Sends by a key: the same handoff in any run, so a lost race finds it stored."""
    for handoff in range(1, scenario.handoffs):
        if handoff in me.asked:
            continue
        knows = replace(me, asked=tuple(sorted((*me.asked, handoff))))
        sent = Writing(handoff, event("sent", me.name, 0, attempt=1, waiter=me.name))
        stored = append(state, sent, scenario)
        if stored is None:
            yield Step(me.name, f"finds {handoff} sent", with_worker(state, knows))
        else:
            yield Step(me.name, f"sends {handoff}", with_worker(stored, knows), writes=True)


def answers(state: State, me: Worker, outcome: str, scenario: Scenario) -> Iterator[Step]:
    """Writes the answer under its accepted event; one that lost the race asks who owns it."""
    assert me.mail is not None
    hands_on = outcome == "settled" and scenario.shape == "line" and me.handoff == 0
    interrupted = outcome == "interrupted"
    it = event(
        "failed" if interrupted else outcome,
        me.name,
        me.tail,
        accepted=me.accepted,
        child_to="next" if hands_on else None,
        interrupted=interrupted,
    )
    chain = state.chains[me.handoff]
    stored = append(state, Writing(me.handoff, it), scenario)
    if stored is None:
        if ownership.holds(chain, me.name, me.accepted):
            seen = with_worker(state, replace(me, tail=chain.tail))
            yield Step(me.name, "lost the race, still owns it", seen)
        else:
            yield Step(me.name, "lost it, drops its answer", lose(state, me))
        return
    me = next(it for it in stored.workers if it.name == me.name)
    does = f"writes {outcome}({me.handoff})"
    yield Step(me.name, does, close(stored, me, outcome), writes=True)
    if me.name in scenario.safe:
        return
    if may(state, scenario, "kill"):
        dead = spent(killed(stored, me))
        yield Step(me.name, f"{does}, is killed", dead, fault=True, writes=True)
    if may(state, scenario, "late"):
        assert me.mail is not None
        back = spent(put_mail(with_worker(stored, idle(me)), replace(me.mail, again=True)))
        yield Step(me.name, f"{does}, its ack is lost", back, fault=True, writes=True)
    if may(state, scenario, "answer"):
        deaf = spent(with_worker(stored, replace(me, own=outcome)))
        yield Step(me.name, f"{does}, hears nothing", deaf, fault=True, writes=True)
