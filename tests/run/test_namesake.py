"""Two processes under one id: each tells of it, and no restart looks like it."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from batonbus import Agent, Context, Settings, TestBus
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_operator
from batonbus.run.namesake import Namesake
from batonbus.wire.registry import Registry
from batonbus_schemas import Dispatch, Presence, TaskResult

pytestmark = pytest.mark.anyio


def builder() -> Agent:
    agent = Agent("builder", id="builder-1")

    @agent.handles
    async def build(_: Dispatch, __: Context) -> TaskResult:
        return TaskResult.passed("Built.")

    return agent


async def until_listed(bus: TestBus, is_so: Callable[[list[Presence]], bool]) -> None:
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        while True:
            if is_so(await core.registry.list()):
                return
            await anyio.sleep(0.02)


async def test_two_processes_with_one_id_are_told_until_one_of_them_ends(
    open_bus: Any, quick: Settings
) -> None:
    stop = anyio.Event()
    async with open_bus(builder(), settings=quick) as bus, anyio.create_task_group() as tasks:
        await until_listed(bus, bool)
        tasks.start_soon(lambda: bus.run(builder(), stop=stop))
        await until_listed(bus, lambda found: any(it.shared for it in found))
        stop.set()
        await until_listed(bus, lambda found: any(not it.shared for it in found))


@pytest.mark.parametrize("in_order", [True, False])
async def test_a_restart_is_no_second_process(
    open_bus: Any, quick: Settings, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    put, told = Registry.put, list[bool]()
    beats = anyio.Semaphore(0)

    async def listen(self: Registry, presence: Presence) -> bool:
        told.append(presence.shared)
        beats.release()
        return await put(self, presence)

    monkeypatch.setattr(Registry, "put", listen)
    async with open_bus(settings=quick) as bus:
        for _life in range(3):
            stop = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: bus.run(builder(), stop=stop))  # noqa: B023
                for _ in range(3):
                    await beats.acquire()
                if in_order:
                    stop.set()
                else:
                    tasks.cancel_scope.cancel()
    assert not any(told)


def test_one_word_of_somebody_else_may_be_a_goodbye() -> None:
    namesake = Namesake(20.0)
    namesake.note_overwritten(100.0)
    assert not namesake.is_there(100.0)
    namesake.note_overwritten(105.0)
    assert namesake.is_there(105.0)
    assert namesake.is_there(120.0)
    assert not namesake.is_there(120.1)
