"""Checkpoints and a fleet's records: they agree, or nothing is reset and the agent says why."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from gate_bench import until
from msgspec.structs import replace

from batonbus import (
    Agent,
    Bus,
    CheckpointRequest,
    CompactionError,
    Context,
    Entry,
    Evidence,
    ResetDone,
    ResetRequest,
)
from batonbus.rules.policy import ContextManagement, Policy
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_operator
from batonbus.wire.agreed import store_policy
from batonbus_schemas import (
    CompactionHandoff,
    ContextUsage,
    Dispatch,
    FileChange,
    ResetJournal,
    TaskResult,
)

pytestmark = pytest.mark.anyio

TEN_FIELDS = CompactionHandoff(
    **{**dict.fromkeys(CompactionHandoff.__struct_fields__, "said"), "current_phase": "implement"}
)
ENTRY = Entry(phase="implement", did="did", checks="checks", next="next", context="context")
AGREES = Evidence(
    phase="implement",
    done=frozenset({"TASK-01"}),
    marked=frozenset({"TASK-01"}),
    changed_files=("a.py",),
    entry=ENTRY,
)
FAILS = {
    "progress marks": replace(AGREES, marked=frozenset()),
    "execution log": replace(AGREES, entry=replace(ENTRY, next="")),
    "phase": replace(AGREES, phase="close"),
    "tree": replace(AGREES, changed_files=("a.py", "b.py")),
}


class Fleet:
    """A builder, its session where it has one, and the records of its fleet; `steps` is all that
    was asked of them, in order."""

    def __init__(self, evidence: Evidence = AGREES, *, session: bool = True) -> None:
        self.agent = Agent("builder", id="builder-1")
        self.evidence = evidence
        self.steps: list[str] = []
        self.requests: list[CheckpointRequest] = []
        self.resets: list[ResetRequest] = []
        self.agent.handles(self.work)
        self.agent.checkpoints(self.keep)
        if session:
            self.agent.resets(self.reset)

    async def work(self, task: Dispatch, ctx: Context) -> TaskResult:
        self.steps.append(f"work {task.brief}")
        change = FileChange(action="created", path="a.py")
        return TaskResult.passed(what=task.brief, files=(change,))

    async def reset(self, request: ResetRequest) -> ResetDone:
        self.steps.append(f"{request.step} {request.verb}")
        self.resets.append(request)
        usage = ContextUsage(source="measured", percent=20)
        return ResetDone(handoff=TEN_FIELDS, changed_files=("a.py",), usage=usage)

    async def keep(self, request: CheckpointRequest) -> Evidence:
        self.steps.append(request.step)
        self.requests.append(request)
        return self.evidence if request.step == "write" else replace(self.evidence, entry=None)

    async def do(self, bus: Any, brief: str, task: str | None = "TASK-01", work: str = "w") -> None:
        """Send, and wait for the result."""
        await (await bus.send("builder", brief, work=work, task=task)).result()


async def journal(bus: Any) -> ResetJournal | None:
    async with Bus(bus.server.url, actor="reader") as reader:
        return await reader.client.checkpoints.get("builder-1")


async def closed(bus: Any) -> str:
    """Why the builder is closed; empty where it is not there."""
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        return next((it.closed for it in await core.registry.list()), "")


async def until_closed(bus: Any, reason: str) -> str:
    while True:
        if reason in (found := await closed(bus)):
            return found
        await anyio.sleep(0.02)


@asynccontextmanager
async def running(open_bus: Any, fleet: Fleet, **settings: Any) -> AsyncGenerator[Any]:
    """A bus whose policy stood there before the builder came."""
    policy = Policy(context_management=ContextManagement(**settings))
    async with open_bus() as bus, anyio.create_task_group() as tasks:
        async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
            await store_policy(core.connection, DEFAULT_FLEET, policy)
        tasks.start_soon(bus.run, fleet.agent)
        yield bus
        tasks.cancel_scope.cancel()


async def test_a_checkpoint_that_agrees_is_compared_written_stored_and_only_then_reset(
    open_bus: Any,
) -> None:
    fleet = Fleet()
    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
        await fleet.do(bus, "two", "TASK-02")
        stored = await journal(bus)
    assert fleet.steps == [
        *("work one", "handoff compact", "compare", "write", "reset compact"),
        "work two",
    ]
    compared, written = fleet.requests
    assert compared.last is not None
    assert compared.last.result is not None
    assert (compared.last.envelope.task, compared.last.result.summary) == ("TASK-01", "one")
    assert stored is not None
    assert compared.checkpoint == written.checkpoint == stored.checkpoint
    assert (written.checkpoint.work, written.checkpoint.task) == ("w", "TASK-01")
    assert written.checkpoint.context == "compact: compaction required: task boundary"


@pytest.mark.parametrize("condition", FAILS)
async def test_a_checkpoint_that_fails_a_condition_names_it_and_nothing_is_reset(
    open_bus: Any, condition: str
) -> None:
    fleet = Fleet(FAILS[condition])
    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
        sent = await bus.send("builder", "two", work="w", task="TASK-02")
        reason = await until_closed(bus, "refused")
        receipt = await (await bus.send("builder", "three", work="w", task="TASK-02")).receipt()
        stored = await journal(bus)
        assert reason.startswith(f"Checkpoint refused: {condition}: ")
        assert receipt.state == "held"
        assert receipt.reason == f"closed: {reason}"
        assert stored is not None
        assert (stored.step, stored.checkpoint) == ("handoff", None)
        assert not any(it.startswith(("reset", "work two")) for it in fleet.steps)
        # Nothing is written of what does not agree; only what is read back can be wrong then.
        assert ("write" in fleet.steps) == (condition == "execution log")
        # It is looked at again: when the facts are mended, the flow goes on by itself.
        fleet.evidence = AGREES
        assert (await sent.result()).summary == "two"
    assert [it.step for it in fleet.resets] == ["handoff", "reset"]


async def test_the_session_states_its_phase_and_is_wrong_about_it(open_bus: Any) -> None:
    fleet = Fleet(replace(AGREES, phase=None))

    @fleet.agent.resets
    async def reset(request: ResetRequest) -> ResetDone:
        fleet.resets.append(request)
        handoff = replace(TEN_FIELDS, current_phase="close")
        return ResetDone(handoff=handoff, changed_files=("a.py",))

    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
        await bus.send("builder", "two", work="w", task="TASK-02")
        reason = await until_closed(bus, "refused")
    assert reason == "Checkpoint refused: phase: it says close, the ledger implement"
    assert [it.step for it in fleet.resets] == ["handoff"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (ValueError("no disk"), "Checkpoint: its compare failed: ValueError: no disk"),
        ("fine", "Checkpoint: its compare returned str, not Evidence"),
    ],
)
async def test_records_that_cannot_be_read_close_the_agent(
    open_bus: Any, wrong: Any, told: str
) -> None:
    fleet = Fleet()

    @fleet.agent.checkpoints
    async def keep(request: CheckpointRequest) -> Evidence:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
        await bus.send("builder", "two", work="w", task="TASK-02")
        assert await until_closed(bus, "Checkpoint") == told
    assert [it.step for it in fleet.resets] == ["handoff"]


async def test_a_checkpoint_without_its_entry_in_the_log_does_not_count(open_bus: Any) -> None:
    fleet = Fleet(replace(AGREES, entry=None))
    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
        await bus.send("builder", "two", work="w", task="TASK-02")
        reason = await until_closed(bus, "refused")
    assert reason == "Checkpoint refused: execution log: it has no entry of this Checkpoint"


async def test_another_work_clears_another_task_compacts_and_what_is_outside_changes_nothing(
    open_bus: Any,
) -> None:
    fleet = Fleet(Evidence(entry=ENTRY))
    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
        await fleet.do(bus, "aside", None, "adhoc")
        await fleet.do(bus, "still one")
        assert not fleet.resets
        await fleet.do(bus, "aside", None, "adhoc")
        await fleet.do(bus, "two", "TASK-02")
        await fleet.do(bus, "other", "TASK-02", "v")
    assert [(it.step, it.verb, it.reason.split(": ")[1]) for it in fleet.resets] == [
        ("handoff", "compact", "task boundary"),
        ("reset", "compact", "task boundary"),
        ("handoff", "clear", "phase boundary"),
        ("reset", "clear", "phase boundary"),
    ]
    # What was done aside does not take the place of the work.
    assert [it.checkpoint.task for it in fleet.requests] == ["TASK-01"] * 2 + ["TASK-02"] * 2


@pytest.mark.parametrize("session", [True, False])
async def test_off_does_nothing(open_bus: Any, session: bool) -> None:
    fleet = Fleet(session=session)
    async with running(open_bus, fleet, task_boundary="off") as bus:
        for number in range(3):
            await fleet.do(bus, "x", f"TASK-0{number}")
        assert await journal(bus) is None
    assert fleet.steps == ["work x"] * 3


async def test_off_between_phases_leaves_the_checkpoint_and_no_reset(
    open_bus: Any,
) -> None:
    fleet = Fleet()
    async with running(open_bus, fleet, phase_boundary="off") as bus:
        await fleet.do(bus, "one")
        await fleet.do(bus, "two", work="v")
        stored = await journal(bus)
    assert fleet.steps == ["work one", "compare", "write", "work two"]
    assert stored is not None
    assert stored.checkpoint is not None
    assert (stored.step, stored.checkpoint.work) == ("done", "w")


async def test_a_refused_checkpoint_that_no_reset_waits_for_closes_nothing(
    open_bus: Any,
) -> None:
    fleet = Fleet(FAILS["execution log"])
    async with running(open_bus, fleet, phase_boundary="off") as bus:
        await fleet.do(bus, "one")
        await fleet.do(bus, "two", work="v")
        stored = await journal(bus)
        # What comes behind it begins with its own.
        fleet.evidence = AGREES
        await fleet.do(bus, "three", "TASK-02", "v")
    assert stored is not None
    assert (stored.step, stored.checkpoint) == ("done", None)
    assert fleet.requests[-1].checkpoint.work == "v"
    assert fleet.steps[-2:] == ["reset compact", "work three"]


async def test_without_a_session_each_handoff_of_a_work_ends_with_its_checkpoint(
    open_bus: Any,
) -> None:
    fleet = Fleet(replace(AGREES, next="Take TASK-02."), session=False)
    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "aside", None, "adhoc")
        assert await journal(bus) is None
        await fleet.do(bus, "one")
        await until(lambda: "write" in fleet.steps)
        await fleet.do(bus, "two")
        await until(lambda: fleet.steps.count("write") == 2)
        await fleet.do(bus, "aside", None, "adhoc")
        stored = await journal(bus)
    assert fleet.steps == [
        *("work aside", "work one", "compare", "write", "work two", "compare", "write"),
        "work aside",
    ]
    assert stored is not None
    assert stored.checkpoint == fleet.requests[-1].checkpoint
    assert stored.checkpoint is not None
    assert (stored.step, stored.checkpoint.did) == ("done", "two")
    assert stored.checkpoint.next == "Take TASK-02."
    assert stored.checkpoint.context == "clear: task boundary"
    assert stored.checkpoint.changed_files == ("a.py",)


@pytest.mark.parametrize("condition", FAILS)
async def test_without_a_session_a_checkpoint_that_fails_closes_the_agent_too(
    open_bus: Any, condition: str
) -> None:
    fleet = Fleet(FAILS[condition], session=False)
    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
        reason = await until_closed(bus, "refused")
        assert reason.startswith(f"Checkpoint refused: {condition}: ")
        sent = await bus.send("builder", "two", work="w", task="TASK-02")
        assert (await sent.receipt()).reason == f"closed: {reason}"
        stored = await journal(bus)
        assert stored is None or stored.checkpoint is None
        fleet.evidence = AGREES
        await sent.result()
    assert fleet.steps[-1] in {"work two", "compare", "write"}


async def test_a_failed_attempt_leaves_no_checkpoint(open_bus: Any) -> None:
    fleet = Fleet(Evidence(entry=ENTRY), session=False)

    @fleet.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        fleet.steps.append(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return TaskResult.passed(what="done")

    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
        await until(lambda: "write" in fleet.steps)
    assert fleet.steps == ["attempt 1", "attempt 2", "compare", "write"]
    assert fleet.requests[0].last is not None
    assert fleet.requests[0].last.attempt == 2


@pytest.mark.parametrize("session", [True, False])
async def test_who_died_behind_the_entry_writes_the_same_checkpoint_again(
    open_bus: Any, session: bool
) -> None:
    """The record finds it again by its moment, and has it once."""
    fleet = Fleet(session=session)
    began = ResetJournal(
        agent="builder-1",
        step="handoff",
        verb="clear",
        reason="task boundary",
        began=datetime.now(UTC),
        work="w",
        task="TASK-01",
        handoff=TEN_FIELDS,
        changed_files=("a.py",),
    )
    async with open_bus() as bus:
        async with Bus(bus.server.url, actor="builder-1") as before:
            await before.client.checkpoints.put(began)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, fleet.agent)
            await fleet.do(bus, "two", "TASK-02")
            tasks.cancel_scope.cancel()
    assert fleet.steps[:2] == ["compare", "write"]
    request = fleet.requests[1]
    assert (request.step, request.last) == ("write", None)
    assert request.checkpoint.written == began.began
    assert (request.checkpoint.did, request.checkpoint.next) == ("said", "said")


async def test_in_the_middle_of_a_task_the_checkpoint_must_agree_too(open_bus: Any) -> None:
    fleet = Fleet(FAILS["tree"])
    seen: list[str] = []

    @fleet.agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        with pytest.raises(CompactionError, match="tree: changed and not listed"):
            await ctx.compact()
        fleet.evidence = AGREES
        await ctx.compact()
        seen.extend(fleet.steps)
        return TaskResult.passed(what="done")

    async with open_bus(fleet.agent) as bus:
        await fleet.do(bus, "one")
    assert seen == ["handoff compact", "compare", "compare", "write", "reset compact"]
    last = fleet.requests[0].last
    assert last is not None
    assert (last.envelope.task, last.result) == ("TASK-01", None)


async def test_an_agent_without_hooks_stores_and_reads_nothing_between_its_tasks(
    open_bus: Any,
) -> None:
    agent = Agent("builder", id="builder-1")
    stores: list[Any] = []

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult.passed(what="done")

    async with open_bus(agent) as bus:
        for number in range(5):
            sent = await bus.send("builder", "x", work=f"w{number % 2}", task=f"TASK-0{number}")
            await sent.result()
        stores.append(await journal(bus))
    assert stores == [None]


def test_a_hook_of_another_shape_is_refused() -> None:
    agent = Agent("builder")
    for wrong in (lambda request: Evidence(), Fleet.keep):
        with pytest.raises(TypeError, match="must"):
            agent.checkpoints(wrong)  # type: ignore[arg-type]
    assert agent.keep is None
