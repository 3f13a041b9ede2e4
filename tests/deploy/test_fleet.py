"""A fleet at work on the deployed server, every process with its own password."""

from typing import Any

import anyio
import pytest

from batonbus import Agent, Bus, Context
from batonbus.run.bus import serve
from batonbus.testing import FAST, run_receipt_keeper, run_window_manager
from batonbus_schemas import Dispatch, TaskResult

pytestmark = pytest.mark.anyio

FLEET = "default"


def make_agents() -> list[Agent]:
    researcher, coder = Agent("researcher", id="researcher"), Agent("coder", id="worker-code")

    @researcher.handles
    async def research(task: Dispatch, ctx: Context) -> TaskResult:
        sent = await ctx.send("coder", f"code what {task.brief} needs")
        answer = await sent.result()
        return TaskResult.passed(what=f"asked the coder: {answer.summary}")

    @coder.handles
    async def code(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult.passed(what=f"done: {task.brief}")

    return [researcher, coder]


async def test_agents_work_for_an_operator_and_for_each_other(server: Any) -> None:
    operator = server.url("operator")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_window_manager, operator, FLEET, FAST)
            tasks.start_soon(run_receipt_keeper, operator, FLEET, FAST)
            for agent in make_agents():
                tasks.start_soon(serve, agent, server.url(agent.card.id))
            async with Bus(operator, actor="operator") as bus:
                sent = await bus.send("researcher", "the task")
                assert (await sent.receipt()).state == "accepted"
                result = await sent.result()
            tasks.cancel_scope.cancel()
    assert result.summary == "asked the coder: done: code what the task needs"
    assert server.refusals() == []
