"""Short runs that hit one safeguard each: with it they are green, without it they must not be."""

import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import mutations
from fault_agents import ROLES
from fault_bus import FAST, FLEET, FaultBus, fault_bus, wait_until
from ledger_checker import FINAL, by_handoff, read_messages
from verdict import Evidence, judge

from batonbus import Bus, Sent
from batonbus.rules.chain import RECEIPT_KEEPER, WINDOW_MANAGER

END_LIMIT = 8.0
"""Seconds after which a handoff that has not ended is lost."""

START_LIMIT = 40.0
"""Seconds that a keeper may take to start, on a machine that does much else."""

KEEPER = f"{RECEIPT_KEEPER}-0"
MANAGER = f"{WINDOW_MANAGER}-0"


@dataclass
class Stage:
    """A running bus, mutated or not, and what was sent on it."""

    faults: FaultBus
    bus: Bus
    sent: list[Sent] = field(default_factory=list)

    async def send(self, to: str, brief: str) -> Sent:
        sent = await self.bus.send(to, brief)
        self.sent.append(sent)
        return sent

    async def wait_for_step(self, step: str) -> None:
        """Until an armed step was reached."""

        async def reached() -> bool:
            return any(it == step for _, it, _ in self.faults.fired())

        await wait_until(reached, f"{step} was not reached", limit=END_LIMIT)

    async def wait_for_ends(self) -> None:
        """Until all has ended, or will not."""
        with anyio.move_on_after(END_LIMIT):
            while True:
                chains = by_handoff(await read_messages(self.faults.server.url, FLEET)).values()
                if all(any(it.kind in FINAL for it in chain) for chain in chains):
                    return
                await anyio.sleep(0.1)


async def late_delivery(stage: Stage) -> None:
    """A delivery that was decided long ago is written when the handoff has been delivered."""
    await stage.faults.start_agents("worker_a")
    stage.faults.arm(MANAGER, "before-delivered", "delay 3")
    sent = await stage.send("worker", "0.1")
    await stage.faults.wait_for_event(sent.handoff_id, "delivered")
    stage.faults.arm(MANAGER, "unanswered-delivered", "delay 0")
    await stage.wait_for_step("unanswered-delivered")


async def stale_owner(stage: Stage) -> None:
    """An agent that slept too long answers, while another one works on what it had."""
    await stage.faults.start_agents("single_a", "single_b")
    sent = await stage.send("single", "1.5")
    accepted = await stage.faults.wait_for_event(sent.handoff_id, "accepted")
    stale = stage.faults.of_agent(accepted.event.actor)
    stale.send_signal(signal.SIGSTOP)
    await stage.faults.wait_for_event(sent.handoff_id, "accepted", count=2)
    stale.send_signal(signal.SIGCONT)

    async def came_back() -> bool:
        says = ("answer.stale", "lease.lost", "handoff.settled")
        return any(stale.logged(it) for it in says)

    await wait_until(came_back, "the stale owner did nothing", limit=END_LIMIT)


async def death_before_settled(stage: Stage) -> None:
    """An agent dies between its work and its answer."""
    await stage.faults.start_agents("single_a", "single_b")
    for name in ("single_a", "single_b"):
        stage.faults.arm(name, "before-settled", "kill")
    await stage.send("single", "0")
    await stage.wait_for_step("before-settled")
    for name in ("single_a", "single_b"):
        stage.faults.disarm(name)


async def duplicate(stage: Stage) -> None:
    """A message is handed out twice at once, and neither agent is fast to accept it: whatever they
    do before is done long before the handoff ends."""
    await stage.faults.start_agents("single_a", "single_b")
    for name in ("single_a", "single_b"):
        stage.faults.arm(name, "received", "duplicate")
        stage.faults.arm(name, "before-accepted", "delay 2")
    await stage.send("single", "0.2")


async def line(stage: Stage) -> None:
    """Five steps, one after the other."""
    await stage.faults.start_agents("worker_a")
    await (await stage.send("worker", "0 4")).result()


async def keeper_restart(stage: Stage) -> None:
    """A keeper dies while somebody waits for an answer that only it can give."""
    sent = await stage.send("nobody", "x")
    await stage.faults.wait_for_event(sent.handoff_id, "delivered")
    assert stage.faults.kill(KEEPER)
    try:
        limit = FAST.receipt_timeout + 3
        await stage.faults.wait_for_event(sent.handoff_id, "overdue", limit=limit)
    finally:
        await sent.cancel("nobody is there")


Scenario = Callable[[Stage], Awaitable[None]]


class Hit(NamedTuple):
    """How a mutation is found out: the scenario, and what is then complained about. Any other red
    is none: a mutant that does not even start proves nothing."""

    scenario: Scenario
    says: str


HITS: dict[str, Hit] = {
    "compare-and-set": Hit(late_delivery, "2 times delivered"),
    "lease-fence": Hit(stale_owner, "names the accepted event"),
    "settled-before-ack": Hit(death_before_settled, "0 final events instead of 1: accepted"),
    "accepted-before-handler": Hit(duplicate, "2 effects under"),
    "trim-to-summary": Hit(line, "FULL at 2"),
    "trim-older": Hit(line, "and should show"),
    "keeper-memory": Hit(keeper_restart, "late: "),
}
"""What each mutation must turn red."""


@asynccontextmanager
async def open_stage(folder: Path, mutation: str) -> AsyncGenerator[Stage]:
    async with fault_bus(folder) as faults:
        faults.launcher = (mutations.__file__, mutation)
        faults.start_parts()
        await wait_until(partial(_is_up, faults), "the keeper did not start", limit=START_LIMIT)
        async with Bus(faults.server.url, actor="source", fleet=FLEET) as bus:
            yield Stage(faults, bus)


async def _is_up(faults: FaultBus) -> bool:
    return faults.programs[KEEPER].is_up("receipt_keeper.started")


async def play(scenario: Scenario, folder: Path, mutation: str = mutations.NONE) -> list[str]:
    """Run a scenario; returns all that is wrong afterwards."""
    complaints: list[str] = []
    async with open_stage(folder, mutation) as stage:
        try:
            await scenario(stage)
        except AssertionError as error:  # what it waited for did not come
            complaints.append(f"waiting: {error}")
        await stage.wait_for_ends()
        messages = await read_messages(stage.faults.server.url, FLEET)
        effects = stage.faults.effects()
    ids = {it.handoff_id for it in stage.sent}
    evidence = Evidence(
        messages=messages,
        acknowledged=ids,
        planned=ids,
        effects=effects,
        keys=(),
        agents=ROLES,
        receipt_timeout=FAST.receipt_timeout,
    )
    return [*complaints, *judge(evidence).complaints]
