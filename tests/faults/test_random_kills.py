"""Every process is killed again and again while a hundred handoffs run: nothing is lost, nothing
counts twice."""

import random
from pathlib import Path

import anyio
import pytest
from fault_agents import ROLES
from fault_bus import FLEET, SERVER, FaultBus, fault_bus, wait_until
from fault_sender import KEYS, planned_ids, read_ids
from ledger_checker import check, read_messages

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

KILLS = 24
"""One by one; half way all eight are killed at once."""


@pytest.mark.parametrize("seed", [1, 2])
async def test_whoever_is_killed_every_handoff_settles_once(seed: int, tmp_path: Path) -> None:
    async with fault_bus(tmp_path) as bus:
        bus.start_parts()
        await bus.start_agents("worker_a", "worker_b", "planner_a", "planner_b")
        sender = bus.start("sender", "fault_sender.py", str(tmp_path), "8")
        chance = random.Random(seed)
        await kill_at_random(bus, chance, KILLS // 2)
        kill_all(bus)
        await kill_at_random(bus, chance, KILLS // 2)

        async def ended() -> bool:
            return sender.done

        await wait_until(ended, "the work did not end", limit=60)
        messages = await read_messages(bus.server.url, FLEET)

    complaints = check(
        messages,
        acknowledged=read_ids(tmp_path / "acknowledged"),
        planned=planned_ids(),
        keys=KEYS,
        agents=ROLES,
    )
    assert complaints == []
    ends = set((tmp_path / "ended").read_text().splitlines())
    assert ends == {f"{handoff} PASS" for handoff in planned_ids()}
    settled = {it.handoff for it in messages if it.kind == "settled"}
    assert settled == {it.handoff for it in messages}
    assert settled == set(bus.effect_count()), "each settled handoff had its effect"


async def kill_at_random(bus: FaultBus, chance: random.Random, kills: int) -> None:
    """Kill one process after the other, the server among them, each living when it is hit."""
    killed = 0
    while killed < kills:
        await anyio.sleep(chance.uniform(0.3, 0.8))
        killed += bus.kill(chance.choice([*bus.programs, SERVER]))


def kill_all(bus: FaultBus) -> None:
    """All of them in one instant, as when a machine's processes are swept away."""
    for name in (*bus.programs, SERVER):
        bus.kill(name)
