"""How fast whole handoffs go here: sent, delivered, accepted, settled, each one stored."""

import statistics
import time

import anyio
from msgspec import Struct

from batonbus.rules.settings import Settings
from batonbus.run.agent import Agent
from batonbus.run.context import Context
from batonbus.testing import TestBus
from batonbus_schemas import ContextHandoff, Dispatch, TaskResult

IN_FLIGHT = 256
"""Handoffs that are under way at a time."""


class BenchReport(Struct, frozen=True, kw_only=True):
    """What was measured. `size` is the bytes of a brief; times are in milliseconds."""

    handoffs: int
    size: int
    seconds: float
    handoffs_per_s: float
    receipt_ms_p50: float
    receipt_ms_p99: float


async def run_bench(handoffs: int, size: int) -> BenchReport:
    """Send `handoffs` dispatches of `size` bytes to one agent on a new embedded server, with the
    window manager and the keeper in this process."""
    agent = Agent("worker", slots=IN_FLIGHT)

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        return RESULT

    receipts: list[float] = []
    async with TestBus(agent, settings=Settings()) as bus:
        await (await bus.send("worker", "warm up")).result()
        free = anyio.Semaphore(IN_FLIGHT)
        body = Dispatch(brief="b" * size)

        async def one() -> None:
            started = time.perf_counter()
            sent = await bus.send("worker", body)
            await sent.receipt()
            receipts.append((time.perf_counter() - started) * 1000)
            await sent.result()
            free.release()

        started = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(handoffs):
                await free.acquire()
                tasks.start_soon(one)
        seconds = time.perf_counter() - started
    centiles = statistics.quantiles(receipts, n=100)
    return BenchReport(
        handoffs=handoffs,
        size=size,
        seconds=round(seconds, 3),
        handoffs_per_s=round(handoffs / seconds, 1),
        receipt_ms_p50=round(centiles[49], 2),
        receipt_ms_p99=round(centiles[98], 2),
    )


RESULT = TaskResult(
    status="PASS",
    summary="done",
    context_handoff=ContextHandoff(what="w" * 200, why="y" * 200, caution="c" * 100),
)
