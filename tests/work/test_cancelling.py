"""Cancelling a work: everything of it ends, whoever is at it."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from git_project import TASK, WORK, Project
from run_bench import operator, runner, start_run
from work_bench import (
    CHAIN,
    Job,
    Player,
    builder,
    bus_with,
    fleet,
    open_workshop,
    wait_until,
    write_work,
)

from batonbus import Agent, Bounced, Context
from batonbus.rules.chain import child_id
from batonbus.run.holding import Waiting
from batonbus.run.window_manager import WindowManager
from batonbus.wire.ledger import Draft
from batonbus.work.cancelling import cancel_work
from batonbus_agents.runtimes import parse_runtime
from batonbus_schemas import Dispatch, TaskResult, Then

ONE = {TASK: Job(("one.txt",))}

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    """Whether a process lives; one that nobody has asked for its exit code does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_the_scheduler_its_builder_and_all_that_the_builder_started_end(
    project: Project, tmp_path: Path
) -> None:
    write_work(project, CHAIN)
    pids = tmp_path / "pids"
    script = f"sleep 60 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"
    thinking = parse_runtime(f'command:sh -c "{script}"')
    workshop = await open_workshop(project, {"builder": thinking})
    async with fleet(workshop) as bus, operator(bus) as core, runner(bus) as sender:
        sent = await start_run(sender, workshop)
        await wait_until(pids.exists)
        both = [int(it) for it in pids.read_text().split()]
        assert all(map(is_alive, both))
        assert await cancel_work(core, WORK, "not wanted any more") == 2
        with pytest.raises(Bounced, match="cancelled by operator: not wanted any more"):
            await sent.result()
        await wait_until(lambda: not any(map(is_alive, both)))
        assert await cancel_work(core, WORK, "again") == 0
    assert os.getpid() not in both
    assert project.log() == ["first"]


async def test_other_works_go_on(project: Project) -> None:
    write_work(project, ONE)
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    release = anyio.Event()
    bystander = Agent("bystander")

    @bystander.handles
    async def wait(_: Dispatch, __: Context) -> TaskResult:
        await release.wait()
        return TaskResult.passed("Waited.")

    async with bus_with(bystander) as bus, operator(bus) as core:
        other = await bus.send("bystander", "Wait.", work="WORK-02")
        assert (await other.receipt()).state == "accepted"
        mine = await bus.send("nobody", "Do it.", work=WORK)
        assert await cancel_work(core, WORK, "no") == 1
        release.set()
        assert (await other.result()).status == "PASS"
        with pytest.raises(Bounced, match="cancelled"):
            await mine.result()
    assert workshop.folder(WORK).path.is_dir()


@pytest.mark.parametrize("stranger", [False, True])
async def test_what_a_settled_handoff_hands_on_is_cancelled_before_it_is_delivered(
    stranger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a stranger's event stands there already, that counts for nothing."""
    first, second = Agent("first"), Agent("second")
    done: list[str] = []
    settled, cancelled = anyio.Event(), anyio.Event()
    deliver = WindowManager._deliver  # pyright: ignore[reportPrivateUsage]

    @first.handles
    async def hand_on(_: Dispatch, __: Context) -> Then:
        return TaskResult.passed("Done my part.").then("second", "Do yours.")

    @second.handles
    async def work(_: Dispatch, ctx: Context) -> TaskResult:
        done.append(ctx.envelope.to)
        return TaskResult.passed("Done.")

    async def late(manager: WindowManager, waiting: Waiting, *more: Any, **how: Any) -> bool:
        if waiting.arrival.addressee == "second":
            settled.set()
            await cancelled.wait()
        return await deliver(manager, waiting, *more, **how)

    monkeypatch.setattr(WindowManager, "_deliver", late)
    async with bus_with(first, second) as bus, operator(bus) as core:
        sent = await bus.send("first", "Do it.", work=WORK)
        await settled.wait()
        if stranger:
            subject = bus.client.subject(child_id(sent.handoff_id), "settled", WORK, "test")
            await bus.client.ledger.append(Draft(subject=subject, payload=b"{}"), tail=0)
        assert await cancel_work(core, WORK, "not wanted") == 1
        cancelled.set()
        with anyio.fail_after(20), pytest.raises(Bounced, match="not wanted"):
            await sent.result()
    assert done == []


async def test_a_player_is_told_nothing_of_a_cancelled_work(project: Project) -> None:
    write_work(project, ONE)
    player = Player(lambda _: TaskResult.passed("Nothing."))
    workshop = await open_workshop(project, {"builder": player})
    async with bus_with() as bus, operator(bus) as core, runner(bus) as sender:
        sent = await start_run(sender, workshop)
        assert await cancel_work(core, WORK, "too late") == 1
        with pytest.raises(Bounced, match="too late"):
            await sent.result()
    assert player.given == []
