"""Any plan, any findings, any crash: what the scheduler asks, and how every task ends."""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid5

import anyio
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from batonbus import Bounced, Context
from batonbus_agents.routes import STAGES
from batonbus_agents.scheduler import Scheduling
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.task import TaskSpec
from batonbus_agents.workshop import Task, Workshop
from batonbus_schemas import Dispatch, Receipt, TaskResult

NAME = UUID(int=0)


@dataclass
class Ledger:
    """What was sent by key, and how each (task, role, attempt) ends: PASS, FAIL, or an exception;
    the scheduler is stopped after `crash_after` sends."""

    findings: dict[tuple[str, str, int], str]
    chance: random.Random
    sent: dict[str, tuple[object, ...]] = field(default_factory=dict)
    attempts: list[tuple[str, str, int]] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    crash_after: int = 10_000

    async def send(
        self, to: str, body: Dispatch, *, key: str, task: str, after: list["Asked"], attempt: int
    ) -> "Asked":
        content = (to, body, task, tuple(it.key for it in after))
        known = self.sent.setdefault(key, content)
        assert known == content, f"{key} is sent again with other content"
        assert all(it.key in self.ended for it in after), "it names what has not ended"
        if len(self.sent) >= self.crash_after:
            await anyio.sleep_forever()
        return Asked(self, key, task, to, attempt)


@dataclass
class Asked:
    """A handoff that was sent."""

    ledger: Ledger
    key: str
    task: str
    role: str
    attempt: int

    async def result(self) -> TaskResult:
        """Exceptions are tried again by the runtime, up to the third attempt in all."""
        for _ in range(self.ledger.chance.randrange(4)):
            await anyio.lowlevel.checkpoint()
        while True:
            self.ledger.attempts.append((self.task, self.role, self.attempt))
            finding = self.ledger.findings.get((self.task, self.role, self.attempt), "PASS")
            if finding != "raise":
                break
            if self.attempt == 3:
                handoff = uuid5(NAME, self.key)
                raise Bounced(Receipt(handoff_id=handoff, state="dead", by="keeper", reason="no"))
            self.attempt += 1
        self.ledger.ended.add(self.key)
        make = TaskResult.passed if finding == "PASS" else TaskResult.failed
        return make(f"{self.role} has looked.")


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Task]:
    """Tasks that need some of those before them, some with the same file."""
    names = [f"TASK-{it:02d}" for it in range(1, draw(st.integers(2, 7)))]
    rows = [
        PlanTask(
            id=name,
            depends_on=tuple(sorted(draw(st.sets(st.sampled_from(names[:place]), max_size=2))))
            if place
            else (),
            files=(FileEntry(draw(st.sampled_from("abcdef"))),),
        )
        for place, name in enumerate(names)
    ]
    plan = Plan(work="WORK-01", tasks=tuple(rows))
    return {it.id: Task(plan=plan, planned=it, spec=TaskSpec(id=it.id)) for it in rows}


FINDINGS = st.dictionaries(
    st.tuples(
        st.sampled_from([f"TASK-{it:02d}" for it in range(1, 7)]), st.sampled_from(STAGES["full"])
    ),
    st.tuples(*[st.sampled_from(["FAIL", "raise", "PASS"])] * 3),
    max_size=4,
).map(
    lambda found: {
        (*who, attempt): finding
        for who, each in found.items()
        for attempt, finding in enumerate(each, start=1)
    }
)


async def life(tasks: dict[str, Task], ledger: Ledger) -> TaskResult | None:
    """One life of a scheduler; None where it was stopped."""
    nowhere = SimpleNamespace(path=Path("nowhere"))
    workshop = SimpleNamespace(tasks=lambda _: tasks, repository=nowhere)
    log = SimpleNamespace(info=lambda *_, **__: None)
    envelope = SimpleNamespace(work="WORK-01")
    ctx = SimpleNamespace(send=ledger.send, log=log, envelope=envelope)
    body = Dispatch(brief="Run it.")
    scheduling = Scheduling(cast("Workshop", workshop), cast("Context", ctx), body)
    with anyio.move_on_after(0.02 if ledger.crash_after < 10_000 else 5):
        return await scheduling.run()
    return None


def statuses(result: TaskResult) -> dict[str, str]:
    """What is reported of each task."""
    return {
        it.name: "PASS" if it.status == "PASS" else it.output.split(":")[0]
        for it in result.verification
    }


@given(plans(), FINDINGS, st.integers(0, 1_000))
@settings(max_examples=60, deadline=None)
def test_every_task_ends_and_nobody_makes_a_fourth_attempt(
    tasks: dict[str, Task], findings: dict[tuple[str, str, int], str], seed: int
) -> None:
    ledger = Ledger(findings, random.Random(seed))
    result = anyio.run(life, tasks, ledger)
    assert result is not None
    ended = statuses(result)
    assert set(ended) == set(tasks)
    assert set(ended.values()) <= {"PASS", "FAILED", "BLOCKED"}
    assert result.status == ("PASS" if set(ended.values()) == {"PASS"} else "FAIL")
    for task, status in ended.items():
        needs = [ended[it] for it in tasks[task].planned.depends_on]
        if set(needs) - {"PASS"}:
            assert status == "BLOCKED"
        if status == "BLOCKED":
            assert "FAILED" in ended.values()
            assert not any(name == task for name, _, _ in ledger.attempts)
    made = Counter(ledger.attempts)
    assert set(made.values()) <= {1}, "an attempt is made once"
    assert max(attempt for _, _, attempt in made) <= 3


@given(plans(), FINDINGS, st.integers(0, 1_000), st.lists(st.integers(1, 12), max_size=3))
@settings(max_examples=40, deadline=None)
def test_after_any_crash_the_same_is_asked_and_a_work_that_passes_passes(
    tasks: dict[str, Task],
    findings: dict[tuple[str, str, int], str],
    seed: int,
    crashes: list[int],
) -> None:
    ledger = Ledger(findings, random.Random(seed))
    for sends in sorted(crashes):
        ledger.crash_after = sends
        anyio.run(life, tasks, ledger)
    ledger.crash_after = 10_000
    result = anyio.run(life, tasks, ledger)
    undisturbed = anyio.run(life, tasks, Ledger(findings, random.Random(seed)))
    assert result is not None
    assert undisturbed is not None
    assert result.status == undisturbed.status
    if result.status == "PASS":
        assert statuses(result) == statuses(undisturbed)
