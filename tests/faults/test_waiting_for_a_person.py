"""A question waits for a person while every process dies and comes back."""

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from fault_bus import FAST, FLEET, fault_bus
from msgspec.structs import replace

from batonbus import Bus
from batonbus.rules.chain import keyed_id

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

PROGRAMS = ("asker_a", "window-manager-0", "receipt-keeper-0")


async def test_a_question_outlives_every_process_of_its_bus(tmp_path: Path) -> None:
    settings = replace(FAST, receipt_timeout=2.0, give_up_after=2.0)
    async with fault_bus(tmp_path, settings) as faults:
        faults.start_parts()
        await faults.start_agents("asker_a")
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            sent = await bus.send("asker", "Ship it?")
            question = keyed_id(sent.handoff_id, "question")
            held = await faults.wait_for_event(question, "held")
            assert held.event.reason == "waits for a person as lead"
            assert all(faults.kill(name) for name in PROGRAMS)
            async with faults.outage():
                pass
            # The asker runs again, and asks the same.
            await faults.wait_for_event(sent.handoff_id, "accepted", count=2)
            answered = await anyio.run_process(
                [sys.executable, "-m", "batonbus", "answer", str(question)[:8], "1", "--as", "ada"],
                env={**os.environ, "BATONBUS_URL": faults.server.url, "BATONBUS_FLEET": FLEET},
            )
            assert answered.stdout.decode() == f"person-ada answered {question}: yes\n"
            with anyio.fail_after(20):
                assert (await sent.result()).text == "The lead says yes."
        asked = [it.event.kind for it in await faults.chain(question)]
        own = [it.event for it in await faults.chain(sent.handoff_id)]
        killed = [faults.programs[name].codes for name in PROGRAMS]
    assert asked == ["sent", "delivered", "held", "accepted", "settled"]
    assert [(it.attempt, it.lease) for it in own if it.kind == "accepted"] == [(1, 1), (1, 2)]
    assert faults.effect_count() == {sent.handoff_id: 1}
    assert killed == [[-signal.SIGKILL]] * 3
