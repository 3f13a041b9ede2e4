"""A real bus under faults: `python -m chaos --seed 7`, or `make chaos ARGS='--seed 7'`.

A server, two of each part, two of each agent and a sender, each a process with failpoints behind a
proxy of its own. The seed decides what is done to them. Progress goes to stderr, the last line on
stdout is one JSON object, and the exit code is 1 where anything is wrong with what is left.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from chaos_plan import (
    KEEPERS,
    MANAGERS,
    MOODY,
    PLANNERS,
    PROGRAMS,
    SOURCE,
    WORKERS,
    Fault,
    make_plan,
    twin,
)
from chaos_proxy import Proxy, open_proxy
from fault_agents import ROLES
from fault_bus import FLEET, SERVER, WITH_FAILPOINTS, FaultBus, fault_bus
from fault_sender import KEYS, planned_ids, read_ids
from ledger_checker import FINAL, by_handoff, read_messages
from verdict import Evidence, Outage, Verdict, judge

from batonbus import Settings
from batonbus.logs import configure

SETTINGS = Settings(
    receipt_timeout=9.0,
    ack_wait=2.0,
    heartbeat=0.5,
    give_up_after=20.0,
    retry_delay=0.05,
    stop_grace=5.0,
)
MEAN_GAP = 0.8
"""Seconds between two faults."""

UP = {
    **dict.fromkeys(MANAGERS, "window_manager.started"),
    **dict.fromkeys(KEEPERS, "receipt_keeper.started"),
}
"""What a part logs when it is up. Before that its twin is spared: a bus of which every keeper is
away at once answers nobody."""

TWIN_LIMIT = 60.0
"""Seconds to wait for that; then the fault is left out."""

PATIENCE = 5.0
"""Seconds to wait for somebody whom a fault can hit."""

END_LIMIT = 120.0
"""Seconds that the work may take when the faults are over."""


@dataclass(frozen=True)
class Options:
    """How much is sent, and how much goes wrong."""

    seed: int
    handoffs: int
    kills: int


class Chaos:
    """The faults of one run, applied one after the other."""

    def __init__(
        self, bus: FaultBus, proxies: dict[str, Proxy], tasks: TaskGroup, plan: list[Fault]
    ) -> None:
        self._bus = bus
        self._proxies = proxies
        self._tasks = tasks
        self._plan = plan
        self._lasting: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()
        self.done = 0
        self.outages: list[Outage] = []

    async def run(self) -> None:
        """The whole plan; those faults that last may last a little longer."""
        for fault in self._plan:
            await anyio.sleep(fault.gap)
            if fault.target not in UP or await self._may_harm(fault.target):
                await self._apply(fault)
            self.done += 1
        for name in PROGRAMS:
            self._bus.disarm(name)

    def counts(self) -> Counter[str]:
        """How often each kind of fault did hit."""
        fired = Counter(f"failpoint {action.split()[0]}" for _, _, action in self._bus.fired())
        return self._applied + fired

    @property
    def kills(self) -> int:
        """Kills and cuts that did hit."""
        counts = self.counts()
        return sum(counts[it] for it in ("kill", "cut", "server-kill", "failpoint kill"))

    async def _may_harm(self, name: str) -> bool:
        """Until the twin of a part is up and unharmed, and will stay so."""
        other = twin(name)
        assert other is not None
        self._bus.disarm(other)
        program = self._bus.programs[other]
        return await wait_for(
            lambda: not self._lasting[other] and program.is_up(UP[other]), limit=TWIN_LIMIT
        )

    async def _apply(self, fault: Fault) -> None:
        hit = True
        match fault.kind:
            case "failpoint":
                self._bus.arm(fault.target, fault.step, fault.action)
                hit = False  # counted when it is reached
            case "kill":
                hit = await self._reach(fault.target) and self._bus.kill(fault.target)
            case "cut":
                hit = self._proxies[fault.target].cut() > 0
            case "server-kill":
                hit = await self._kill_server()
            case "server-stop":
                hit = await self._stop_server(fault.seconds)
            case "stop":
                hit = await self._reach(fault.target)
                self._tasks.start_soon(self._stop, fault)
            case "stall" | "delay" | "trickle":
                self._tasks.start_soon(self._shape, fault)
        self._applied[fault.kind] += hit

    async def _reach(self, name: str) -> bool:
        """Until the program is there, and not just starting."""
        program = self._bus.programs[name]
        return await wait_for(lambda: program.alive_for > 1 or program.done, limit=PATIENCE)

    async def _kill_server(self) -> bool:
        restarts, start = self._bus.server.restarts, time.time()
        hit = self._bus.kill(SERVER)
        await wait_for(lambda: self._bus.server.restarts > restarts, limit=30)
        self.outages.append(Outage(start, time.time()))
        return hit

    async def _stop_server(self, seconds: float) -> bool:
        start, pid = time.time(), self._bus.server.pid
        if pid == 0:  # between two lives; to signal it would stop ourselves
            return False
        os.kill(pid, signal.SIGSTOP)
        await anyio.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        self.outages.append(Outage(start, time.time()))
        return True

    async def _stop(self, fault: Fault) -> None:
        self._lasting[fault.target] += 1
        program = self._bus.programs[fault.target]
        program.send_signal(signal.SIGSTOP)
        await anyio.sleep(fault.seconds)
        program.send_signal(signal.SIGCONT)
        self._lasting[fault.target] -= 1

    async def _shape(self, fault: Fault) -> None:
        self._lasting[fault.target] += 1
        proxy = self._proxies[fault.target]
        shapes = {
            "stall": proxy.stalled,
            "delay": lambda: proxy.slowed(lag=0.1),
            "trickle": lambda: proxy.slowed(lag=0.001, chunk=64),
        }
        with shapes[fault.kind]():
            await anyio.sleep(fault.seconds)
        self._lasting[fault.target] -= 1


async def wait_for(fact: Callable[[], bool], *, limit: float) -> bool:
    """Wait for a fact, at most `limit` seconds; returns whether it came true."""
    until = time.monotonic() + limit
    while not fact():
        if time.monotonic() > until:
            return False
        await anyio.sleep(0.05)
    return True


@asynccontextmanager
async def open_fleet(folder: Path) -> AsyncGenerator[tuple[FaultBus, dict[str, Proxy]]]:
    """The whole bus, without its sender."""
    async with fault_bus(folder, SETTINGS) as bus, AsyncExitStack() as stack:
        bus.launcher = WITH_FAILPOINTS
        port = bus.server.port
        proxies = {it: await stack.enter_async_context(open_proxy(port)) for it in PROGRAMS}
        bus.urls = {name: proxy.url for name, proxy in proxies.items()}
        bus.start_parts(each=2)
        await bus.start_agents(*WORKERS, *PLANNERS, *MOODY)
        yield bus, proxies


async def run(options: Options, folder: Path) -> tuple[Verdict, dict[str, Any]]:
    """One run: the verdict on it, and the numbers of what was done."""
    began = time.monotonic()
    plan = make_plan(options.seed, options.kills, lease=SETTINGS.ack_wait, mean_gap=MEAN_GAP)
    say(f"seed {options.seed}: {len(plan)} faults, {options.handoffs:,} handoffs, in {folder}")
    async with open_fleet(folder) as (bus, proxies), anyio.create_task_group() as tasks:
        seconds = sum(it.gap for it in plan)
        arguments = (str(folder), f"{seconds:.1f}", str(options.handoffs))
        sender = bus.start(SOURCE, "fault_sender.py", *arguments)
        chaos = Chaos(bus, proxies, tasks, plan)
        tasks.start_soon(tell_progress, chaos, folder, began, len(plan))
        await chaos.run()
        say("the faults are over")
        if not await wait_for(lambda: sender.done, limit=END_LIMIT):
            say(f"not all has ended after {END_LIMIT:g} s")
        await wait_for_ends(bus)
        messages = await read_messages(bus.server.url, FLEET)
        tasks.cancel_scope.cancel()
    acknowledged = (folder / "acknowledged", folder / "acknowledged-in-handlers")
    evidence = Evidence(
        messages=messages,
        acknowledged={handoff for file in acknowledged for handoff in read_ids(file)},
        planned=set(planned_ids(options.handoffs)),
        effects=bus.effects(),
        keys=KEYS,
        agents=ROLES,
        receipt_timeout=SETTINGS.receipt_timeout,
        outages=chaos.outages,
    )
    numbers = {
        "kills": chaos.kills,
        "seconds": round(time.monotonic() - began, 1),
        "faults": dict(chaos.counts()),
        "steps": dict(Counter(step for _, step, _ in bus.fired())),
    }
    return judge(evidence), numbers


async def wait_for_ends(bus: FaultBus) -> None:
    """Until every handoff is in a final state, at most `END_LIMIT` seconds."""
    with anyio.move_on_after(END_LIMIT):
        while True:
            chains = by_handoff(await read_messages(bus.server.url, FLEET)).values()
            if all(any(it.kind in FINAL for it in chain) for chain in chains):
                return
            await anyio.sleep(1)


async def tell_progress(chaos: Chaos, folder: Path, began: float, planned: int) -> None:
    """One line every ten seconds."""
    while True:
        await anyio.sleep(10)
        sent, ended = (len(set(read_ids(folder / it))) for it in ("acknowledged", "ended"))
        say(
            f"{time.monotonic() - began:4.0f} s: {sent:,} acknowledged, {ended:,} ended, "
            f"{chaos.done} of {planned} faults, {chaos.kills} kills and cuts"
        )


def say(text: str) -> None:
    """To whoever looks on."""
    print(f"chaos: {text}", file=sys.stderr, flush=True)  # noqa: T201


def shortfalls(options: Options, verdict: Verdict, kills: int) -> list[str]:
    """A run that did less than it was told to proves nothing."""
    found: list[str] = []
    if verdict.acknowledged < options.handoffs:
        found.append(f"short: {verdict.acknowledged} of {options.handoffs} acknowledged")
    if kills < options.kills:
        found.append(f"short: {kills} of {options.kills} kills and cuts")
    return found


def parse(arguments: list[str]) -> tuple[Options, Path | None]:
    """The options, and the folder in which the run is kept."""
    parser = argparse.ArgumentParser(prog="chaos", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="decides what goes wrong")
    parser.add_argument("--handoffs", type=int, default=1000, help="that the sender sends")
    parser.add_argument("--kills", type=int, default=100, help="kills and cuts, at least")
    parser.add_argument("--keep", type=Path, help="a new folder for ledger, logs and effects")
    given = parser.parse_args(arguments)
    return Options(seed=given.seed, handoffs=given.handoffs, kills=given.kills), given.keep


def main(arguments: list[str]) -> int:
    """Run, and tell how it went; returns the exit code."""
    options, keep = parse(arguments)
    configure("ERROR")  # that the connection is lost now and then is what is wanted
    if keep is not None:
        keep.mkdir(parents=True)
    folder = (keep or Path(tempfile.mkdtemp(prefix="batonbus-chaos-"))).resolve()
    verdict, numbers = anyio.run(run, options, folder)
    complaints = [*verdict.complaints, *shortfalls(options, verdict, numbers["kills"])]
    for it in complaints:
        say(it)
    if complaints:
        say(f"what is left of this run is in {folder}")
    elif keep is None:
        shutil.rmtree(folder)
    print(json.dumps({"seed": options.seed, **verdict.as_json(), **numbers}))  # noqa: T201
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
