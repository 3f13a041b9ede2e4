"""The bus's own processes: window managers, receipt keepers, and the gate."""

from collections.abc import Iterator

from msgspec.structs import replace
from world import (
    SENDER,
    Mail,
    Manager,
    Scenario,
    State,
    Step,
    Writing,
    ack,
    append,
    begun,
    event,
    may,
    owner_lives,
    put_mail,
    spent,
    take_mail,
)

from batonbus.rules import chain as rules
from batonbus.rules import receipts
from batonbus.rules.chain import RECEIPT_KEEPER, WINDOW_MANAGER, Chain
from batonbus.rules.settings import Settings
from batonbus_schemas import AgentCard, Presence

SETTINGS = Settings()
SOON = 1.0 + SETTINGS.receipt_timeout
LATE = 1.0 + SETTINGS.give_up_after
SHUT = "shut"


def managers(state: State, scenario: Scenario) -> Iterator[Step]:
    """They are alike: of two in the same situation, the first moves."""
    for place, manager in enumerate(state.managers):
        if manager not in state.managers[:place]:
            yield from manage(state, place, scenario)


def with_manager(state: State, place: int, manager: Manager) -> State:
    """The state with this one in the place of another, in a fixed order."""
    others = (*state.managers[:place], *state.managers[place + 1 :])
    return replace(state, managers=tuple(sorted((*others, manager), key=repr)))


def manage(state: State, place: int, scenario: Scenario) -> Iterator[Step]:
    """Takes a message, decides by the chain up to it, writes, acks."""
    me, name = state.managers[place], WINDOW_MANAGER
    if me.mail is None:
        for mail in state.mail:
            if mail.kind != "delivered":
                yield consider(take_mail(state, mail), place, mail, scenario)
        return
    if may(state, scenario, "manager"):
        back = put_mail(with_manager(state, place, Manager()), replace(me.mail, again=True))
        yield Step(name, "is killed", spent(back), fault=True)
    if may(state, scenario, "late") and put_mail(state, me.mail) is not state:
        copy = put_mail(state, replace(me.mail, again=True))
        yield Step(name, "is slow: its message is handed out again", spent(copy), fault=True)
    if me.writing is not None:
        yield from manager_writes(state, place, me.mail, me.writing, scenario)


def consider(state: State, place: int, mail: Mail, scenario: Scenario) -> Step:
    """A message in hand: void events are dropped, a redelivered one is folded to the head."""
    name, chain = WINDOW_MANAGER, state.chains[mail.handoff]
    counts = mail.counts or scenario.without == "fold up to the event"
    if not counts:
        return Step(name, "drops a void event", ack(state, mail))
    if mail.again and is_moved_on(chain):
        return Step(name, "finds it moved on", ack(state, mail))
    tail = chain.tail if mail.again else mail.tail
    return Step(name, f"takes {mail.kind}", decide(state, place, mail, tail, scenario))


def is_moved_on(chain: Chain) -> bool:
    """Whether nothing is left to do for a window manager."""
    return chain.final or chain.delivered_sequence is not None


def decide(state: State, place: int, mail: Mail, tail: int, scenario: Scenario) -> State:
    """The state with what this manager will write."""
    broken = not mail.admitted or (scenario.broken and mail.handoff == 0)
    # What was held may have become a thing to refuse: its deadline has passed.
    kind = "held" if not state.is_open else "refused" if broken else "delivered"
    reason = SHUT if kind == "held" else ""
    it = event(kind, WINDOW_MANAGER, tail, reason=reason, waiter=SENDER)
    return with_manager(state, place, Manager(mail, Writing(mail.handoff, it)))


def manager_writes(
    state: State, place: int, mail: Mail, writing: Writing, scenario: Scenario
) -> Iterator[Step]:
    """Writes and acks; what it holds back it naks, for it is its own until it is delivered."""
    name, kind = WINDOW_MANAGER, writing.event.kind
    chain, idle = state.chains[mail.handoff], with_manager(state, place, Manager())
    again = replace(mail, again=True)
    is_held = kind == "held" == chain.stage and chain.tail == writing.event.tail
    # Whether holding it once more says anything new, the rules know.
    if is_held and rules.objection(chain, writing.event):
        yield Step(name, "naks: held already", put_mail(idle, again))
        return
    stored = append(state, writing, scenario)
    if stored is None:
        if is_moved_on(chain) or scenario.without == "ask after a lost race":
            yield Step(name, "lost the race, acks", ack(idle, mail))
        else:
            after = decide(state, place, mail, chain.tail, scenario)
            yield Step(name, "lost the race, reads", after)
        return
    done = with_manager(stored, place, Manager())
    after = put_mail(done, again) if kind == "held" else ack(done, mail)
    yield Step(name, f"writes {kind}", after, writes=True)
    if may(state, scenario, "manager"):
        dead = put_mail(done, again)
        yield Step(name, f"writes {kind}, is killed", spent(dead), fault=True, writes=True)
    if may(state, scenario, "answer"):
        yield Step(name, f"writes {kind}, hears nothing", spent(stored), fault=True, writes=True)


