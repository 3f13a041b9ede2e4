"""An agent that was stopped for longer than its lease comes back: it changes nothing any more."""

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid5

import pytest
from fault_bus import FLEET, FaultBus, Program, fault_bus, wait_until

from batonbus import Bus, Sent

pytestmark = [pytest.mark.faults, pytest.mark.anyio]


@asynccontextmanager
async def fleet(folder: Path, *agents: str) -> AsyncGenerator[tuple[FaultBus, Bus]]:
    async with fault_bus(folder) as faults:
        faults.start_parts()
        await faults.start_agents(*agents)
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            yield faults, bus


async def stop_owner(faults: FaultBus, sent: Sent) -> Program:
    """Stop whoever accepted it, and wait until another one has taken over."""
    accepted = await faults.wait_for_event(sent.handoff_id, "accepted")
    owner = faults.of_agent(accepted.event.actor)
    owner.send_signal(signal.SIGSTOP)
    taken = await faults.wait_for_event(sent.handoff_id, "accepted", count=2)
    assert taken.event.actor != accepted.event.actor
    return owner


async def kinds(faults: FaultBus, sent: Sent) -> list[str]:
    return [it.event.kind for it in await faults.chain(sent.handoff_id)]


async def test_a_stale_answer_changes_nothing_and_its_agent_works_on(tmp_path: Path) -> None:
    async with fleet(tmp_path, "single_a", "single_b") as (faults, bus):
        sent = await bus.send("single", "1.0")
        stale = await stop_owner(faults, sent)
        await sent.result()
        stale.send_signal(signal.SIGCONT)

        async def was_stale() -> bool:
            return stale.logged("answer.stale") + stale.logged("lease.lost") == 1

        await wait_until(was_stale, "the stopped agent did not answer", limit=10)
        assert await kinds(faults, sent) == ["sent", "delivered", "accepted", "accepted", "settled"]
        again = await bus.send((await faults.chain(sent.handoff_id))[2].event.actor, "0")
        assert (await again.result()).status == "PASS"
        assert stale.codes == [], "it went on, it was not started again"


async def test_a_stale_answer_does_not_take_the_message_from_the_new_owner(tmp_path: Path) -> None:
    """If it were acked, nobody would get it when the new owner dies, too."""
    async with fleet(tmp_path, "single_a", "single_b") as (faults, bus):
        sent = await bus.send("single", "2.5")
        stale = await stop_owner(faults, sent)
        stale.send_signal(signal.SIGCONT)

        async def was_stale() -> bool:
            return stale.logged("answer.stale") + stale.logged("lease.lost") == 1

        await wait_until(was_stale, "the stopped agent did not answer", limit=10)
        owner = (await faults.wait_for_event(sent.handoff_id, "accepted", count=2)).event.actor
        faults.of_agent(owner).send_signal(signal.SIGKILL)
        await faults.wait_for_event(sent.handoff_id, "accepted", count=3, limit=10)
        assert (await sent.result()).status == "PASS"


async def test_a_stale_handler_takes_no_key_from_the_new_owner(tmp_path: Path) -> None:
    """Both hear the same answer and send on by the same key, the stale one first."""
    async with fleet(tmp_path, "planner_a", "planner_b", "worker_a") as (faults, bus):
        sent = await bus.send("planner", "4 0.1")
        stale = await stop_owner(faults, sent)
        stale.send_signal(signal.SIGCONT)
        assert (await sent.result()).status == "PASS"
        assert (await kinds(faults, sent)).count("settled") == 1


async def test_who_took_over_hears_the_end_of_the_lines_that_were_begun(tmp_path: Path) -> None:
    async with fleet(tmp_path, "planner_a", "planner_b", "worker_a") as (faults, bus):
        sent = await bus.send("planner", "0.1 0.7")
        # The handler's second send is a line of two: its first is settled, its second is at work.
        await faults.wait_for_event(uuid5(sent.handoff_id, "send:right"), "settled")
        await stop_owner(faults, sent)
        assert (await sent.result()).status == "PASS"
