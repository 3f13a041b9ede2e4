"""Runs of a work in this process, as `work run` begins them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from git_project import WORK

from batonbus import Bus, Sent, TestBus
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import Core, open_operator
from batonbus.work.runner import RUNNER, Started, begin, run_key
from batonbus.work.status import TaskStatus, survey
from batonbus_agents.workshop import Workshop


@asynccontextmanager
async def runner(bus: TestBus) -> AsyncGenerator[Bus]:
    """The actor that begins runs."""
    async with Bus(bus.server.url, actor=RUNNER) as found:
        yield found


@asynccontextmanager
async def operator(bus: TestBus) -> AsyncGenerator[Core]:
    """Whoever looks at the ledger."""
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        yield core


async def start_run(
    bus: Bus, workshop: Workshop, number: int = 1, started: Started | None = None
) -> Sent:
    """Begin a run of the work."""
    it = started or await begin(workshop, WORK)
    return await bus.send(it.to, it.body, key=run_key(WORK, number), work=WORK, task=it.task)


async def statuses(core: Core, workshop: Workshop) -> dict[str, TaskStatus]:
    """How each task of the work is, by all that is known."""
    (report,) = await survey(workshop.works.path / WORK, workshop, core)
    return {it.task: it for it in report.tasks}
