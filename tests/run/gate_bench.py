"""A builder that says how full its context is, and looks at what became of it."""

from collections.abc import Callable
from typing import Any

import anyio

from batonbus import Agent, Bus, Context, ResetDone, ResetRequest
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_operator
from batonbus_schemas import (
    CompactionHandoff,
    ContextUsage,
    Dispatch,
    Presence,
    ResetJournal,
    TaskResult,
)

TEN_FIELDS = CompactionHandoff(
    active_project="demo",
    active_task="TASK-01",
    my_role="builder",
    current_phase="implement",
    completed="The parser.",
    not_completed="The printer.",
    evidence_paths="tests/test_parser.py",
    known_blockers="None",
    next_safe_action="Write the printer.",
    do_not_use="The first draft.",
)


class Builder:
    """A builder whose briefs are the percent that it reports, and whose resets are recorded."""

    def __init__(self, *after: float | None, role: str = "builder", **options: Any) -> None:
        self.agent = Agent(role, **options)
        self.handled: list[str] = []
        self.levels: list[str] = []
        self.requests: list[ResetRequest] = []
        self.may_reset = anyio.Event()
        self.may_reset.set()
        self._after = list(after)
        self.agent.handles(self.work)

    async def work(self, task: Dispatch, ctx: Context) -> TaskResult:
        name, _, percent = task.brief.partition(" ")
        self.handled.append(name)
        if percent:
            self.levels.append(await ctx.usage(percent=float(percent)))
        return TaskResult.passed(what=name)

    async def reset(self, request: ResetRequest) -> ResetDone:
        self.requests.append(request)
        if request.step == "handoff":
            return ResetDone(handoff=TEN_FIELDS)
        await self.may_reset.wait()
        percent = self._after.pop(0)
        source = "unknown" if percent is None else "measured"
        return ResetDone(usage=ContextUsage(source=source, percent=percent))


def with_session(*after: float | None, **options: Any) -> Builder:
    builder = Builder(*after, **options)
    builder.agent.resets(builder.reset)
    return builder


async def presence(bus: Any, agent: Agent) -> Presence:
    """Its registry entry, which a busy machine may let lapse for a moment."""
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        while True:
            for it in await core.registry.list():
                if it.card.id == agent.card.id:
                    return it
            await anyio.sleep(0.02)


async def closed_for(bus: Any, agent: Agent, reason: str) -> str:
    """Why the agent is closed, once that is for this reason."""
    while True:
        if reason in (closed := (await presence(bus, agent)).closed):
            return closed
        await anyio.sleep(0.02)


async def until(fact: Callable[[], object]) -> None:
    while True:
        if fact():
            return
        await anyio.sleep(0.01)


async def journal(bus: Any, agent: Agent) -> ResetJournal:
    async with Bus(bus.server.url, actor="reader") as reader:
        found = await reader.client.checkpoints.get(agent.card.id)
    assert found is not None
    return found
