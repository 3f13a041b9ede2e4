"""How fast whole handoffs go here: sent, delivered, accepted, settled, each step stored.

The bus runs as it does in production: server, window manager, keeper and agent are processes of
their own, and this one is the sender.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio
from msgspec import Struct

from batonbus.rules.errors import BusUnavailableError
from batonbus.rules.references import INLINE_LIMIT
from batonbus.run.agent import Agent
from batonbus.run.bus import DEFAULT_FLEET, Bus
from batonbus.run.context import Context
from batonbus.run.supervisor import local_bus
from batonbus.wire.processes import start_child, stop_child
from batonbus_schemas import ContextHandoff, Dispatch, TaskResult

IN_FLIGHT = 512
"""Handoffs that are under way at a time."""

START_TIMEOUT = 30.0
"""Seconds until the first handoff must have come back."""

RESULT = TaskResult(
    status="PASS",
    summary="done",
    context_handoff=ContextHandoff(what="w" * 200, why="y" * 200, caution="c" * 100),
)

worker = Agent("bench-worker", slots=IN_FLIGHT)


@worker.handles
async def answer(task: Dispatch, ctx: Context) -> TaskResult:
    """Answer at once: only the bus is measured."""
    return RESULT


class BenchReport(Struct, frozen=True, kw_only=True):
    """What was measured. `size` is the characters that each handoff carries; latencies are in
    milliseconds, under this load."""

    handoffs: int
    size: int
    in_flight: int
    seconds: float
    handoffs_per_s: float
    receipt_ms_p50: float
    receipt_ms_p99: float


async def run_bench(handoffs: int, size: int) -> BenchReport:
    """Send `handoffs` (at least 2) dispatches that carry `size` characters over a bus in a
    temporary folder. Raises BusUnavailableError where it does not start."""
    with tempfile.TemporaryDirectory(prefix="batonbus-bench-") as folder:
        async with local_bus(Path(folder), fleet=DEFAULT_FLEET, log_level="WARNING") as url:
            command = ["agent", f"{__name__}:worker", "--url", url, "--log-level", "WARNING"]
            process = await start_child([sys.executable, "-P", "-m", "batonbus", *command])
            try:
                return await _measure(url, handoffs, _loaded(size), size)
            finally:
                await stop_child(process, grace=5)


def _loaded(size: int) -> Dispatch:
    """In the ref-cache, for a brief of that length would be over its budget; in pieces that are not
    yet referred to, for each handoff shall carry them."""
    pieces, rest = divmod(size, INLINE_LIMIT)
    load = {f"load-{number}": "b" * INLINE_LIMIT for number in range(pieces)}
    return Dispatch(brief="Measure.", ref_cache={**load, "rest": "b" * rest})


async def _measure(url: str, handoffs: int, body: Dispatch, size: int) -> BenchReport:
    receipts: list[float] = []
    waiting = iter(range(handoffs))
    async with Bus(url) as bus:
        with anyio.move_on_after(START_TIMEOUT) as patience:
            await (await bus.send(worker.card.role, body)).result()
        if patience.cancelled_caught:
            raise BusUnavailableError(f"the bus did not start within {START_TIMEOUT:g} s")

        async def send_some() -> None:
            for _ in waiting:
                began = time.perf_counter()
                sent = await bus.send(worker.card.role, body)
                await sent.receipt()
                receipts.append((time.perf_counter() - began) * 1000)
                await sent.result()

        started = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.start_soon(send_some)
        seconds = time.perf_counter() - started
    centiles = statistics.quantiles(receipts, n=100)
    return BenchReport(
        handoffs=handoffs,
        size=size,
        in_flight=IN_FLIGHT,
        seconds=round(seconds, 3),
        handoffs_per_s=round(handoffs / seconds, 1),
        receipt_ms_p50=round(centiles[49], 2),
        receipt_ms_p99=round(centiles[98], 2),
    )
