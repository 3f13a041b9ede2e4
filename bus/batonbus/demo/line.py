"""The first half of the demo: a contract down a line of agents, and a diamond of tasks."""

import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from uuid import uuid4

import anyio
import msgspec

from batonbus.demo.victims import Victim
from batonbus.run.bus import Bus
from batonbus.run.sent import gather
from batonbus.wire.processes import start_child, stop_child
from batonbus_schemas import Dispatch, read_handoff

EXAMPLE = "batonbus_agents.example"
AGENTS = {
    "researcher": "researcher",
    "worker-code": "coder",
    "reviewer": "reviewer",
    "tester": "tester",
    "tester-relief": "relief",
    "closer": "closer",
}
"""The example's agents: their ids, and their names in its module."""

DIAMOND = "spread"
"""The work of the diamond; the contract's line has none."""


class ExampleFleet:
    """The running processes, by the agents' ids."""

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}

    def victim(self) -> Victim:
        """Whoever tests first."""
        return Victim(role="tester", pid=lambda actor: self.processes[actor].pid)


@asynccontextmanager
async def start_example(url: str) -> AsyncGenerator[ExampleFleet]:
    """The example's agents, each a process, until the block ends."""
    fleet = ExampleFleet()
    try:
        for agent, name in AGENTS.items():
            command = ["agent", f"{EXAMPLE}:{name}", "--url", url, "--log-level", "ERROR"]
            process = await start_child([sys.executable, "-P", "-m", "batonbus", *command])
            fleet.processes[agent] = process
        yield fleet
    finally:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for process in fleet.processes.values():
                    tasks.start_soon(_stop, process)


async def _stop(process: Process) -> None:
    await stop_child(process, grace=5)


async def hand_over(bus: Bus) -> None:
    """The contract down the line, and the diamond beside it, to their ends."""
    contract = read_handoff(example_contract(), sender=bus.client.actor)
    line = await bus.send_envelope(contract)
    brief = Dispatch(brief="Agree on the spread, in four tasks.")
    diamond = await bus.send("closer", brief, work=DIAMOND)
    await gather(line, diamond)


def example_contract() -> bytes:
    """The contract v1 document of seed 003, under an id of its own."""
    text = (files(EXAMPLE) / "contract.json").read_bytes()
    return msgspec.json.encode({**msgspec.json.decode(text), "handoff_id": str(uuid4())})
