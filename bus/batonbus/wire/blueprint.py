"""What an operator makes and grants where the bus's own user may not make anything."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from batonbus.rules.chain import OPERATOR, RECEIPT_KEEPER, WINDOW_MANAGER
from batonbus.rules.settings import Settings
from batonbus.wire.streams import (
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
from batonbus.wire.subjects import (
    all_events,
    checkpoint_bucket,
    objects_bucket,
    registry_bucket,
    stream_name,
)


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """What one user may publish and subscribe to, as in a server's configuration; it may also
    answer whoever asks it (`allow_responses`)."""

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
    """All that window manager, receipt keeper and operator need once the blueprint is made. They
    read the ledger through consumers that they make for a moment; an agent's rights are fewer."""
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
