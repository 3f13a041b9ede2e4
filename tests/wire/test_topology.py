"""What a fleet needs on the server: made once, compared at each start, never changed silently."""

from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
import pytest

from batonbus.rules.errors import InvalidTokenError, TopologyError
from batonbus.rules.settings import Settings
from batonbus.wire.agreed import read_settings
from batonbus.wire.connection import Connection, connect
from batonbus.wire.streams import WINDOW_MANAGER_CONSUMER, role_consumer
from batonbus.wire.subjects import (
    checkpoint_bucket,
    objects_bucket,
    registry_bucket,
    stream_name,
)
from batonbus.wire.topology import differences, ensure_addressee, ensure_topology, inspect_topology

pytestmark = pytest.mark.anyio

QUICK = Settings(ack_wait=1.0, heartbeat=0.2)


async def config_of(connection: Connection, verb: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(await connection.api(verb))["config"]
    return found


async def change(connection: Connection, verb: str, info: str, **values: Any) -> None:
    """What an operator may do to a stream or a consumer."""
    config = {**await config_of(connection, info), **values}
    body = config
    if verb.startswith("CONSUMER"):
        body = {"stream_name": verb.split(".")[2], "config": config, "action": "update"}
    await connection.api(verb, body)


async def test_a_second_start_is_a_no_op(
    connection: Connection, fleet: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert await ensure_topology(connection, fleet, QUICK) == QUICK
    await ensure_addressee(connection, fleet, "builder", QUICK)
    assert caplog.text.count("created") == 6
    caplog.clear()
    assert await ensure_topology(connection, fleet, QUICK) == QUICK
    await ensure_addressee(connection, fleet, "builder", QUICK)
    assert caplog.text.count("created") == 0


async def test_starters_at_one_time_do_not_hinder_one_another(server: Any, fleet: str) -> None:
    agreed: list[Settings] = []

    async def start(wanted: Settings | None) -> None:
        async with connect(server.url, "window-manager") as connection:
            agreed.append(await ensure_topology(connection, fleet, wanted))
            await ensure_addressee(connection, fleet, "builder", agreed[-1])

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(start, None)
    assert agreed == [Settings()] * 8


async def test_the_settings_of_the_first_start_count_for_all(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet, QUICK)
    assert await ensure_topology(connection, fleet) == QUICK
    assert await read_settings(connection, fleet) == QUICK


async def test_a_new_fleet_has_the_default_settings(connection: Connection, fleet: str) -> None:
    assert await ensure_topology(connection, fleet) == Settings()


async def test_other_settings_are_refused_with_every_number(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet, QUICK)
    with pytest.raises(TopologyError) as caught:
        await ensure_topology(
            connection, fleet, Settings(ack_wait=5.0, heartbeat=0.2, stop_grace=9)
        )
    problem = str(caught.value)
    assert f"the settings of fleet '{fleet}' on the server differs" in problem
    assert "ack_wait is 1.0, needed 5.0" in problem
    assert "stop_grace is 30.0, needed 9" in problem
    assert "heartbeat" not in problem


async def test_settings_of_another_version_are_refused_by_name(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet)
    name = stream_name(fleet)
    metadata = {"batonbus.settings": '{"ack_wait":1.0,"colour":"red"}'}
    await change(connection, f"STREAM.UPDATE.{name}", f"STREAM.INFO.{name}", metadata=metadata)
    with pytest.raises(TopologyError, match=r"colour.*give it a new fleet"):
        await ensure_topology(connection, fleet)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"max_age": 600_000_000_000}, "max_age is 600000000000, needed 0"),
        ({"max_msgs_per_subject": 1}, "max_msgs_per_subject is 1, needed -1"),
        ({"discard": "old"}, "discard is 'old', needed 'new'"),
        ({"subjects": ["other.>"]}, "subjects is ['other.>'], needed ["),
    ],
)
async def test_a_ledger_that_would_lose_events_is_refused_by_key_and_values(
    connection: Connection, fleet: str, values: dict[str, Any], problem: str
) -> None:
    await ensure_topology(connection, fleet)
    name = stream_name(fleet)
    await change(connection, f"STREAM.UPDATE.{name}", f"STREAM.INFO.{name}", **values)
    with pytest.raises(TopologyError) as caught:
        await ensure_topology(connection, fleet)
    assert f"stream {name} on the server differs: {problem}" in str(caught.value)
    assert "give this bus a fleet name of its own" in str(caught.value)


async def test_a_ledger_that_the_operator_only_enriched_is_taken(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet)
    name = stream_name(fleet)
    more = {"max_bytes": 10_000_000, "description": "ours"}
    await change(connection, f"STREAM.UPDATE.{name}", f"STREAM.INFO.{name}", max_bytes=10_000_000)
    await ensure_topology(connection, fleet)
    assert (await config_of(connection, f"STREAM.INFO.{name}"))["max_bytes"] == more["max_bytes"]


async def test_a_consumer_with_old_settings_is_never_reused_silently(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet, QUICK)
    await ensure_addressee(connection, fleet, "builder", QUICK)
    stream, name = stream_name(fleet), role_consumer("builder")
    verb, info = f"CONSUMER.CREATE.{stream}.{name}", f"CONSUMER.INFO.{stream}.{name}"
    other = {"max_deliver": 3, "ack_wait": 2_000_000_000, "filter_subject": f"{fleet}.handoff.a"}
    await change(connection, verb, info, **other)
    with pytest.raises(TopologyError) as caught:
        await ensure_addressee(connection, fleet, "builder", QUICK)
    problem = str(caught.value)
    assert problem.startswith(f"consumer {name} of {stream} on the server differs")
    assert "max_deliver is 3, needed -1" in problem
    assert "ack_wait is 2000000000, needed 1000000000" in problem
    assert f"filter_subject is '{fleet}.handoff.a', needed '{fleet}.handoff.*.delivered" in problem
    assert (await config_of(connection, info))["max_deliver"] == 3


