"""Looking at a bus, and writing one message that counts for nothing; `rules.diagnosis` judges what
is seen."""

import time
import urllib.request
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from batonbus.logs import log
from batonbus.rules.chain import OPERATOR
from batonbus.rules.diagnosis import Facts, Finding, concerns, diagnose
from batonbus.rules.errors import BusUnavailableError, NoAnswerError
from batonbus.run.asking import ask_hello
from batonbus.run.room import measure
from batonbus.wire.connection import Connection, connect
from batonbus.wire.probe import probe_ledger
from batonbus.wire.publisher import Publisher
from batonbus.wire.registry import Registry
from batonbus.wire.server import SYNC_INTERVAL
from batonbus.wire.streams import CLUSTER_REPLICAS, WINDOW_MANAGER_CONSUMER
from batonbus.wire.subjects import stream_name
from batonbus.wire.topology import Found, inspect_topology
from batonbus_schemas import Presence

PATIENCE = 2.0
"""Seconds in which a live window manager must be seen waiting: a busy one does not always wait."""


class _Config(Struct):
    sync_always: bool = False
    sync_interval: int = 0


class _JetStream(Struct):
    config: _Config


class _Page(Struct):
    """What is read of the monitoring's `/varz`."""

    jetstream: _JetStream


async def examine(
    url: str, fleet: str, *, monitoring: str | None = None, store: Path | None = None
) -> list[Finding]:
    """Check a bus. `monitoring` is the http address of the server's own monitoring, if known;
    `store` is the server's folder, where `batonbus up` started it by a configuration of ours."""
    try:
        async with connect(url, OPERATOR) as connection:
            return diagnose(await _look(connection, fleet, monitoring, store))
    except (BusUnavailableError, NoAnswerError) as error:
        what, _, advice = str(error).partition(": ")
        return [Finding(name="server", status="fail", detail=what, advice=advice)]


async def _look(
    connection: Connection, fleet: str, monitoring: str | None, store: Path | None
) -> Facts:
    facts = _look_at_server(connection, fleet)
    try:
        await connection.api("INFO")
    except (BusUnavailableError, NoAnswerError) as error:
        return replace(facts, jetstream=str(error))
    parts = await _look_at_parts(connection, fleet)
    manager, ledger = parts.get(WINDOW_MANAGER_CONSUMER), parts[stream_name(fleet)]
    # Before anything else takes its time: the answer of just now told the server's.
    skew = connection.server_time() - time.time() if ledger else 0.0
    sync, why_unknown = await _look_at_disk(monitoring, embedded=store is not None)
    return replace(
        facts,
        skew=skew,
        unwritten=await _write(connection, fleet) if ledger else None,
        parts={name: it and it.differing for name, it in parts.items()},
        at_risk=tuple(
            name
            for name, it in parts.items()
            if connection.is_clustered and it and 0 < it.replicas < CLUSTER_REPLICAS
        ),
        pulls=manager.waiting if manager else 0,
        keeper=await _ask_keeper(connection, fleet),
        agents=await _list_agents(connection, fleet) if all(parts.values()) else (),
        sync=sync,
        sync_unknown=why_unknown,
        storage=await measure(connection, fleet, store) if parts[stream_name(fleet)] else None,
    )


def _look_at_server(connection: Connection, fleet: str) -> Facts:
    version = connection.client.connected_server_version
    return Facts(
        address=connection.address,
        version=(version.major, version.minor, version.patch),
        max_payload=connection.client.max_payload,
        fleet=fleet,
        open_at=connection.open_at,
    )


async def _look_at_disk(monitoring: str | None, embedded: bool) -> tuple[str | None, str]:
    """As `read_sync`."""
    if monitoring is not None:
        return await anyio.to_thread.run_sync(read_sync, monitoring)
    return (SYNC_INTERVAL, "") if embedded else (None, "no monitoring address is given")


async def warn_at_start(
    connection: Connection, fleet: str, *, monitoring: str | None = None, embedded: bool = False
) -> None:
    """Log what a process of the bus can start with, and whoever runs it must know; what cannot be
    known is left to the doctor. `monitoring` as of `examine`; `embedded`: the server is ours."""
    sync, _ = await _look_at_disk(monitoring, embedded)
    for it in concerns(replace(_look_at_server(connection, fleet), sync=sync)):
        log.warning(f"{it.name}.unsafe", detail=it.detail, advice=it.advice)


async def _write(connection: Connection, fleet: str) -> str | None:
    """Why the ledger does not store what is written to it, if so."""
    try:
        await probe_ledger(connection, fleet)
    except (BusUnavailableError, NoAnswerError) as error:
        return str(error)
    return None


async def _look_at_parts(connection: Connection, fleet: str) -> dict[str, Found | None]:
    """The topology, as soon as a window manager waits for events or `PATIENCE` is over."""
    until = time.monotonic() + PATIENCE
    while True:
        parts = await inspect_topology(connection, fleet)
        manager = parts.get(WINDOW_MANAGER_CONSUMER)
        if manager is None or manager.waiting or time.monotonic() >= until:
            return parts
        await anyio.sleep(0.1)


async def _ask_keeper(connection: Connection, fleet: str) -> str | None:
    """Why no keeper answers, if none does."""
    try:
        await ask_hello(connection, fleet, None)
    except (BusUnavailableError, NoAnswerError) as error:
        return str(error)
    return None


async def _list_agents(connection: Connection, fleet: str) -> tuple[Presence, ...]:
    async with Publisher(connection) as publisher:
        return tuple(await Registry(connection, publisher, fleet).list())


def read_sync(monitoring: str) -> tuple[str | None, str]:
    """How often the server writes to its disk (`always`, or seconds), by its monitoring page; or
    None and why that is not known."""
    address = f"{monitoring.rstrip('/')}/varz"
    if not address.startswith(("http://", "https://")):
        return None, f"{monitoring} is no http address"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - checked above
            page = msgspec.json.decode(answer.read(), type=_Page)
    except (OSError, msgspec.MsgspecError) as error:
        return None, f"{address} gives no answer: {error}"
    config = page.jetstream.config
    return "always" if config.sync_always else f"{config.sync_interval / 1e9:g} s", ""
