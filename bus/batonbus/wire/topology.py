"""What a fleet needs on the server: made once, compared at each start, never changed silently."""

from collections.abc import Mapping
from typing import Any

import msgspec

from batonbus.logs import log
from batonbus.rules.errors import TopologyError
from batonbus.rules.settings import Settings
from batonbus.wire.agreed import stored_settings
from batonbus.wire.connection import ApiError, Connection, DeniedError
from batonbus.wire.jetstream import (
    CONSUMER_NOT_FOUND,
    NAME_IN_USE,
    STREAM_NOT_FOUND,
    Info,
    ask,
    find_info,
    list_consumers,
    read_info,
)
from batonbus.wire.streams import (
    CLUSTER_REPLICAS,
    ROLE_PREFIX,
    WINDOW_MANAGER_CONSUMER,
    Making,
    addressee_config,
    checkpoint_config,
    consumer_making,
    ledger_config,
    objects_config,
    registry_config,
    stream_making,
    window_manager_config,
)
from batonbus.wire.subjects import check_token, stream_name


async def ensure_topology(
    connection: Connection, fleet: str, wanted: Settings | None = None
) -> Settings:
    """Make what is missing, compare what is there, and return the fleet's settings.

    `wanted` None takes the stored settings (or the defaults for a new fleet). Raises TopologyError
    that names each difference.
    """
    check_token("fleet", fleet)
    settings = await _ensure_ledger(connection, fleet, wanted)
    await _ensure_stream(connection, registry_config(fleet, settings))
    await _ensure_stream(connection, objects_config(fleet))
    await _ensure_stream(connection, checkpoint_config(fleet))
    await _ensure_consumer(connection, stream_name(fleet), window_manager_config(fleet, settings))
    return settings


async def ensure_addressee(
    connection: Connection, fleet: str, addressee: str, settings: Settings
) -> None:
    """Make or compare the consumer of a role's or an agent's deliveries."""
    config = addressee_config(fleet, addressee, settings)
    await _ensure_consumer(connection, stream_name(fleet), config)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A stream or consumer as the server has it: `differing` names each setting that is not as
    needed, `waiting` counts the pulls that wait for a message, `replicas` the nodes that keep a
    stream (0 for a consumer that has as many as its stream)."""

    differing: tuple[str, ...] = ()
    waiting: int = 0
    replicas: int = 0


async def inspect_topology(connection: Connection, fleet: str) -> dict[str, Found | None]:
    """Compare all that the fleet needs with what is there, and make nothing: the ledger, the
    buckets, the window manager's consumer and those of addressees, by name (None: missing).
    Raises ApiError, NoAnswerError."""
    ledger = await find_info(connection, f"STREAM.INFO.{stream_name(fleet)}", STREAM_NOT_FOUND)
    if ledger is None:
        return {stream_name(fleet): None}
    settings = stored_settings(ledger)
    found: dict[str, Found | None] = {
        stream_name(fleet): _compared(ledger_config(fleet, settings), ledger)
    }
    buckets = (registry_config(fleet, settings), objects_config(fleet), checkpoint_config(fleet))
    for bucket in buckets:
        stored = await find_info(connection, f"STREAM.INFO.{bucket['name']}", STREAM_NOT_FOUND)
        found[bucket["name"]] = None if stored is None else _compared(bucket, stored)
    found[WINDOW_MANAGER_CONSUMER] = None
    for info in await list_consumers(connection, stream_name(fleet)):
        if wanted := _wanted_consumer(info.name, fleet, settings):
            found[info.name] = _compared(wanted, info)
    return found


def _compared(wanted: Mapping[str, Any], info: Info) -> Found:
    return Found(
        differing=tuple(differences(wanted, info.config)),
        waiting=info.num_waiting,
        replicas=info.config.get("num_replicas", 0),
    )


def _wanted_consumer(name: str, fleet: str, settings: Settings) -> dict[str, Any] | None:
    """The settings that a consumer of this name must have; None for readers, which have none."""
    if name == WINDOW_MANAGER_CONSUMER:
        return window_manager_config(fleet, settings)
    if name.startswith(ROLE_PREFIX):
        return addressee_config(fleet, name.removeprefix(ROLE_PREFIX), settings)
    return None


async def _ensure_ledger(connection: Connection, fleet: str, wanted: Settings | None) -> Settings:
    info = await _find_or_make(connection, ledger_config(fleet, wanted or Settings()))
    settings = stored_settings(info)
    if wanted is not None and wanted != settings:
        stored = msgspec.to_builtins(settings)
        asked = msgspec.to_builtins(wanted)
        raise TopologyError(
            _explain(f"the settings of fleet {fleet!r}", differences(asked, stored))
        )
    _compare(f"stream {stream_name(fleet)}", ledger_config(fleet, settings), info.config)
    return settings


async def _ensure_stream(connection: Connection, config: dict[str, Any]) -> None:
    info = await _find_or_make(connection, config)
    _compare(f"stream {config['name']}", config, info.config)


async def _find_or_make(connection: Connection, config: dict[str, Any]) -> Info:
    """On a cluster it is made with replicas: how many, the operator may change at any time."""
    name = config["name"]
    if info := await find_info(connection, f"STREAM.INFO.{name}", STREAM_NOT_FOUND):
        return info
    replicas = CLUSTER_REPLICAS if connection.is_clustered else 1
    making = stream_making(config | {"num_replicas": replicas})
    try:
        await _make(connection, making, f"stream {name}")
        log.info("stream.created", stream=name, replicas=replicas)
    except ApiError as error:
        # Another starter was first, with other settings: then those count, or differ.
        if error.err_code != NAME_IN_USE:
            raise
    # A cluster may say that the name is in use, and yet that the stream is not found.
    return await read_info(connection, f"STREAM.INFO.{name}", until_there=True)


async def _ensure_consumer(connection: Connection, stream: str, config: dict[str, Any]) -> None:
    name = config["name"]
    info = await find_info(connection, f"CONSUMER.INFO.{stream}.{name}", CONSUMER_NOT_FOUND)
    if info is None:
        await _make(connection, consumer_making(stream, config), f"consumer {name} of {stream}")
        log.info("consumer.created", stream=stream, consumer=name)
    else:
        _compare(f"consumer {name} of {stream}", config, info.config)


async def _make(connection: Connection, making: Making, what: str) -> None:
    """Raises TopologyError where the server does not let us: then an operator must."""
    try:
        await ask(connection, making.verb, making.body)
    except DeniedError as error:
        raise TopologyError(
            f"{what} is missing, and the server does not let {connection.actor} make it (it may "
            f"not publish to {error.subject}): let an operator make what "
            "`batonbus topology` prints, or give this user that permission"
        ) from error


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Each key of `wanted` that `found` has otherwise, with both values."""
    return [
        f"{key} is {found.get(key)!r}, needed {value!r}"
        for key, value in wanted.items()
        if key != "metadata" and _plain(found.get(key)) != _plain(value)
    ]


def _plain(value: Any) -> Any:
    """The server leaves out what is empty."""
    return value or None


def _compare(what: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    differing = differences(wanted, found)
    if differing:
        raise TopologyError(_explain(what, differing))


def _explain(what: str, differing: list[str]) -> str:
    return (
        f"{what} on the server differs: {'; '.join(differing)}. "
        "Change it there, or give this bus a fleet name of its own"
    )
