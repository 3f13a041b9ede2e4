"""Two window managers and two keepers do the same work: each step is written once."""

from pathlib import Path

import pytest
from fault_bus import FLEET, fault_bus

from batonbus import Bus

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

HANDOFFS = 100
"""Of each kind: those that are worked on, and those that nobody takes."""


async def test_two_managers_and_two_keepers_write_each_step_once(tmp_path: Path) -> None:
    async with fault_bus(tmp_path) as faults:
        faults.start_parts(each=2)
        await faults.start_agents("worker_a", "worker_b")
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            taken = [await bus.send("worker", "0") for _ in range(HANDOFFS)]
            not_taken = [await bus.send("nobody", "x") for _ in range(HANDOFFS)]
            for sent in taken:
                assert (await sent.result()).status == "PASS"
            for sent in not_taken:
                assert (await sent.receipt()).state == "overdue"
        for sent in taken:
            kinds = [it.event.kind for it in await faults.chain(sent.handoff_id)]
            assert kinds == ["sent", "delivered", "accepted", "settled"]
        for sent in not_taken:
            kinds = [it.event.kind for it in await faults.chain(sent.handoff_id)]
            assert kinds == ["sent", "delivered", "overdue"]
        delivered = [
            faults.programs[f"window-manager-{it}"].logged("handoff.delivered") for it in (0, 1)
        ]
        assert all(delivered), "both were at work"
        assert sum(delivered) == 2 * HANDOFFS
