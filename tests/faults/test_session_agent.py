"""An agent that is a program with a session, killed around the steps of its resets and in the
middle of its work: nothing is lost, no session is compacted twice or without its Checkpoint, and
each new one starts from the last Checkpoint."""

from pathlib import Path

import anyio
import pytest
from fault_bus import FLEET, fault_bus, wait_until
from gate_agent import SESSION
from played_claude import DEADLY
from test_context_gate import STEPS

from batonbus import Bus, Settings

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

HANDOFFS = 24
PLACE = {"work": "w", "task": "TASK-01"}
CRASHES = {"before-handoff", "after-checkpoint", "before-reset", "after-reset"}
"""Asked, not stored; stored, not reset; reset, not stored; reset, not open."""


async def test_a_program_that_is_killed_around_its_resets_loses_nothing(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    for point in {f"{when}-{step}" for when in ("before", "after") for step in STEPS} - CRASHES:
        (session / point).touch()
    settings = Settings(receipt_timeout=60.0, ack_wait=1.5, heartbeat=0.5)
    async with fault_bus(tmp_path, settings) as faults:
        faults.start_parts()
        builder = faults.start("builder", "session_agent.py", **{SESSION: str(session)})

        async def is_there() -> bool:
            return any(it.card.role == "builder" for it in await faults.core.registry.list())

        await wait_until(is_there, "the builder did not come", limit=20)
        async with Bus(faults.server.url, actor="test", fleet=FLEET) as bus:
            with anyio.fail_after(60):
                # Behind the deadly one nothing waits that would be worked on before it comes again.
                results = list[str]()
                for numbers in (range(DEADLY + 1), range(DEADLY + 1, HANDOFFS)):
                    sent = [await bus.send("builder", f"number {it}.", **PLACE) for it in numbers]
                    results += [(await it.result()).summary for it in sent]
    assert results == ["Done."] * HANDOFFS
    assert builder.codes[: len(CRASHES) + 1] == [-9] * (len(CRASHES) + 1)
    assert {it.name for it in session.iterdir()} >= {*CRASHES, "killed"}
    check_resets([it.split() for it in (session / "log").read_text().splitlines()])


def check_resets(lines: list[list[str]]) -> None:
    """One question and one compaction a reset at most, only behind what must come before them; and
    whoever begins afresh behind a Checkpoint is told it."""
    resets: list[list[str]] = []
    for kind, *more in lines:
        match kind:
            case "stored" if more[0] == "began":
                resets.append([])
            case "stored":
                resets[-1].append(more[0])
            case "ask":
                assert resets[-1] == [], lines
                resets[-1].append("asked")
            case "compact":
                assert resets[-1][-1] == "checkpoint", lines
                resets[-1].append("compacted")
            case "work":
                resumed, is_told = more
                assert not resets or resets[-1][-1] == "done", lines
                # Of the first reset its own ten fields were lost, and there were none before them.
                if resumed == "False" and len(resets) != 1:
                    assert is_told == str(len(resets) > 1), lines
            case _:
                pass
    steps = [it for it in STEPS if it != "began"]
    for reset in resets:
        assert [it for it in reset if it in steps] == steps, resets
        assert reset.count("asked") <= 1, resets
        assert reset.count("compacted") <= 1, resets
    assert any({"asked", "compacted"} <= set(it) for it in resets), resets
    # What was lost with the process has nothing to say, and nothing to compact.
    assert any(not {"asked", "compacted"} & set(it) for it in resets), resets
