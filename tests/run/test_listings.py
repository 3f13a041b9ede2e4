"""Looks at the registry: shared by those who come together, and no wait for one who comes alone."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from batonbus.rules.chain import WINDOW_MANAGER
from batonbus.rules.settings import Settings
from batonbus.run import listings as listings_module
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_core
from batonbus.run.listings import Listing, Listings
from batonbus.wire.registry import Registry
from batonbus.wire.server import EmbeddedServer, embedded_server

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[EmbeddedServer]:
    async with embedded_server(tmp_path) as running:
        yield running


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has an entry for each look at the registry."""
    found: list[int] = []
    look = Registry.list

    async def counted(self: Registry, **more: Any) -> Any:
        found.append(len(found))
        return await look(self, **more)

    monkeypatch.setattr(Registry, "list", counted)
    return found


@asynccontextmanager
async def open_listings(url: str) -> AsyncGenerator[Listings]:
    with anyio.fail_after(20):
        async with open_core(url, WINDOW_MANAGER, fleet=DEFAULT_FLEET, settings=Settings()) as core:
            listings = Listings(core)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listings.run)
                yield listings
                tasks.cancel_scope.cancel()


async def ask(listings: Listings, count: int) -> list[Listing]:
    found: list[Listing] = []

    async def one() -> None:
        found.append(await listings.fresh())

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return found


async def test_those_who_come_together_share_one_look(
    server: EmbeddedServer, looks: list[int]
) -> None:
    async with open_listings(server.url) as listings:
        found = await ask(listings, 50)
    assert len(looks) == 1
    assert all(it is found[0] for it in found)


async def test_one_who_comes_alone_waits_for_nothing_but_the_look(
    server: EmbeddedServer, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings_module, "INTERVAL", 60)
    async with open_listings(server.url) as listings:
        for _ in range(20):
            await ask(listings, 1)
    assert len(looks) == 20


async def test_after_a_crowd_all_who_come_in_the_interval_share_the_next_look(
    server: EmbeddedServer, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings_module, "INTERVAL", 1)
    async with open_listings(server.url) as listings:
        await ask(listings, 2)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask, listings, 1)
                await anyio.sleep(0.01)  # one after the other, within the interval
    assert len(looks) == 2


async def test_a_look_that_began_before_one_came_is_not_given_to_him(
    server: EmbeddedServer,
) -> None:
    async with open_listings(server.url) as listings:
        first, second = await ask(listings, 1), await ask(listings, 1)
    assert second[0].began > first[0].began
