"""The bus for tests leaves nothing behind, however its block ends."""

import asyncio
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from batonbus import Agent, Context, TestBus
from batonbus_schemas import Dispatch, TaskResult

pytestmark = pytest.mark.anyio


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_nothing_is_left_behind(echo: Any) -> None:
    before = asyncio.all_tasks()
    with anyio.fail_after(20):
        async with TestBus(echo(), echo("other")) as bus:
            await (await bus.send("echo", "x")).result()
            await bus.send("nobody", "left unanswered")
            pid, store = bus.server.pid, bus.server.store
        assert asyncio.all_tasks() == before
    assert not is_running(pid)
    assert not store.exists()


async def test_nothing_is_left_behind_by_a_block_that_fails() -> None:
    before = asyncio.all_tasks()
    agent, started = Agent("stuck"), anyio.Event()

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError("is never reached")

    with anyio.fail_after(20):
        bus = TestBus(agent)
        with pytest.raises(AssertionError, match="as a test fails"):  # noqa: PT012 - the block is what fails
            async with bus:
                await bus.send("stuck", "x")
                await started.wait()
                pid, store = bus.server.pid, bus.server.store
                raise AssertionError("as a test fails")
        assert asyncio.all_tasks() == before
    assert not is_running(pid)
    assert not store.exists()


async def test_nothing_is_left_behind_by_a_block_that_is_cancelled(echo: Any) -> None:
    before = asyncio.all_tasks()
    with anyio.fail_after(20):
        with anyio.CancelScope() as scope:
            async with TestBus(echo()) as bus:
                pid, store = bus.server.pid, bus.server.store
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert asyncio.all_tasks() == before
    assert not is_running(pid)
    assert not store.exists()


async def test_an_agent_that_cannot_run_ends_the_block_and_says_why(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    with anyio.fail_after(20):
        with pytest.raises(ExceptionGroup) as caught:
            async with TestBus(Agent("empty")):
                await anyio.sleep_forever()
        assert asyncio.all_tasks() == before
    assert caught.group_contains(TypeError, match="has no handler", depth=None)


async def test_two_buses_run_side_by_side(echo: Any) -> None:
    with anyio.fail_after(20):
        async with TestBus(echo()) as one, TestBus(echo()) as two:
            assert one.server.url != two.server.url
            first, second = await one.send("echo", "1"), await two.send("echo", "2")
            assert (await second.result()).summary == "2"
            assert (await first.result()).summary == "1"
