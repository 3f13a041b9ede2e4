"""What an operator makes and grants where the bus's own user may not make anything."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from batonbus.rules.chain import (
    BUS_WRITES,
    MAY_FOLLOW,
    OPERATOR,
    RECEIPT_KEEPER,
    WINDOW_MANAGER,
)
from batonbus.rules.settings import Settings
from batonbus.wire.streams import (
    Making,
    addressee_config,
    checkpoint_config,
    consumer_making,
    ledger_config,
    objects_config,
    registry_config,
    role_consumer,
    stream_making,
    window_manager_config,
)
from batonbus.wire.subjects import (
    all_events,
    answers_to,
    ask_subject,
    checkpoint_bucket,
    checkpoint_key,
    checkpoint_reading,
    objects_bucket,
    registry_bucket,
    stream_name,
)


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """What one user may publish and subscribe to, as in a server's configuration."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def blueprint(fleet: str, addressees: Iterable[str], settings: Settings) -> list[Making]:
    """The requests that make all that a fleet needs: the ledger, the buckets, the window manager's
    consumer, and one for each addressee (a role or an agent). Raises InvalidTokenError."""
    stream = stream_name(fleet)
    consumers: list[Mapping[str, Any]] = [
        window_manager_config(fleet, settings),
        *(addressee_config(fleet, it, settings) for it in dict.fromkeys(addressees)),
    ]
    return [
        stream_making(ledger_config(fleet, settings)),
        stream_making(registry_config(fleet, settings)),
        stream_making(objects_config(fleet)),
        stream_making(checkpoint_config(fleet)),
        *(consumer_making(stream, it) for it in consumers),
    ]


def bus_rights(fleet: str) -> Rights:
    """All that window manager, receipt keeper and operator need once the blueprint is made; they
    also answer whoever asks (`allow_responses`). They read the ledger through consumers that they
    make for a moment. Raises InvalidTokenError."""
    stream, bucket, objects = stream_name(fleet), registry_bucket(fleet), objects_bucket(fleet)
    actors = (WINDOW_MANAGER, RECEIPT_KEEPER, OPERATOR)
    return Rights(
        publish=(
            all_events(fleet),
            f"{fleet}.ask.*.*",
            f"$KV.{bucket}.*",
            f"$KV.{objects}.*",
            f"$JS.ACK.{stream}.>",
            "$JS.API.INFO",
            f"$JS.API.STREAM.INFO.{stream}",
            f"$JS.API.STREAM.INFO.KV_{bucket}",
            f"$JS.API.STREAM.INFO.KV_{objects}",
            f"$JS.API.STREAM.INFO.KV_{checkpoint_bucket(fleet)}",
            f"$JS.API.STREAM.MSG.GET.{stream}",
            f"$JS.API.STREAM.MSG.DELETE.{stream}",
            f"$JS.API.STREAM.MSG.GET.KV_{objects}",
            f"$JS.API.STREAM.PURGE.{stream}",
            f"$JS.API.DIRECT.GET.KV_{bucket}",
            f"$JS.API.CONSUMER.LIST.{stream}",
            f"$JS.API.CONSUMER.INFO.{stream}.*",
            f"$JS.API.CONSUMER.CREATE.{stream}.*",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
        ),
        subscribe=(
            all_events(fleet),
            f"{fleet}.ask.*.*",
            "$SRV.>",
            *(f"_INBOX_{actor}.>" for actor in actors),
        ),
    )


def agent_rights(fleet: str, agent: str, role: str) -> Rights:
    """All that an agent needs: to write events in its own name, to pull and acknowledge what is
    delivered to it or to its role, to ask the bus, to say that it is there, to keep its own
    Checkpoint, and to hear what is for it. Raises InvalidTokenError."""
    stream = stream_name(fleet)
    consumers = [role_consumer(it) for it in dict.fromkeys((agent, role))]
    return Rights(
        publish=(
            *(
                f"{fleet}.handoff.*.{kind}.*.{agent}.*"
                for kind in MAY_FOLLOW
                if kind not in BUS_WRITES
            ),
            *(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{it}" for it in consumers),
            *(f"$JS.ACK.{stream}.{it}.>" for it in consumers),
            ask_subject(fleet, "*", agent),
            f"$KV.{registry_bucket(fleet)}.{agent}",
            checkpoint_key(fleet, agent),
            checkpoint_reading(fleet, agent),
        ),
        subscribe=(answers_to(fleet, agent), f"_INBOX_{agent}.>"),
    )