async def test_deliveries_are_without_limit_and_held_ones_never_block_new_ones(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet, QUICK)
    await ensure_addressee(connection, fleet, "builder", QUICK)
    stream = stream_name(fleet)
    manager = await config_of(connection, f"CONSUMER.INFO.{stream}.{WINDOW_MANAGER_CONSUMER}")
    role = await config_of(connection, f"CONSUMER.INFO.{stream}.{role_consumer('builder')}")
    assert (manager["max_deliver"], manager["max_ack_pending"]) == (-1, -1)
    assert (role["max_deliver"], role["ack_wait"]) == (-1, 1_000_000_000)
    assert set(manager["filter_subjects"]) == {
        f"{fleet}.handoff.*.sent.>",
        f"{fleet}.handoff.*.settled.>",
    }


async def test_the_registry_forgets_an_agent_as_the_settings_say(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet, Settings(heartbeat=2.0, missed_beats=4))
    config = await config_of(connection, f"STREAM.INFO.KV_{registry_bucket(fleet)}")
    assert config["max_age"] == 8_000_000_000


@pytest.mark.parametrize("name", ["", "a.b", "*", "my fleet"])
async def test_a_fleet_name_that_cannot_stand_in_a_subject_makes_nothing(
    connection: Connection, name: str
) -> None:
    with pytest.raises(InvalidTokenError):
        await ensure_topology(connection, name)


async def test_two_fleets_live_on_one_server(connection: Connection, fleet: str) -> None:
    await ensure_topology(connection, fleet, QUICK)
    await ensure_topology(connection, f"{fleet}-2", Settings())
    assert await read_settings(connection, fleet) == QUICK


async def test_every_start_notes_the_servers_clock(connection: Connection, fleet: str) -> None:
    await ensure_topology(connection, fleet)
    first = connection.server_time()
    await read_settings(connection, fleet)
    assert 0 < connection.server_time() - first < 5


async def test_an_agent_that_starts_twenty_times_leaves_one_consumer(
    connection: Connection, fleet: str
) -> None:
    """And one that never comes back is forgotten by the server."""
    await ensure_topology(connection, fleet)
    for _ in range(20):
        await ensure_addressee(connection, fleet, "builder-1", Settings())
    data = await connection.api(f"CONSUMER.LIST.{stream_name(fleet)}")
    found = {it["name"]: it["config"] for it in msgspec.json.decode(data)["consumers"]}
    assert set(found) == {WINDOW_MANAGER_CONSUMER, role_consumer("builder-1")}
    week = 7 * 24 * 3600 * 1_000_000_000
    assert found[role_consumer("builder-1")]["inactive_threshold"] == week


# Looking without touching.


async def test_an_inspection_makes_nothing(connection: Connection, fleet: str) -> None:
    assert await inspect_topology(connection, fleet) == {stream_name(fleet): None}
    assert await inspect_topology(connection, fleet) == {stream_name(fleet): None}


async def test_an_inspection_names_what_is_missing_and_what_differs(
    connection: Connection, fleet: str
) -> None:
    await ensure_topology(connection, fleet, QUICK)
    await ensure_addressee(connection, fleet, "builder", QUICK)
    stream, bucket = stream_name(fleet), f"KV_{registry_bucket(fleet)}"
    checkpoints = f"KV_{checkpoint_bucket(fleet)}"
    found = await inspect_topology(connection, fleet)
    objects = f"KV_{objects_bucket(fleet)}"
    consumers = {WINDOW_MANAGER_CONSUMER, role_consumer("builder")}
    assert set(found) == {stream, bucket, objects, checkpoints, *consumers}
    assert all(it is not None and it.differing == () for it in found.values())
    await connection.api(f"CONSUMER.DELETE.{stream}.{WINDOW_MANAGER_CONSUMER}")
    await change(
        connection, f"STREAM.UPDATE.{bucket}", f"STREAM.INFO.{bucket}", max_age=9_000_000_000
    )
    found = await inspect_topology(connection, fleet)
    assert found[WINDOW_MANAGER_CONSUMER] is None
    await connection.api(f"STREAM.DELETE.{objects}")
    assert (await inspect_topology(connection, fleet))[objects] is None
    registry = found[bucket]
    assert registry is not None
    assert registry.differing == ("max_age is 9000000000, needed 600000000",)


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": False, "b": "", "c": 0, "d": []}, {}, []),
        ({"a": 1}, {}, ["a is None, needed 1"]),
        ({"a": 1}, {"a": 2}, ["a is 2, needed 1"]),
        ({"metadata": {"x": "1"}}, {"metadata": {"y": "2"}}, []),
        ({"a": True, "b": [1]}, {"b": [2]}, ["a is None, needed True", "b is [2], needed [1]"]),
    ],
)
def test_what_differs_is_told_and_what_the_server_leaves_out_is_empty(
    wanted: Mapping[str, Any], found: Mapping[str, Any], expected: list[str]
) -> None:
    assert differences(wanted, found) == expected
