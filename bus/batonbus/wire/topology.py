"""The stream, the consumers and the buckets that a fleet needs, made or compared at each start.

The fleet's settings are stored with the stream, so that every process goes by the same numbers.
"""

import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, TypeVar

import anyio
import msgspec

from batonbus.logs import log
from batonbus.rules.errors import NoAnswerError, NobodyAnswersError, TopologyError
from batonbus.rules.fleet_secrets import problems
from batonbus.rules.policy import Policy
from batonbus.rules.settings import Settings
from batonbus.wire.connection import ApiError, Connection, DeniedError
from batonbus.wire.subjects import (
    all_events,
    check_token,
    checkpoint_bucket,
    deliveries_to,
    kind_filter,
    objects_bucket,
    registry_bucket,
    stream_name,
)

T = TypeVar("T", bound=msgspec.Struct)

STREAM_NOT_FOUND = 10059
NAME_IN_USE = 10058
CONSUMER_NOT_FOUND = 10014
SETTINGS_KEY = "batonbus.settings"
POLICY_KEY = "batonbus.policy"
WINDOW_MANAGER_CONSUMER = "window-manager"

MANAGER_ACK_WAIT = 5.0
"""Seconds: an event takes a window manager milliseconds, and what one that died had in hand must be
delivered by another long before its receipt is due."""

CLUSTER_REPLICAS = 3
"""Nodes of a cluster that keep each event: any one of them may be lost. Consumers have as many as
their stream."""

READY_TIMEOUT = 30.0
"""Seconds that a server may take to be ready: a cluster to choose its leaders (four to nine are
usual), a single one to get through to a disk that stalls."""

ASK_TIMEOUT = 2.0
"""Seconds after which it is asked again: what has no leader yet is never answered."""

CHECKPOINTS_KEPT = 16
"""Entries of one agent that its bucket keeps; a reset writes five."""

ROLE_PREFIX = "to-"

FORGET_AFTER = 7 * 24 * 3600
"""Seconds after which the consumer of an addressee that nobody serves is removed."""

ROLE_PENDING = 50_000
"""Un-acked messages that a role's consumer may have: above any number of agents times slots."""


class _Info(msgspec.Struct):
    config: dict[str, Any]
    ts: datetime | None = None
    name: str = ""
    num_waiting: int = 0


class _Page(msgspec.Struct):
    total: int
    consumers: list[_Info] = []


