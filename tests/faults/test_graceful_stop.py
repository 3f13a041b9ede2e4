"""SIGTERM: an agent finishes what it works on, and what it had not begun is taken by another at
once, though a lease lasts 30 s."""

import signal
from pathlib import Path

import anyio
import pytest
from fault_bus import FLEET, fault_bus, wait_until

from batonbus import Bus, Sent, Settings, gather

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

LATEST = 5.0
"""Seconds after which another agent must have what the leaving one had not begun."""

FLOOD = 300

SHORT_GRACE = Settings(stop_grace=0.5, heartbeat=0.1)
"""The keeper soon trusts the registry; a lease lasts 30 s all the same."""


async def test_a_stopped_agent_finishes_and_hands_the_rest_over(tmp_path: Path) -> None:
    """It is stopped in the middle of a flood, so that messages are on their way to it."""
    async with fault_bus(tmp_path, Settings()) as faults:
        faults.start_parts()
        await faults.start_agents("worker_a")
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            long = await bus.send("worker", "3")
            assert (await long.receipt()).by == "worker-a"
            await faults.start_agents("worker_b")
            leaving = faults.programs["worker_a"]
            flood: list[Sent] = []
            for number in range(FLOOD):
                flood.append(await bus.send("worker", "0.05"))
                if number == FLOOD // 2:
                    leaving.send_signal(signal.SIGTERM)

            async def left() -> bool:
                return leaving.done

            with anyio.fail_after(20):
                await wait_until(left, "the agent did not stop", limit=20)
                await gather(long, *flood)
        assert leaving.codes == [0]
        chains = [await faults.chain(sent.handoff_id) for sent in (long, *flood)]
        for chain in chains:
            assert [it.event.kind for it in chain] == ["sent", "delivered", "accepted", "settled"]
        assert chains[0][-1].event.actor == "worker-a"
        late = [chain[2].event.at - chain[1].event.at for chain in chains]
        assert max(late) < LATEST
        by = {chain[2].event.actor for chain in chains}
        assert by == {"worker-a", "worker-b"}
        assert set(faults.effect_count().values()) == {1}


async def test_what_does_not_end_inside_the_grace_is_taken_by_another_at_once(
    tmp_path: Path,
) -> None:
    async with fault_bus(tmp_path, SHORT_GRACE) as faults:
        faults.start_parts()
        await faults.start_agents("single_a")
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            sent = await bus.send("single", "3")
            assert (await sent.receipt()).by == "single-a"
            await faults.start_agents("single_b")
            leaving = faults.programs["single_a"]
            leaving.send_signal(signal.SIGTERM)

            async def left() -> bool:
                return leaving.done

            await wait_until(left, "the agent did not stop", limit=10)
            taken = await faults.wait_for_event(sent.handoff_id, "accepted", count=2, limit=LATEST)
            assert taken.event.actor == "single-b"
            assert (await sent.result()).status == "PASS"
        assert leaving.codes == [0]
        assert set(faults.effect_count().values()) == {1}
