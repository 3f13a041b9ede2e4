"""Each rule left out, and the harm that the model finds then.

A rule of the product is left out by patching the product, a habit of the writers by the scenario.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace
from search import Result, Search
from world import Fault, Harm, Scenario

from batonbus.rules import chain, ownership, receipts
from batonbus.rules.chain import FINAL, MAY_FOLLOW, Chain, Event, Kind, Stage
from batonbus.rules.receipts import Verdict

ONE: frozenset[Fault] = frozenset({"kill", "answer", "late", "pause"})
KILL: frozenset[Fault] = frozenset({"kill"})

plain = Scenario(name="one hop")
mishap = Scenario(name="one hop, a mishap", budget=1, faults=ONE)
fenced = Scenario(
    name="one hop, stood still and killed", budget=2, faults=frozenset({"kill", "pause"})
)
late = Scenario(name="one hop, a late delivery", budget=1, faults=frozenset({"late"}))
alone = Scenario(
    name="its only agent is killed for good",
    workers=("A",),
    budget=1,
    faults=KILL,
    returns=False,
)
stopped = Scenario(
    name="its only agent is stopped", workers=("A",), budget=1, faults=frozenset({"stop"})
)
fails = Scenario(name="attempts fail", workers=("A",), outcomes=("settled", "failed"))
refuses = Scenario(name="its agent refuses", workers=("A",), outcomes=("refused",))
shut = Scenario(name="the gate is shut at first", workers=("A",), shut=True)
broken = Scenario(name="it breaks the contract", workers=("A",), broken=True)
expired = replace(broken, name="the gate is shut until its deadline", shut=True)
line = Scenario(name="two hops", shape="line", workers=("A",))


def stray(kind: str, base: Scenario = plain, *, knows_tail: bool = True) -> Scenario:
    """A rogue writes an event of this kind, whenever it likes."""
    return replace(base, name=f"{base.name}, a stray {kind}", strays=((kind, knows_tail),))


class LeftOut(Struct, frozen=True, kw_only=True):
    """A rule that is left out, where, and the harm that comes of it."""

    rule: str
    scenario: Scenario
    harm: Harm
    patch: Callable[[], AbstractContextManager[object]] = nullcontext

    def run(self) -> Result:
        """Search without the rule."""
        with self.patch():
            return Search(self.scenario).run()


def objecting(other: Callable[[Chain, Event], str | None]) -> AbstractContextManager[object]:
    """Another judgement of an event."""
    return patch.object(chain, "objection", other)


def blind_to_tails() -> AbstractContextManager[object]:
    """An event counts whatever its writer saw."""
    judged = chain.objection
    return objecting(lambda it, event: judged(it, replace(event, tail=it.tail)))


def opened_by_nobody() -> AbstractContextManager[object]:
    """Only `sent` begins a chain."""
    judged = chain.objection

    def objection(it: Chain, event: Event) -> str | None:
        if it.stage == "none" and event.kind != "sent":
            return "nothing of that kind comes first"
        return judged(it, event)

    return objecting(objection)


def unguarded(kind: str) -> Callable[[], AbstractContextManager[object]]:
    """The guard of this kind is not there."""
    return lambda: patch.dict(chain._GUARDS, {kind: lambda _chain, _event: None})


def unjudged(*kinds: str) -> AbstractContextManager[object]:
    """The keeper never writes these."""
    judged = receipts.judge

    def judge(*args: object, **marks: object) -> Verdict | None:
        verdict = judged(*args, **marks)  # type: ignore[arg-type]
        return None if verdict is None or verdict.kind in kinds else verdict

    return patch.object(receipts, "judge", judge)


def cell(kind: Kind, stage: Stage) -> AbstractContextManager[object]:
    """One cell of the table is empty."""
    table = {**MAY_FOLLOW, kind: MAY_FOLLOW[kind] - {stage}}
    return patch.object(chain, "MAY_FOLLOW", table)


def endless_attempts() -> AbstractContextManager[object]:
    """Nobody counts to three."""
    stack = ExitStack()
    for module in (chain, ownership, receipts):
        stack.enter_context(patch.object(module, "ATTEMPT_LIMIT", 99))
    return stack


def table_without_end() -> AbstractContextManager[object]:
    """What may follow an open stage may follow a final one."""
    table = {kind: stages | FINAL for kind, stages in MAY_FOLLOW.items()}
    return patch.object(chain, "MAY_FOLLOW", table)


LEFT_OUT = [
    LeftOut(
        rule="the server's compare-and-set",
        scenario=replace(plain, without="compare-and-set"),
        harm="lost",
    ),
    LeftOut(
        rule="the tail in an event's own header",
        scenario=stray("accepted", knows_tail=False),
        harm="stale",
        patch=blind_to_tails,
    ),
    *(
        LeftOut(
            rule=f"the owner's guard of {kind}",
            scenario=stray(kind),
            harm="stale",
            patch=unguarded(kind),
        )
        for kind in ("settled", "failed", "refused")
    ),
    LeftOut(
        rule="the guard of accepted",
        scenario=stray("accepted", fails),
        harm="stuck",
        patch=unguarded("accepted"),
    ),
    LeftOut(
        rule="the guard of cancelled",
        scenario=stray("cancelled"),
        harm="stale",
        patch=unguarded("cancelled"),
    ),
    LeftOut(rule="the guard of held", scenario=shut, harm="endless", patch=unguarded("held")),
    LeftOut(
        rule="the bus's own events",
        scenario=stray("dead"),
        harm="stale",
        patch=lambda: patch.object(chain, "BUS_WRITES", {}),
    ),
    LeftOut(
        rule="final is final",
        scenario=stray("refused"),
        harm="twice",
        patch=table_without_end,
    ),
    LeftOut(rule="three attempts", scenario=fails, harm="endless", patch=endless_attempts),
    LeftOut(
        rule="a failure spends an attempt",
        scenario=fails,
        harm="endless",
        patch=lambda: patch.object(Chain, "next_attempt", property(lambda it: it.attempt)),
    ),
    LeftOut(
        rule="the bus opens the next handoff", scenario=line, harm="dark", patch=opened_by_nobody
    ),
    LeftOut(
        rule="a chain is folded up to the event",
        scenario=replace(stray("settled", line), without="fold up to the event"),
        harm="stale",
    ),
    LeftOut(
        rule="a lost race is read again",
        scenario=replace(plain, without="ask after a lost race"),
        harm="lost",
    ),
    LeftOut(
        rule="a redelivery asks whether the owner lives",
        scenario=replace(late, without="ask whether the owner lives"),
        harm="robbed",
    ),
    LeftOut(
        rule="an owner that lost a race asks whether it still owns it",
        scenario=fenced,
        harm="lost",
        patch=lambda: patch.object(ownership, "holds", lambda *_: True),
    ),
    LeftOut(
        rule="the keeper says overdue",
        scenario=plain,
        harm="dark",
        patch=lambda: unjudged("overdue"),
    ),
    LeftOut(
        rule="the keeper says held",
        scenario=stopped,
        harm="dark",
        patch=lambda: unjudged("held"),
    ),
    LeftOut(
        rule="the keeper gives up on what nobody takes",
        scenario=alone,
        harm="stuck",
        patch=lambda: unjudged("dead"),
    ),
    LeftOut(
        rule="the keeper ends what has spent its attempts",
        scenario=fails,
        harm="stuck",
        patch=lambda: patch.object(receipts, "_is_spent", lambda _: False),
    ),
    LeftOut(
        rule="the keeper gives up on an owner that is gone",
        scenario=alone,
        harm="stuck",
        patch=lambda: patch.object(receipts, "judge_owned", lambda *_, **__: None),
    ),
]

CELLS: dict[tuple[Kind, Stage], tuple[Scenario, Harm]] = {
    ("sent", "none"): (plain, "stuck"),
    ("delivered", "sent"): (plain, "lost"),
    ("delivered", "held"): (shut, "stuck"),
    ("delivered", "overdue"): (plain, "lost"),
    ("held", "sent"): (shut, "endless"),
    ("held", "delivered"): (stopped, "dark"),
    ("held", "overdue"): (shut, "endless"),
    ("overdue", "sent"): (plain, "dark"),
    ("overdue", "delivered"): (plain, "dark"),
    ("overdue", "held"): (stopped, "stuck"),
    ("accepted", "delivered"): (plain, "lost"),
    ("accepted", "held"): (stopped, "lost"),
    ("accepted", "overdue"): (plain, "lost"),
    ("accepted", "failed"): (fails, "stuck"),
    ("accepted", "accepted"): (mishap, "lost"),
    ("refused", "sent"): (broken, "lost"),
    ("refused", "held"): (expired, "stuck"),
    ("refused", "overdue"): (broken, "lost"),
    ("refused", "accepted"): (refuses, "lost"),
    ("failed", "accepted"): (fails, "robbed"),
    ("settled", "accepted"): (plain, "lost"),
    **{
        (kind, stage): (scenario, "denied")
        for kind in ("dead", "cancelled")
        for stage, scenario in (
            ("sent", plain),
            ("delivered", plain),
            ("held", shut),
            ("overdue", plain),
            ("accepted", plain),
            ("failed", fails),
        )
    },
}
"""What comes of an empty cell: an event of this kind may not follow this stage any more."""

UNUSED: set[tuple[Kind, Stage]] = {("held", "held"), ("refused", "delivered")}
"""Cells that no writer of the model needs: a second reason to hold; an agent that refuses without
having accepted. They allow what does no harm."""


def cells() -> Iterator[LeftOut]:
    """Each cell of the table that a writer needs."""
    for (kind, stage), (scenario, harm) in CELLS.items():
        yield LeftOut(
            rule=f"{kind} after {stage}",
            scenario=scenario,
            harm=harm,
            patch=lambda kind=kind, stage=stage: cell(kind, stage),  # type: ignore[misc]
        )


KNOWN = [
    LeftOut(
        rule="(none) who knows an id begins the next handoff of it first",
        scenario=stray("sent", line),
        harm="stale",
    )
]
"""Harm that the rules do not prevent: see the limits in README.md."""
