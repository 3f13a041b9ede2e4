"""The scenarios that must be clean: small ones for every test run, larger ones for the command."""

from msgspec.structs import replace
from world import Fault, Scenario

ALL: frozenset[Fault] = frozenset(
    {"kill", "manager", "answer", "late", "pause", "stop", "gate", "repeat"}
)
STRAYS = (
    ("settled", True),
    ("failed", True),
    ("refused", True),
    ("cancelled", True),
    ("dead", True),
    ("accepted", True),
    ("accepted", False),
)

one = Scenario(
    name="one hop: settle, fail or refuse; the sender may want an end",
    outcomes=("settled", "failed", "refused"),
    cancels=True,
    budget=1,
    faults=ALL,
)
line = Scenario(name="two hops", shape="line", budget=1, faults=ALL)
fan = Scenario(name="a fan", shape="fan", answerers=("D",), safe=("D",), budget=1)

SMALL = [
    one,
    replace(one, name="one hop: who is killed never returns", returns=False, outcomes=("settled",)),
    Scenario(
        name="one hop: two window managers, two keepers",
        managers=2,
        keepers=2,
        budget=1,
        faults=frozenset({"kill", "manager", "answer", "late"}),
    ),
    Scenario(
        name="one hop: attempts fail, a stray write",
        outcomes=("settled", "failed"),
        strays=STRAYS,
        budget=1,
        faults=frozenset({"kill"}),
    ),
    line,
    replace(
        line,
        name="two hops: a stray write",
        strays=STRAYS,
        workers=("A",),
        faults=frozenset({"kill"}),
    ),
    replace(line, name="two hops: the sender may want an end", cancels=True, workers=("A",)),
    replace(line, name="two hops: the first breaks the contract", broken=True),
    Scenario(
        name="one hop: the gate opens and shuts",
        shut=True,
        budget=2,
        faults=frozenset({"gate", "manager"}),
    ),
    replace(
        fan, name="a fan of two: killed, run again", workers=("A",), faults=frozenset({"kill"})
    ),
    replace(
        fan,
        name="a fan of one: killed or stood still, taken over",
        questions=1,
        faults=frozenset({"kill", "pause"}),
    ),
]

LARGE = [
    replace(one, name="one hop: all of it, two of each", managers=2, keepers=2),
    Scenario(
        name="one hop: attempts fail, two mishaps",
        outcomes=("settled", "failed"),
        budget=2,
        faults=ALL,
    ),
    Scenario(
        name="one hop: attempts fail, any mishap and a stray write",
        outcomes=("settled", "failed"),
        strays=STRAYS,
        budget=1,
        faults=ALL,
    ),
    replace(line, name="two hops: two of each", managers=2, keepers=2),
    replace(line, name="two hops: two mishaps", budget=2, faults=frozenset({"kill", "pause"})),
    replace(fan, name="a fan of two: killed or stood still", faults=frozenset({"kill", "pause"})),
]
