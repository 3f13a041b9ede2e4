"""An agent whose context fills up under load, and who is killed at each step of each reset: nothing
is lost, no reset is without its Checkpoint, and no step that is stored is done again. Where the
context fills up inside a handler, nothing is begun there, and nothing said, before the reset."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from fault_bus import FLEET, fault_bus, wait_until
from gate_agent import EVERY, SESSION

from batonbus import Bus, Settings
from batonbus.wire.ledger import Stored

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

HANDOFFS = 200
PACE = 0.01
"""Seconds between two handoffs, so that some come while the agent is closed."""

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
            with anyio.fail_after(90):
                sent = []
                for number in range(HANDOFFS):
                    sent.append(await bus.send("builder", f"{number}", work="w"))
                    await anyio.sleep(PACE)
                results = [(await it.result()).summary for it in sent]
        chains = [await faults.core.ledger.read_chain(it.handoff_id) for it in sent]
    assert results == [str(number) for number in range(HANDOFFS)]
    crashes = {it.name for it in session.iterdir() if it.name.startswith(("mid-", "be", "af"))}
    points = [f"{when}-{step}" for when in ("before", "after") for step in STEPS]
    points.append("behind-entry")
    assert crashes == {*points, *(f"mid-{it}" for it in points)}
    lines = [it.split() for it in (session / "log").read_text().splitlines()]
    assert {it[2] for it in lines if it[0] == "work"} >= {"open", "soft", "hard"}
    # What was killed in a handler is worked on once more, and nothing else is.
    worked = Counter(int(it[1]) for it in lines if it[0] == "work")
    assert set(worked) == set(range(HANDOFFS))
    assert sum(worked.values()) == HANDOFFS + len(points)
    check_protocol(lines)
    check_kept_back(lines)
    check_held(chains)
    check_entries(lines)


def check_entries(lines: list[list[str]]) -> None:
    """Each stored Checkpoint stands once in the fleet's own log."""
    entries = [it[1] for it in lines if it[0] == "entry"]
    assert len(entries) == len(set(entries)) == lines.count(["stored", "checkpoint"])


def check_kept_back(lines: list[list[str]]) -> None:
    """What was in work at emergency began nothing more, and was settled only behind a reset."""
    assert not [it for it in lines if it[0] == "slipped"]
    full = [(place, it[1]) for place, it in enumerate(lines) if it[0] == "emergency"]
    assert len(full) == HANDOFFS // EVERY
    for place, handoff in full:
        settled = lines.index(["settled", handoff])
        assert ["stored", "done"] in lines[place:settled], lines[place:settled]


def check_held(chains: list[list[Stored]]) -> None:
    """What came while the agent was closed was held for that, and delivered in ledger order."""
    held = [it for it in chains if any(event.event.kind == "held" for event in it)]
    reasons = {event.event.reason for it in held for event in it if event.event.kind == "held"}
    assert held
    assert {it.partition(":")[0] for it in reasons} == {"closed"}
    delivered = [
        event.event.sequence for it in held for event in it if event.event.kind == "delivered"
    ]
    assert delivered == sorted(delivered)


def check_protocol(lines: list[list[str]]) -> None:
    """Each step only behind the one before it, and none again that is stored."""
    stored, fresh = "done", False
    for kind, *more in lines:
        match kind:
            case "handoff":
                assert stored == "began", lines
            case "entry":
                assert stored == "handoff", lines
            case "reset":
                assert (stored, more[0]) == ("checkpoint", "True"), lines
            case "stored":
                after = {"done": "began", **dict(pairwise(STEPS))}
                assert more[0] == after[stored], (more[0], stored)
                stored = more[0]
                fresh = stored == "done"
            case "work":
                assert stored == "done", lines
                # A reset came down to the target, and this is the first work behind it.
                assert more[1] == "open" or not fresh, more
                fresh = False
            case _:
                assert stored == "done", lines
