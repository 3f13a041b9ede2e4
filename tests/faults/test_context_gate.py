"""An agent whose context fills up under load, and who is killed at each step of each reset: nothing
is lost, no reset is without its Checkpoint, and no step that is stored is done again."""

from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from fault_bus import FLEET, fault_bus, wait_until
from gate_agent import SESSION

from batonbus import Bus, Settings

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

HANDOFFS = 200
STEPS = ("began", "handoff", "checkpoint", "reset", "done")


async def test_a_kill_at_each_step_of_a_reset_loses_nothing(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    # Nobody is answered for while it waits: that is tested elsewhere.
    settings = Settings(receipt_timeout=60.0, ack_wait=1.5, heartbeat=0.5)
    async with fault_bus(tmp_path, settings) as faults:
        faults.start_parts()
        faults.start("builder", "gate_agent.py", **{SESSION: str(session)})

        async def is_there() -> bool:
            return any(it.card.role == "builder" for it in await faults.core.registry.list())

        await wait_until(is_there, "the builder did not come", limit=20)
        async with Bus(faults.server.url, actor="test", fleet=FLEET) as bus:
            with anyio.fail_after(60):
                sent = [await bus.send("builder", f"{number}") for number in range(HANDOFFS)]
                results = [(await it.result()).summary for it in sent]
        held = [
            event.event.reason
            for it in sent
            for event in await faults.core.ledger.read_chain(it.handoff_id)
            if event.event.kind == "held"
        ]
    assert results == [str(number) for number in range(HANDOFFS)]
    crashes = {it.name for it in session.iterdir()} - {"log", "usage"}
    assert crashes == {f"{when}-{step}" for when in ("before", "after") for step in STEPS}
    lines = [it.split() for it in (session / "log").read_text().splitlines()]
    assert {it[2] for it in lines if it[0] == "work"} >= {"open", "soft", "hard"}
    assert sorted(int(it[1]) for it in lines if it[0] == "work") == list(range(HANDOFFS))
    assert held == [] or {it.partition(":")[0] for it in held} == {"closed"}
    check_protocol(lines)


def check_protocol(lines: list[list[str]]) -> None:
    """Each step only behind the one before it, and none again that is stored."""
    stored: str = "done"
    for kind, *more in lines:
        match kind:
            case "handoff":
                assert stored == "began", lines
            case "reset":
                assert (stored, more[0]) == ("checkpoint", "True"), lines
            case "stored":
                after = {"done": "began", **dict(pairwise(STEPS))}
                assert more[0] == after[stored], (more[0], stored)
                stored = more[0]
            case _:
                assert stored == "done", lines
