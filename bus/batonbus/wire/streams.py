"""The streams and consumers of a fleet, each as the server must have it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from batonbus.rules.settings import Settings
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

SETTINGS_KEY = "batonbus.settings"
"""Where the ledger's metadata has the fleet's settings."""

WINDOW_MANAGER_CONSUMER = "window-manager"

MANAGER_ACK_WAIT = 5.0
"""Seconds: an event takes a window manager milliseconds, and what one that died had in hand must be
delivered by another long before its receipt is due."""

CLUSTER_REPLICAS = 3
"""Nodes of a cluster that keep each event: any one of them may be lost. Consumers have as many as
their stream."""

CHECKPOINTS_KEPT = 16
"""Entries of one agent that its bucket keeps; a reset writes five."""

ROLE_PREFIX = "to-"

FORGET_AFTER = 7 * 24 * 3600
"""Seconds after which the consumer of an addressee that nobody serves is removed."""

ROLE_PENDING = 50_000
"""Un-acked messages that a role's consumer may have: above any number of agents times slots."""


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
    return _stream(stream_name(fleet), "every event of every handoff", all_events(fleet)) | {
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "deny_delete": False,
        "metadata": {SETTINGS_KEY: msgspec.json.encode(settings).decode()},
    }


def registry_config(fleet: str, settings: Settings) -> dict[str, Any]:
    """A key-value bucket whose entries end when their heartbeats do."""
    bucket = registry_bucket(fleet)
    age = int(settings.presence_timeout * 1e9)
    return _stream(f"KV_{bucket}", "the live agents", f"$KV.{bucket}.>") | {
        "max_msgs_per_subject": 1,
        "max_age": age,
        "duplicate_window": min(age, 120_000_000_000),
        "allow_rollup_hdrs": False,
        "deny_delete": True,
    }


def objects_config(fleet: str) -> dict[str, Any]:
    """A key-value bucket of contents by their hash: what is stored is never overwritten, and has no
    age, for a handoff may be open for as long as it takes."""
    bucket = objects_bucket(fleet)
    return _stream(f"KV_{bucket}", "long contents, by their hash", f"$KV.{bucket}.*") | {
        "discard_new_per_subject": True,
        "max_msgs_per_subject": 1,
        "max_age": 0,
        "allow_rollup_hdrs": False,
        "deny_delete": False,
    }


def checkpoint_config(fleet: str) -> dict[str, Any]:
    """A key-value bucket of the agents' Checkpoints, which stay: the newest few of each agent."""
    bucket = checkpoint_bucket(fleet)
    what = "the Checkpoints of the agents, and their resets"
    return _stream(f"KV_{bucket}", what, f"$KV.{bucket}.>") | {
        "max_msgs_per_subject": CHECKPOINTS_KEPT,
        "max_age": 0,
        "allow_rollup_hdrs": False,
        "deny_delete": True,
    }


def _stream(name: str, what: str, subject: str) -> dict[str, Any]:
    """What all of them have: on the disk, and full rather than forgetful."""
    return {
        "name": name,
        "description": f"Batonbus: {what}",
        "subjects": [subject],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "allow_direct": True,
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
