"""The server is away for longer than every lease while fifty handoffs are worked on."""

from pathlib import Path

import anyio
import pytest
from fault_bus import FAST, FLEET, fault_bus
from msgspec.structs import replace

from batonbus import Bus, gather

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

HANDOFFS = 50
LEASES = 1.2
"""Lengths of a lease that the server is away."""

HANGS_FOR = 0.5
"""Seconds that the server hangs before it dies: the agents' heartbeats of that time are lost."""


async def test_an_outage_longer_than_the_leases_takes_nothing_from_living_agents(
    tmp_path: Path,
) -> None:
    """Every other handler ends while the server is away, the rest when it is back."""
    settings = replace(FAST, receipt_timeout=30)
    async with fault_bus(tmp_path, settings) as faults:
        faults.start_parts()
        await faults.start_agents("worker_a", "worker_b", "worker_c")
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            sent = [await bus.send("worker", "26"[number % 2]) for number in range(HANDOFFS)]
            assert {(await it.receipt()).state for it in sent} == {"accepted"}
            async with faults.outage(hangs_for=HANGS_FOR):
                await anyio.sleep(LEASES * settings.ack_wait)
            with anyio.fail_after(30):
                results = await gather(*sent)
        assert {it.status for it in results} == {"PASS"}
        assert set(faults.effect_count().values()) == {1}
        for name in ("worker_a", "worker_b", "worker_c"):
            assert faults.programs[name].logged("handoff.not_handled") == 0
        for it in sent:
            kinds = [stored.event.kind for stored in await faults.chain(it.handoff_id)]
            assert kinds == ["sent", "delivered", "accepted", "settled"]
