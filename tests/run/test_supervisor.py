"""Processes that are started again whenever they die, and end in order when nobody wants them."""

import os
import sys
from typing import Any

import anyio
import pytest

from batonbus.run import supervisor
from batonbus.run.supervisor import supervise
from batonbus_schemas import Receipt, decode

pytestmark = pytest.mark.anyio

STUBBORN = "sh -c 'trap : TERM; while :; do sleep 1; done'"
"""A program that does not end when it is asked to."""


async def test_an_agent_that_is_stopped_in_its_work_hands_it_back(
    open_bus: Any, read_events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what it works with must be killed: to be killed with it in hand would be one of
    the five times that a handoff may change hands."""
    monkeypatch.setattr(supervisor, "STOP_GRACE", 0.3)
    async with open_bus() as bus:
        command = [sys.executable, "-P", "-m", "batonbus", "agent", "--role", "slow"]
        command += ["--id", "slow-1", "--command", STUBBORN]
        environment = {**os.environ, "BATONBUS_URL": bus.server.url}
        sent = await bus.send("slow", "x")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervise, "slow", command, environment)
            while (await bus.client.ask(sent.handoff_id)).chain.stage != "accepted":  # noqa: ASYNC110 - not ours
                await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        last = (await read_events(bus, sent.handoff_id))[-1]
        chain = (await bus.client.ask(sent.handoff_id)).chain
    assert decode(last.payload, Receipt).reason == "slow-1 was stopped in the middle of it"
    assert (chain.stage, chain.next_attempt, chain.takeovers) == ("failed", 1, 0)
