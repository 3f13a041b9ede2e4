"""Nobody waits in the dark, also while the keeper or the server is killed: `overdue` comes in time,
measured by the server's own times in the ledger."""

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from fault_bus import FAST, FLEET, FaultBus, fault_bus

from batonbus import Bus, Sent, Settings

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

KEEPER = "receipt-keeper-0"
TOLERANCE = 1.0
"""Seconds around the deadline."""


async def nothing(faults: FaultBus) -> None:
    """No fault at all."""


async def kill_keeper(faults: FaultBus) -> None:
    """Its supervisor starts it again, and it reads the ledger anew."""
    assert faults.kill(KEEPER)


async def kill_server(faults: FaultBus) -> None:
    """What the keeper reads breaks off in the middle."""
    async with faults.outage(hangs_for=0.1):
        pass


async def waited_for_overdue(faults: FaultBus, sent: Sent) -> float:
    """Seconds from `sent` to the first `overdue`."""
    limit = faults.core.settings.receipt_timeout + 10
    overdue = await faults.wait_for_event(sent.handoff_id, "overdue", limit=limit)
    first = (await faults.chain(sent.handoff_id))[0]
    return overdue.event.at - first.event.at


@pytest.mark.parametrize("fault", [kill_keeper, kill_server])
async def test_overdue_comes_in_time_though_a_process_is_killed_before(
    fault: Callable[[FaultBus], Awaitable[None]], tmp_path: Path
) -> None:
    async with fault_bus(tmp_path) as faults:
        faults.start_parts()
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            before = [await bus.send("nobody", "x") for _ in range(20)]
            await fault(faults)
            after = [await bus.send("nobody", "x") for _ in range(20)]
            for sent in (*before, *after):
                assert (await sent.receipt()).state == "overdue"
                waited = await waited_for_overdue(faults, sent)
                assert abs(waited - FAST.receipt_timeout) <= TOLERANCE
                kinds = [it.event.kind for it in await faults.chain(sent.handoff_id)]
                assert kinds == ["sent", "delivered", "overdue"]


async def test_a_keeper_that_was_down_at_the_deadline_answers_as_soon_as_it_is_back(
    tmp_path: Path,
) -> None:
    async with fault_bus(tmp_path) as faults:
        faults.start_parts()
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            sent = await bus.send("nobody", "x")
            await faults.wait_for_event(sent.handoff_id, "delivered")
            keeper = faults.programs[KEEPER]
            keeper.send_signal(signal.SIGSTOP)
            await anyio.sleep(FAST.receipt_timeout)
            keeper.send_signal(signal.SIGKILL)
            assert (await sent.receipt()).state == "overdue"
            assert keeper.codes == [-signal.SIGKILL]
            assert await waited_for_overdue(faults, sent) <= FAST.receipt_timeout + 3


async def test_by_default_overdue_comes_after_thirty_seconds(tmp_path: Path) -> None:
    async with fault_bus(tmp_path, Settings()) as faults:
        faults.start_parts()
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            sent = await bus.send("nobody", "x")
            await kill_keeper(faults)
            receipt = await sent.receipt()
            assert receipt.state == "overdue"
            assert receipt.listening == ()
            assert abs(await waited_for_overdue(faults, sent) - 30) <= TOLERANCE
