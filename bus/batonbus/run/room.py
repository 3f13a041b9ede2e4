"""How much room the ledger has: what the server says, and the disk where its store is here."""

import shutil
from datetime import datetime
from pathlib import Path

import anyio.to_thread
import msgspec
from msgspec import Struct

from batonbus.rules.storage import Room, Storage
from batonbus.wire.connection import Connection
from batonbus.wire.subjects import stream_name


class _State(Struct, frozen=True):
    messages: int
    bytes: int
    first_ts: datetime


class _Config(Struct, frozen=True):
    max_bytes: int = -1


class _Stream(Struct, frozen=True):
    state: _State
    config: _Config
    ts: datetime


class _Limits(Struct, frozen=True):
    max_storage: int = -1


class _Account(Struct, frozen=True):
    storage: int
    limits: _Limits = _Limits()


async def measure(connection: Connection, fleet: str, store: Path | None) -> Storage:
    """The ledger's size and limits. `store` is the server's store folder, where it is on this
    machine. Raises ApiError, NoAnswerError."""
    data = await connection.api(f"STREAM.INFO.{stream_name(fleet)}")
    stream = msgspec.json.decode(data, type=_Stream)
    account = msgspec.json.decode(await connection.api("INFO"), type=_Account)
    used = stream.state.bytes
    rooms: list[Room] = []
    if stream.config.max_bytes > 0:
        rooms.append(Room(by="the stream's max_bytes", used=used, limit=stream.config.max_bytes))
    if account.limits.max_storage > 0:
        limit = account.limits.max_storage
        rooms.append(Room(by="the account's limit", used=account.storage, limit=limit))
    if store is not None:
        free = await anyio.to_thread.run_sync(_free, store)
        rooms.append(Room(by="the disk", used=used, limit=used + free))
    age = (stream.ts - stream.state.first_ts).total_seconds() if stream.state.messages else 0.0
    return Storage(bytes=used, events=stream.state.messages, age=age, rooms=tuple(rooms))


def _free(store: Path) -> int:
    return shutil.disk_usage(store).free
