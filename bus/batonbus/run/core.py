"""What every process of the bus has: a connection, a ledger, a registry, the fleet's settings."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from msgspec import Struct

from batonbus.logs import log
from batonbus.rules.chain import OPERATOR
from batonbus.rules.diagnosis import payload_problem
from batonbus.rules.errors import BusUnavailableError, NoAnswerError, TopologyError
from batonbus.rules.policy import Policy
from batonbus.rules.settings import Settings
from batonbus.run.policies import Policies
from batonbus.wire.agreed import read_agreed, read_clock, read_policy
from batonbus.wire.connection import Connection, connect
from batonbus.wire.ledger import Ledger
from batonbus.wire.objects import Objects
from batonbus.wire.publisher import Publisher
from batonbus.wire.registry import Registry
from batonbus.wire.topology import ensure_topology

CLOCK_INTERVAL = 60.0
"""Seconds between two looks at the server's clock."""


class Core(Struct, frozen=True):
    """The bus's own tools, for its own actors: they may read the ledger."""

    connection: Connection
    ledger: Ledger
    registry: Registry
    objects: Objects
    settings: Settings
    fleet: str
    policies: Policies

    @property
    def policy(self) -> Policy:
        """The context policy that is in force now."""
        return self.policies.now


@asynccontextmanager
async def open_core(
    url: str, actor: str, *, fleet: str, settings: Settings | None = None
) -> AsyncGenerator[Core]:
    """Connect as one of the bus's actors, making or comparing the topology first.

    Raises BusUnavailableError, TopologyError; and BusUnavailableError out of the block when NATS
    closes the connection for good.
    """
    async with connect(url, actor) as connection, Publisher(connection) as publisher:
        if problem := payload_problem(connection.client.max_payload):
            raise TopologyError(problem)
        agreed = await ensure_topology(connection, fleet, settings)
        core = Core(
            connection,
            Ledger(connection, publisher, fleet),
            Registry(connection, publisher, fleet),
            Objects(connection, publisher, fleet),
            agreed,
            fleet,
            Policies(fleet, await read_policy(connection, fleet), agreed),
        )
        async with beside(
            connection.wait_closed,
            partial(_watch_clock, connection, fleet),
            partial(core.policies.watch, partial(read_policy, connection, fleet)),
        ):
            yield core


@asynccontextmanager
async def beside(*functions: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """Run endless functions beside the block. What one of them or the block itself raises comes out
    as it is, not in a group."""
    try:
        async with anyio.create_task_group() as tasks:
            for function in functions:
                tasks.start_soon(function)
            yield
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        first, *others = group.exceptions
        if others:
            raise
        raise first from None


@asynccontextmanager
async def open_operator(url: str, *, fleet: str) -> AsyncGenerator[Core]:
    """Connect as the operator, who looks and makes nothing.

    Raises BusUnavailableError, and TopologyError where there is no ledger.
    """
    async with connect(url, OPERATOR) as connection, Publisher(connection) as publisher:
        settings, policy = await read_agreed(connection, fleet)
        yield Core(
            connection,
            Ledger(connection, publisher, fleet),
            Registry(connection, publisher, fleet),
            Objects(connection, publisher, fleet),
            settings,
            fleet,
            Policies(fleet, policy, settings),
        )


async def _watch_clock(connection: Connection, fleet: str) -> None:
    while True:
        await anyio.sleep(CLOCK_INTERVAL)
        try:
            await read_clock(connection, fleet)
        except (NoAnswerError, BusUnavailableError) as error:
            log.warning("clock.unread", error=str(error))