_decode_info = msgspec.json.Decoder(_Info).decode


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the JetStream API that makes something; `verb` stands behind `$JS.API.`."""

    verb: str
    body: Mapping[str, Any]

    @property
    def subject(self) -> str:
        """Where it is asked for."""
        return f"$JS.API.{self.verb}"


def stream_making(config: Mapping[str, Any]) -> Making:
    """What makes a stream."""
    return Making(verb=f"STREAM.CREATE.{config['name']}", body=config)


def consumer_making(stream: str, config: Mapping[str, Any]) -> Making:
    """What makes a consumer. Not an "update", which would silently change one that is there; two
    makers at once ask for the same, so the second finds its wish fulfilled."""
    body = {"stream_name": stream, "config": config, "action": "create"}
    return Making(verb=f"CONSUMER.CREATE.{stream}.{config['name']}", body=body)


def role_consumer(addressee: str) -> str:
    """The durable consumer of a role's or an agent's deliveries."""
    return ROLE_PREFIX + check_token("addressee", addressee)


def ledger_config(fleet: str, settings: Settings) -> dict[str, Any]:
    """The ledger: no limit that drops old events, for such a limit cuts chains in the middle."""
    return {
        "name": stream_name(fleet),
        "description": "Batonbus: every event of every handoff",
        "subjects": [all_events(fleet)],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "allow_direct": True,
        "deny_delete": False,
        "metadata": {SETTINGS_KEY: msgspec.json.encode(settings).decode()},
    }


def registry_config(fleet: str, settings: Settings) -> dict[str, Any]:
    """A key-value bucket whose entries end when their heartbeats do."""
    bucket = registry_bucket(fleet)
    age = int(settings.presence_timeout * 1e9)
    return {
        "name": f"KV_{bucket}",
        "description": "Batonbus: the live agents",
        "subjects": [f"$KV.{bucket}.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_age": age,
        "duplicate_window": min(age, 120_000_000_000),
        "allow_direct": True,
        "allow_rollup_hdrs": False,
        "deny_delete": True,
    }


def objects_config(fleet: str) -> dict[str, Any]:
    """A key-value bucket of contents by their hash: what is stored is never overwritten, and has no
    age, for a handoff may be open for as long as it takes."""
    bucket = objects_bucket(fleet)
    return {
        "name": f"KV_{bucket}",
        "description": "Batonbus: long contents, by their hash",
        "subjects": [f"$KV.{bucket}.*"],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "discard_new_per_subject": True,
        "max_msgs_per_subject": 1,
        "max_age": 0,
        "allow_direct": True,
        "allow_rollup_hdrs": False,
        "deny_delete": False,
    }


def checkpoint_config(fleet: str) -> dict[str, Any]:
    """A key-value bucket of the agents' Checkpoints, which stay: the newest few of each agent."""
    bucket = checkpoint_bucket(fleet)
    return {
        "name": f"KV_{bucket}",
        "description": "Batonbus: the Checkpoints of the agents, and their resets",
        "subjects": [f"$KV.{bucket}.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_msgs_per_subject": CHECKPOINTS_KEPT,
        "max_age": 0,
        "allow_direct": True,
        "allow_rollup_hdrs": False,
        "deny_delete": True,
    }


def consumer_config(
    name: str, filters: list[str], settings: Settings, pending: int
) -> dict[str, Any]:
    """A durable pull consumer without a limit on deliveries: attempts are counted in the chain."""
    one = {"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": filters}
    return {
        "name": name,
        "durable_name": name,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "ack_wait": int(settings.ack_wait * 1e9),
        "max_deliver": -1,
        "max_ack_pending": pending,
        **one,
    }


def window_manager_config(fleet: str, settings: Settings) -> dict[str, Any]:
    """No limit on what waits un-acked: held handoffs must not block new ones."""
    filters = [kind_filter(fleet, "sent"), kind_filter(fleet, "settled")]
    config = consumer_config(WINDOW_MANAGER_CONSUMER, filters, settings, -1)
    return config | {"ack_wait": int(min(settings.ack_wait, MANAGER_ACK_WAIT) * 1e9)}


def addressee_config(fleet: str, addressee: str, settings: Settings) -> dict[str, Any]:
    """The deliveries to one role or agent. Forgotten a week after the last of them was there: an
    agent with a random id never comes back, and for one that does it is made anew."""
    filters = [deliveries_to(fleet, addressee)]
    config = consumer_config(role_consumer(addressee), filters, settings, ROLE_PENDING)
    return {**config, "inactive_threshold": FORGET_AFTER * 1_000_000_000}


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
    ledger = await _info(connection, f"STREAM.INFO.{stream_name(fleet)}", STREAM_NOT_FOUND)
    if ledger is None:
        return {stream_name(fleet): None}
    settings = _stored_settings(ledger)
    found: dict[str, Found | None] = {
        stream_name(fleet): _compared(ledger_config(fleet, settings), ledger)
    }
    buckets = (registry_config(fleet, settings), objects_config(fleet), checkpoint_config(fleet))
    for bucket in buckets:
        stored = await _info(connection, f"STREAM.INFO.{bucket['name']}", STREAM_NOT_FOUND)
        found[bucket["name"]] = None if stored is None else _compared(bucket, stored)
    found[WINDOW_MANAGER_CONSUMER] = None
    for info in await _list_consumers(connection, stream_name(fleet)):
        if wanted := _wanted_consumer(info.name, fleet, settings):
            found[info.name] = _compared(wanted, info)
    return found


def _compared(wanted: Mapping[str, Any], info: _Info) -> Found:
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


async def _list_consumers(connection: Connection, stream: str) -> list[_Info]:
    consumers: list[_Info] = []
    while True:
        data = await connection.api(f"CONSUMER.LIST.{stream}", {"offset": len(consumers)})
        page = msgspec.json.decode(data, type=_Page)
        consumers += page.consumers
        if not page.consumers or len(consumers) >= page.total:
            return consumers


async def read_settings(connection: Connection, fleet: str) -> Settings:
    """The settings stored with the ledger; also notes the server's clock.
    Raises TopologyError where there is no ledger."""
    return _stored_settings(await _read_ledger(connection, fleet))


async def _read_ledger(connection: Connection, fleet: str) -> _Info:
    info = await _info(connection, f"STREAM.INFO.{stream_name(fleet)}", STREAM_NOT_FOUND)
    if info is None:
        raise TopologyError(
            f"there is no ledger of the fleet {fleet!r} at {connection.address}: "
            "start the bus with `batonbus up`"
        )
    return info


async def read_policy(connection: Connection, fleet: str) -> Policy:
    """The context policy stored with the ledger; the defaults where none was stored.
    Raises TopologyError where there is no ledger, or the policy is of another version."""
    return _stored_policy(await _read_ledger(connection, fleet))


async def read_agreed(connection: Connection, fleet: str) -> tuple[Settings, Policy]:
    """All that the fleet agreed on, by one look; also notes the server's clock.
    Raises TopologyError as `read_settings` and `read_policy`."""
    info = await _read_ledger(connection, fleet)
    return _stored_settings(info), _stored_policy(info)


async def store_policy(connection: Connection, fleet: str, policy: Policy) -> None:
    """Store a context policy with the ledger; processes read it when they start, and again within
    `Settings.policy_interval`.
    Raises TopologyError where there is no ledger, or the server does not let us change it."""
    info = await _read_ledger(connection, fleet)
    stored: dict[str, str] = info.config.get("metadata") or {}
    metadata = {
        **stored,
        POLICY_KEY: msgspec.json.encode(policy).decode(),
    }
    try:
        await connection.api(
            f"STREAM.UPDATE.{stream_name(fleet)}", {**info.config, "metadata": metadata}
        )
    except DeniedError as error:
        raise TopologyError(
            f"the server does not let {connection.actor} change the ledger of {fleet!r} (it may "
            f"not publish to {error.subject}): give this user that permission"
        ) from error


async def read_clock(connection: Connection, fleet: str) -> None:
    """Note the server's clock. Raises TopologyError, NoAnswerError."""
    await read_settings(connection, fleet)


async def _ensure_ledger(connection: Connection, fleet: str, wanted: Settings | None) -> Settings:
    info = await _find_or_make(connection, ledger_config(fleet, wanted or Settings()))
    settings = _stored_settings(info)
    if wanted is not None and wanted != settings:
        stored = msgspec.to_builtins(settings)
        asked = msgspec.to_builtins(wanted)
        raise TopologyError(
            _explain(f"the settings of fleet {fleet!r}", differences(asked, stored))
        )
    _compare(f"stream {stream_name(fleet)}", ledger_config(fleet, settings), info.config)
    return settings


def _stored_settings(info: _Info) -> Settings:
    advice = "run the version that made the bus, or give it a new fleet"
    return _stored(info, SETTINGS_KEY, Settings, "settings", advice)


def _stored_policy(info: _Info) -> Policy:
    advice = "store one anew with `batonbus policy set FILE`"
    policy = _stored(info, POLICY_KEY, Policy, "a policy", advice)
    if wrong := next(problems(policy.secrets), None):
        raise TopologyError(
            f"stream {info.config['name']} holds a policy that counts for nothing "
            f"({wrong}): {advice}"
        )
    return policy


def _stored(info: _Info, key: str, type_: type[T], what: str, advice: str) -> T:
    """What is stored with the ledger; its defaults where nothing is."""
    metadata: dict[str, str] = info.config.get("metadata") or {}
    try:
        return msgspec.json.decode(metadata.get(key, "{}"), type=type_)
    except msgspec.ValidationError as error:
        raise TopologyError(
            f"stream {info.config['name']} holds {what} of another version of batonbus "
            f"({error}): {advice}"
        ) from error


async def _ensure_stream(connection: Connection, config: dict[str, Any]) -> None:
    info = await _find_or_make(connection, config)
    _compare(f"stream {config['name']}", config, info.config)


async def _find_or_make(connection: Connection, config: dict[str, Any]) -> _Info:
    """On a cluster it is made with replicas: how many, the operator may change at any time."""
    name = config["name"]
    if info := await _info(connection, f"STREAM.INFO.{name}", STREAM_NOT_FOUND):
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
    return await _read_info(connection, f"STREAM.INFO.{name}", until_there=True)


async def _ensure_consumer(connection: Connection, stream: str, config: dict[str, Any]) -> None:
    name = config["name"]
    info = await _info(connection, f"CONSUMER.INFO.{stream}.{name}", CONSUMER_NOT_FOUND)
    if info is None:
        await _make(connection, consumer_making(stream, config), f"consumer {name} of {stream}")
        log.info("consumer.created", stream=stream, consumer=name)
    else:
        _compare(f"consumer {name} of {stream}", config, info.config)


async def _make(connection: Connection, making: Making, what: str) -> None:
    """Raises TopologyError where the server does not let us: then an operator must."""
    try:
        await _ask(connection, making.verb, making.body)
    except DeniedError as error:
        raise TopologyError(
            f"{what} is missing, and the server does not let {connection.actor} make it (it may "
            f"not publish to {error.subject}): let an operator make what "
            "`batonbus topology` prints, or give this user that permission"
        ) from error


async def _info(connection: Connection, verb: str, missing: int) -> _Info | None:
    try:
        return await _read_info(connection, verb)
    except ApiError as error:
        if error.err_code == missing:
            return None
        raise


async def _read_info(connection: Connection, verb: str, *, until_there: bool = False) -> _Info:
    passing = {STREAM_NOT_FOUND} if until_there else set[int]()
    info = _decode_info(await _ask(connection, verb, passing=passing))
    if info.ts is not None:
        connection.set_clock(info.ts)
    return info


async def _ask(
    connection: Connection, verb: str, body: object = None, *, passing: Collection[int] = ()
) -> bytes:
    """A JetStream API request, asked again until the server is ready for it: it does not answer
    yet, or a cluster still chooses its leaders, or has errors that are `passing` there."""
    until = time.monotonic() + READY_TIMEOUT
    while True:
        try:
            return await connection.api(verb, body, timeout=ASK_TIMEOUT)
        except (ApiError, NoAnswerError) as error:
            if not _passes(error, passing, connection) or time.monotonic() > until:
                raise
            log.warning("server.not_ready", asked=verb, error=str(error))
        await anyio.sleep(0.2)


def _passes(
    error: ApiError | NoAnswerError, passing: Collection[int], connection: Connection
) -> bool:
    if connection.is_clustered:
        return isinstance(error, NoAnswerError) or error.temporary or error.err_code in passing
    return isinstance(error, NoAnswerError) and not isinstance(error, NobodyAnswersError)


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