# The receipt keepers.


def keepers(state: State, scenario: Scenario) -> Iterator[Step]:
    """A keeper has no state: one that was killed is one that has not looked."""
    for place, writing in enumerate(state.keepers):
        if writing in state.keepers[:place]:
            continue
        others = (*state.keepers[:place], *state.keepers[place + 1 :])
        if writing is not None:
            yield keeper_writes(state, others, writing, scenario)
            continue
        for handoff in range(scenario.handoffs):
            for verdict, gives_up in verdicts(state, handoff, scenario):
                after = with_keeper(state, others, verdict)
                does = f"finds handoff {handoff} {verdict.event.kind}"
                yield Step(RECEIPT_KEEPER, does, after, gives_up=gives_up)


def with_keeper(state: State, others: tuple[Writing | None, ...], one: Writing | None) -> State:
    """The keepers in a fixed order, for they are alike."""
    return replace(state, keepers=tuple(sorted((*others, one), key=repr)))


def keeper_writes(
    state: State, others: tuple[Writing | None, ...], writing: Writing, scenario: Scenario
) -> Step:
    """One that lost the race looks again."""
    does = f"writes {writing.event.kind}({writing.handoff})"
    # It reads the chain once more before it writes, so that it ends none twice.
    if not state.chains[writing.handoff].final:
        stored = append(state, writing, scenario)
        if stored is not None:
            return Step(RECEIPT_KEEPER, does, with_keeper(stored, others, None), writes=True)
    return Step(RECEIPT_KEEPER, "lost the race", with_keeper(state, others, None))


def verdicts(state: State, handoff: int, scenario: Scenario) -> Iterator[tuple[Writing, bool]]:
    """What a keeper writes that looks now, and whether it gives up by it."""
    if not begun(state, handoff, scenario) or state.chains[handoff].final:
        return
    chain = state.chains[handoff]
    chain = replace(chain, began=1.0, changed=1.0)  # as it expects a child
    here = receipts.who_listens(listening(state, scenario.readers(handoff)))
    lives = chain.stage == "accepted" and owner_lives(state, chain)
    gone = None if lives else SETTINGS.presence_timeout
    waited = None if lives else SETTINGS.give_up_after
    soon, late = here, here
    if not here.agents:
        soon, late = (replace(here, alone_for=it - 1.0) for it in (SOON, LATE))
    looks = (
        (receipts.judge(chain, SETTINGS, now=SOON, listening=soon), False),
        (receipts.judge(chain, SETTINGS, now=LATE, listening=late), True),
        (receipts.judge_owned(chain, SETTINGS, ownerless_for=gone), False),
        (receipts.judge_owned(chain, SETTINGS, ownerless_for=waited), True),
    )
    seen: set[str] = set()
    for verdict, gives_up in looks:
        if verdict is not None and verdict.kind not in seen:
            seen.add(verdict.kind)
            reason = verdict.reason if verdict.kind == "held" else ""
            it = event(verdict.kind, RECEIPT_KEEPER, chain.tail, reason=reason, waiter=SENDER)
            yield Writing(handoff, it), gives_up


def listening(state: State, names: tuple[str, ...]) -> list[Presence]:
    """What the registry says of these agents."""
    return [
        Presence(
            card=AgentCard(id=it.name, role="role"),
            working=(it.entry,) if it.entry else (),
            stopping=it.stopping,
        )
        for it in state.workers
        if it.name in names and it.entry is not None
    ]


def gate(state: State, scenario: Scenario) -> Iterator[Step]:
    """The gate of dispatches opens by itself, and shuts as a fault."""
    if not state.is_open:
        yield Step("gate", "opens", replace(state, is_open=True))
    elif may(state, scenario, "gate"):
        yield Step("gate", "shuts", spent(replace(state, is_open=False)), fault=True)
