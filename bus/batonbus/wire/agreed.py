"""What a fleet agreed on, stored with its ledger: the settings, which never change, and the context
policy, which may."""

from typing import TypeVar

import msgspec

from batonbus.rules.errors import TopologyError
from batonbus.rules.fleet_secrets import problems
from batonbus.rules.policy import Policy
from batonbus.rules.settings import Settings
from batonbus.wire.connection import Connection, DeniedError
from batonbus.wire.jetstream import STREAM_NOT_FOUND, Info, find_info
from batonbus.wire.streams import SETTINGS_KEY
from batonbus.wire.subjects import stream_name

POLICY_KEY = "batonbus.policy"
"""Where the ledger's metadata has the fleet's context policy."""

T = TypeVar("T", bound=msgspec.Struct)


async def read_settings(connection: Connection, fleet: str) -> Settings:
    """The settings stored with the ledger; also notes the server's clock.
    Raises TopologyError where there is no ledger."""
    return stored_settings(await _read_ledger(connection, fleet))


async def _read_ledger(connection: Connection, fleet: str) -> Info:
    info = await find_info(connection, f"STREAM.INFO.{stream_name(fleet)}", STREAM_NOT_FOUND)
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
    return stored_settings(info), _stored_policy(info)


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


def stored_settings(info: Info) -> Settings:
    """The settings that a ledger holds. Raises TopologyError where they are of another version."""
    advice = "run the version that made the bus, or give it a new fleet"
    return _stored(info, SETTINGS_KEY, Settings, "settings", advice)


def _stored_policy(info: Info) -> Policy:
    advice = "store one anew with `batonbus policy set FILE`"
    policy = _stored(info, POLICY_KEY, Policy, "a policy", advice)
    if wrong := next(problems(policy.secrets), None):
        raise TopologyError(
            f"stream {info.config['name']} holds a policy that counts for nothing "
            f"({wrong}): {advice}"
        )
    return policy


def _stored(info: Info, key: str, type_: type[T], what: str, advice: str) -> T:
    """What is stored with the ledger; its defaults where nothing is."""
    metadata: dict[str, str] = info.config.get("metadata") or {}
    try:
        return msgspec.json.decode(metadata.get(key, "{}"), type=type_)
    except msgspec.ValidationError as error:
        raise TopologyError(
            f"stream {info.config['name']} holds {what} of another version of batonbus "
            f"({error}): {advice}"
        ) from error
