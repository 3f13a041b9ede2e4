"""A fleet at work: senders that hand work in without a pause, and what became of it."""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import anyio
from anyio.abc import TaskGroup
from ledger_checker import check, read_messages
from nodes import wait_until

from batonbus import Agent, Bus, Context, Sent, Settings
from batonbus.run.bus import sender_key, serve
from batonbus.testing import run_receipt_keeper, run_window_manager
from batonbus_schemas import Dispatch, TaskResult, Then

FLEET = "default"
STREAM = f"BATONBUS_{FLEET}"
ROLES = {"researcher": {"researcher"}, "coder": {"worker-code"}}
PAUSE = 0.1
"""Seconds between two handoffs of one sender."""

STALLED = 1.0
"""Seconds without an acknowledgement after which the senders wait for one."""

SETTINGS = Settings(
    receipt_timeout=20.0,
    ack_wait=5.0,
    heartbeat=1.0,
    give_up_after=120.0,
    retry_delay=0.05,
    stop_grace=5.0,
)
"""An election is no reason to give up on anything."""


class Traffic:
    """What was sent, and when each of it ended."""

    def __init__(self, tasks: TaskGroup, senders: int) -> None:
        self._tasks = tasks
        self._over = anyio.Event()
        self._acknowledged_at = 0.0
        self.senders = senders
        self.planned: list[UUID] = []
        self.acknowledged: list[UUID] = []
        self.ends: dict[UUID, str] = {}
        self.ended_at: list[float] = []
        self.handled: Counter[UUID] = Counter()

    def agents(self) -> list[Agent]:
        """A researcher, and a coder to whom it hands on what says so."""
        researcher, coder = (
            Agent("researcher", id="researcher", slots=20),
            Agent("coder", id="worker-code", slots=20),
        )

        @researcher.handles
        @coder.handles
        async def work(task: Dispatch, ctx: Context) -> TaskResult | Then:
            self.handled[ctx.envelope.id] += 1
            await anyio.sleep(0.01)
            result = TaskResult.passed(what="Worked.")
            return result.then("coder", "the rest") if task.brief == "both" else result

        return [researcher, coder]

    async def send(self, bus: Bus, sender: int, pause: float) -> None:
        """Hand in without a pause, until `finish`."""
        number = 0
        while not self._over.is_set():
            key = f"{sender}-{number}"
            self.planned.append(sender_key("sender", key))
            to, brief = ("coder", "one") if number % 3 else ("researcher", "both")
            sent = await bus.send(to, brief, key=key)
            self.acknowledged.append(sent.handoff_id)
            self._acknowledged_at = time.monotonic()
            self._tasks.start_soon(self._wait, sent)
            number += 1
            await anyio.sleep(pause)

    async def _wait(self, sent: Sent) -> None:
        result = await sent.result()
        self.ends[sent.handoff_id] = result.status
        self.ended_at.append(time.monotonic())

    async def more_ended(self, count: int, *, limit: float) -> None:
        """Until so many more have ended."""
        target = len(self.ends) + count

        async def ended() -> bool:
            return len(self.ends) >= target

        await wait_until(ended, f"no {count} more ended", limit=limit)

    async def stalled(self, *, limit: float) -> None:
        """Until every sender waits for an acknowledgement, and has done so for a while."""

        async def waiting() -> bool:
            return time.monotonic() - self._acknowledged_at > STALLED

        await wait_until(waiting, "the senders do not wait", limit=limit)
        assert len(self.planned) - len(self.acknowledged) == self.senders

    async def finish(self, *, limit: float = 30) -> None:
        """Send no more, and wait until all that was sent has ended."""
        self._over.set()

        async def ended() -> bool:
            return len(self.ends) == len(self.planned)

        await wait_until(ended, "not all has ended", limit=limit)

    def longest_gap(self) -> float:
        """Seconds in which nothing ended, at the most."""
        pairs = zip(self.ended_at, self.ended_at[1:], strict=False)
        return max(later - earlier for earlier, later in pairs)

    async def complaints(self, url: str) -> list[str]:
        """All that is wrong with the ledger, now that all has ended."""
        messages = await read_messages(url, FLEET)
        return check(messages, acknowledged=self.acknowledged, planned=self.planned, agents=ROLES)


@asynccontextmanager
async def running_traffic(
    url: Callable[[str], str],
    *,
    senders: int = 3,
    pause: float = PAUSE,
    settings: Settings = SETTINGS,
) -> AsyncGenerator[Traffic]:
    """Two window managers, two keepers, two agents and some senders, each with its own user and
    connection; `url` gives a user's address."""
    async with anyio.create_task_group() as tasks:
        traffic = Traffic(tasks, senders)
        for _ in range(2):
            tasks.start_soon(run_window_manager, url("operator"), FLEET, settings)
            tasks.start_soon(run_receipt_keeper, url("operator"), FLEET, settings)
        for agent in traffic.agents():
            tasks.start_soon(serve, agent, url(agent.card.id))
        async with Bus(url("sender"), actor="sender", fleet=FLEET) as bus:
            for number in range(senders):
                tasks.start_soon(traffic.send, bus, number, pause)
            await traffic.more_ended(10, limit=20)
            yield traffic
            tasks.cancel_scope.cancel()
