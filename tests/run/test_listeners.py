"""The registry knows who is there; since when somebody is not, only who looked before knows."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from batonbus import NoAnswerError, Settings
from batonbus.rules.receipts import Listening
from batonbus.run.core import Core, open_operator
from batonbus.run.listeners import Listeners, Look
from batonbus.wire.registry import Registry
from batonbus_schemas import AgentCard, Presence

pytestmark = pytest.mark.anyio

Open = Callable[[], AbstractAsyncContextManager[tuple[Core, Listeners]]]
BUILDER = Presence(card=AgentCard(id="builder-1", role="builder"), working=(7,))


@pytest.fixture
def looking(open_bus: Any, quick: Settings) -> Open:
    @asynccontextmanager
    async def start() -> AsyncGenerator[tuple[Core, Listeners]]:
        async with (
            open_bus(settings=replace(quick, give_up_after=0.2)) as bus,
            open_operator(bus.server.url, fleet="default") as core,
        ):
            yield core, Listeners(core)

    return start


async def trusted(listeners: Listeners) -> Look:
    while (look := await listeners.look()) is None:
        await anyio.lowlevel.checkpoint()
    return look


async def test_nothing_is_known_until_the_registry_can_be_trusted(looking: Open) -> None:
    async with looking() as (core, listeners):
        assert await listeners.look() is None
        look = await trusted(listeners)
        assert core.connection.connected_for >= core.settings.trust_after
        assert look.listening("builder").alone_for < core.settings.trust_after
        assert look.listening(None).agents == ()


async def test_an_agent_listens_by_its_role_and_by_its_id(looking: Open) -> None:
    async with looking() as (core, listeners):
        await trusted(listeners)
        await core.registry.put(BUILDER)
        look = await trusted(listeners)
        assert look.agents == [BUILDER]
        for name in ("builder", "builder-1"):
            assert look.listening(name) == Listening(agents=("builder-1",), not_free="busy")
        assert look.listening("builder-2").agents == ()


async def test_who_is_gone_is_remembered_with_the_time_since_then(looking: Open) -> None:
    async with looking() as (core, listeners):
        await trusted(listeners)
        await core.registry.put(BUILDER)
        seen = await trusted(listeners)
        await core.registry.remove("builder-1")
        gone = await trusted(listeners)
        assert gone.listening("builder") == Listening(
            alone_for=gone.at - seen.at, gone=("builder-1",)
        )
        kept = 2 * core.settings.give_up_after
        while gone.listening("builder").gone:
            assert gone.listening("builder").alone_for <= kept
            gone = await trusted(listeners)
        assert gone.listening("builder").alone_for > kept


async def test_a_registry_that_does_not_answer_tells_of_nobodys_absence(
    looking: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was away meanwhile may have been there."""

    async def unanswered(self: Registry) -> list[Presence]:
        raise NoAnswerError

    async with looking() as (core, listeners):
        await core.registry.put(BUILDER)
        before = await trusted(listeners)
        await core.registry.remove("builder-1")
        with monkeypatch.context() as patch:
            patch.setattr(Registry, "list", unanswered)
            assert await listeners.look() is None
        after = await trusted(listeners)
        alone = after.listening("builder")
        assert alone.gone == ()
        assert alone.alone_for < after.at - before.at
