"""What a fleet agreed on: stored with its ledger, read by all."""

import pytest
from msgspec.structs import replace

from batonbus.rules.errors import TopologyError
from batonbus.rules.policy import Checkpoints, Policy
from batonbus.rules.settings import Settings
from batonbus.wire.agreed import read_agreed, read_policy, read_settings, store_policy
from batonbus.wire.connection import Connection
from batonbus.wire.topology import ensure_topology

pytestmark = pytest.mark.anyio

QUICK = Settings(ack_wait=1.0, heartbeat=0.2)


async def test_where_there_is_no_ledger_a_joining_process_is_told_how_to_start_one(
    connection: Connection, fleet: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        await read_settings(connection, fleet)
    problem = f"there is no ledger of the fleet '{fleet}' at nats://127.0.0.1:"
    assert str(caught.value).startswith(problem)
    assert "`batonbus up`" in str(caught.value)


async def test_a_fleet_without_a_stored_policy_has_the_default_one(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet, QUICK)
    assert await read_agreed(connection, fleet) == (QUICK, Policy())


async def test_a_stored_policy_is_read_back_and_the_settings_stay(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet, QUICK)
    stricter = replace(Policy(), checkpoints=Checkpoints(interval_minutes=30))
    await store_policy(connection, fleet, stricter)
    assert await read_policy(connection, fleet) == stricter
    assert await read_settings(connection, fleet) == QUICK
    assert await ensure_topology(connection, fleet) == QUICK
