"""The demo itself: start everything, send the work, kill one agent, read what happened."""

import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

import anyio
import msgspec

from batonbus.demo.report import Hop, Report, Run
from batonbus.narration import Narrator, Say
from batonbus.rules.chain import OPERATOR
from batonbus.rules.errors import BatonbusError
from batonbus.rules.settings import Settings
from batonbus.run.bus import DEFAULT_FLEET, Bus
from batonbus.run.core import Core, open_core
from batonbus.run.sent import gather
from batonbus.run.supervisor import local_bus
from batonbus.wire.ledger import Stored
from batonbus.wire.processes import start_child, stop_child
from batonbus.wire.reader import read_to_head
from batonbus.wire.subjects import all_events
from batonbus_schemas import Dispatch, read_handoff

EXAMPLE = "batonbus_agents.example"
AGENTS = ("researcher", "coder", "reviewer", "tester", "relief", "closer")
VICTIM_ROLE = "tester"
RELIEF_ID = "tester-relief"

SETTINGS = Settings(ack_wait=2.0, heartbeat=0.25, retry_delay=0.5, stop_grace=5.0)
"""Leases shortened: a takeover takes 2 s to look at instead of 30."""

START_TIMEOUT = 30.0
WORK_TIMEOUT = 60.0
KILL_AFTER = 0.4
"""Seconds that an agent has worked when it is killed."""


class DemoError(BatonbusError):
    """The demo did not come to its end."""


async def run_demo(folder: Path | None, say: Say) -> tuple[list[Hop], Report]:
    """Run the demo with its store in `folder` (None: a temporary one); `say` is told each step.

    Raises DemoError where it does not end in time, or an ExceptionGroup of Bounced where a handoff
    ends without a result.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="batonbus-demo-") as name:
            return await run_demo(Path(name), say)
    started = time.monotonic()
    say("starting a server, a window manager, a receipt keeper and six agents, each a process")
    async with (
        local_bus(folder, fleet=DEFAULT_FLEET, settings=SETTINGS, log_level="ERROR") as url,
        open_core(url, OPERATOR, fleet=DEFAULT_FLEET) as core,
        _start_fleet(url) as processes,
    ):
        await _wait_for_fleet(core)
        say(f"the fleet is ready after {time.monotonic() - started:.1f} s")
        before = await core.ledger.last_sequence()
        narrator = Witness(say)
        await core.ledger.listen(all_events(DEFAULT_FLEET), narrator.hear)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_kill_one, narrator, processes, say)
            await _hand_over(url)
            tasks.cancel_scope.cancel()
        events: list[Stored] = []
        await read_to_head(core.ledger, events.append, before + 1, headers_only=False)
        run = Run(events)
    hops = run.hops()
    return hops, run.report(hops, time.monotonic() - started)


@asynccontextmanager
async def _start_fleet(url: str) -> AsyncGenerator[Mapping[str, Process]]:
    """The example's agents, by their names there."""
    processes: dict[str, Process] = {}
    try:
        for name in AGENTS:
            command = ["agent", f"{EXAMPLE}:{name}", "--url", url, "--log-level", "ERROR"]
            processes[name] = await start_child([sys.executable, "-P", "-m", "batonbus", *command])
        yield processes
    finally:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for process in processes.values():
                    tasks.start_soon(_stop, process)


async def _stop(process: Process) -> None:
    await stop_child(process, grace=5)


async def _wait_for_fleet(core: Core) -> None:
    with anyio.move_on_after(START_TIMEOUT):
        while len(await core.registry.list()) < len(AGENTS):  # noqa: ASYNC110 - read, not watched
            await anyio.sleep(0.05)
        return
    present = ", ".join(it.card.role for it in await core.registry.list()) or "nobody"
    raise DemoError(f"the agents did not start within {START_TIMEOUT:g} s; present: {present}")


async def _hand_over(url: str) -> None:
    """The contract down a line, and a diamond of tasks beside it."""
    with anyio.move_on_after(WORK_TIMEOUT):
        async with Bus(url, actor="demo") as bus:
            contract = read_handoff(example_contract(), sender="demo")
            line = await bus.send_envelope(contract)
            diamond = await bus.send(
                "closer", Dispatch(brief="Agree on the spread, in four tasks."), work="WORK-01"
            )
            await gather(line, diamond)
            return
    raise DemoError(f"the work did not end within {WORK_TIMEOUT:g} s")


def example_contract() -> bytes:
    """The contract v1 document of seed 003, under an id of its own."""
    text = (files(EXAMPLE) / "contract.json").read_bytes()
    return msgspec.json.encode({**msgspec.json.decode(text), "handoff_id": str(uuid4())})


class Witness(Narrator):
    """A narrator that notices who can be killed."""

    def __init__(self, say: Say) -> None:
        super().__init__(say)
        self.victim = ""
        self.victim_works = anyio.Event()

    def hear(self, stored: Stored) -> None:
        """One event of the ledger."""
        super().hear(stored)
        accepted = stored.event.kind == "accepted" and self.addressee(stored) == VICTIM_ROLE
        if accepted and not self.victim:
            self.victim = stored.event.actor
            self.victim_works.set()


async def _kill_one(narrator: Witness, processes: Mapping[str, Process], say: Say) -> None:
    """Kill the first agent that works as the tester, in the middle of it."""
    await narrator.victim_works.wait()
    await anyio.sleep(KILL_AFTER)
    name = "relief" if narrator.victim == RELIEF_ID else VICTIM_ROLE
    processes[name].send_signal(signal.SIGKILL)
    say(f"{'':9}kill -9 {narrator.victim}, in the middle of its work")
