"""A server whose bus user may not make streams or consumers: what is there is taken, and what is
missing is named with the permission that it would take."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from batonbus.rules.errors import TopologyError
from batonbus.rules.settings import Settings
from batonbus.wire.blueprint import blueprint
from batonbus.wire.connection import Connection, DeniedError, connect
from batonbus.wire.topology import ensure_addressee, ensure_topology, inspect_topology

pytestmark = pytest.mark.anyio

FLEET = "guarded"
STREAM = "BATONBUS_guarded"
GUARDED = """
jetstream { store_dir: "STORE" }
authorization { users: [
  {user: admin, password: admin}
  {user: bus, password: bus, permissions: {
    publish: {deny: ["$JS.API.STREAM.CREATE.>", "$JS.API.CONSUMER.CREATE.>"]}
  }}
] }
"""


@pytest.fixture
def address(server_with: Any) -> Any:
    with server_with(GUARDED) as running:
        yield running


@asynccontextmanager
async def user(address: str, name: str) -> AsyncIterator[Connection]:
    async with connect(f"nats://{name}:{name}@{address}", "window-manager") as connection:
        yield connection


async def make_all(address: str, *addressees: str) -> None:
    """What an operator does with the blueprint."""
    async with user(address, "admin") as connection:
        for making in blueprint(FLEET, addressees, Settings()):
            await connection.api(making.verb, making.body)


async def test_a_missing_ledger_is_told_with_the_permission_and_the_command(address: str) -> None:
    async with user(address, "bus") as connection:
        with anyio.fail_after(2), pytest.raises(TopologyError) as caught:
            await ensure_topology(connection, FLEET)
    problem = str(caught.value)
    assert problem.startswith(f"stream {STREAM} is missing")
    assert f"may not publish to $JS.API.STREAM.CREATE.{STREAM}" in problem
    assert "let an operator make what `batonbus topology` prints" in problem


async def test_what_an_operator_made_by_the_blueprint_is_all_that_is_needed(address: str) -> None:
    await make_all(address, "builder")
    async with user(address, "bus") as connection:
        settings = await ensure_topology(connection, FLEET)
        await ensure_addressee(connection, FLEET, "builder", settings)
        found = await inspect_topology(connection, FLEET)
    assert settings == Settings()
    assert len(found) == 6
    assert all(it is not None and it.differing == () for it in found.values())


async def test_a_role_that_the_operator_did_not_make_is_named(address: str) -> None:
    await make_all(address)
    async with user(address, "bus") as connection:
        with anyio.fail_after(2), pytest.raises(TopologyError) as caught:
            await ensure_addressee(connection, FLEET, "builder", Settings())
    problem = str(caught.value)
    assert problem.startswith(f"consumer to-builder of {STREAM} is missing")
    assert f"$JS.API.CONSUMER.CREATE.{STREAM}.to-builder" in problem


async def test_a_blueprint_that_is_made_again_changes_nothing(address: str) -> None:
    await make_all(address, "builder", "builder")
    await make_all(address, "builder")
    async with user(address, "bus") as connection:
        assert await ensure_topology(connection, FLEET) == Settings()


async def test_a_question_that_the_server_does_not_pass_on_fails_at_once(address: str) -> None:
    """Beside one that it does, on the same connection."""
    async with user(address, "bus") as connection:

        async def allowed() -> None:
            await connection.api("INFO")

        with anyio.fail_after(2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(allowed)
                with pytest.raises(DeniedError, match=r"to \$JS\.API\.STREAM\.CREATE\.x: log in"):
                    await connection.request("$JS.API.STREAM.CREATE.x", timeout=30)
        await connection.api("INFO")
