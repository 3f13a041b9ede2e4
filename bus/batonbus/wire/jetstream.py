"""The JetStream API, asked until the server is ready to answer."""

import time
from collections.abc import Collection
from datetime import datetime
from typing import Any

import anyio
import msgspec

from batonbus.logs import log
from batonbus.rules.errors import NoAnswerError, NobodyAnswersError
from batonbus.wire.connection import ApiError, Connection

STREAM_NOT_FOUND = 10059
NAME_IN_USE = 10058
CONSUMER_NOT_FOUND = 10014
"""`err_code` of its answers."""

READY_TIMEOUT = 30.0
"""Seconds that a server may take to be ready: a cluster to choose its leaders (four to nine are
usual), a single one to get through to a disk that stalls."""

ASK_TIMEOUT = 2.0
"""Seconds after which it is asked again: what has no leader yet is never answered."""


class Info(msgspec.Struct):
    """A stream or consumer as the server tells it: its configuration, the server's clock, its name,
    and how many pulls wait."""

    config: dict[str, Any]
    ts: datetime | None = None
    name: str = ""
    num_waiting: int = 0


class _Page(msgspec.Struct):
    total: int
    consumers: list[Info] = []


_decode_info = msgspec.json.Decoder(Info).decode


async def find_info(connection: Connection, verb: str, missing: int) -> Info | None:
    """What is there; None where the server answers `missing`. Raises ApiError, NoAnswerError,
    DeniedError, as all of these do."""
    try:
        return await read_info(connection, verb)
    except ApiError as error:
        if error.err_code == missing:
            return None
        raise


async def read_info(connection: Connection, verb: str, *, until_there: bool = False) -> Info:
    """What is there, and the server's clock noted; `until_there`: a stream that was just made."""
    passing = {STREAM_NOT_FOUND} if until_there else set[int]()
    info = _decode_info(await ask(connection, verb, passing=passing))
    if info.ts is not None:
        connection.set_clock(info.ts)
    return info


async def ask(
    connection: Connection, verb: str, body: object = None, *, passing: Collection[int] = ()
) -> bytes:
    """A JetStream API request, asked again until the server is ready for it: it does not answer
    yet, or a cluster still chooses its leaders, or has errors that are `passing` there. Raises
    ApiError, DeniedError, and NoAnswerError after READY_TIMEOUT, or at once where nobody answers
    on a single server: it has no JetStream."""
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


async def list_consumers(connection: Connection, stream: str) -> list[Info]:
    """All consumers of a stream, page by page."""
    consumers: list[Info] = []
    while True:
        data = await connection.api(f"CONSUMER.LIST.{stream}", {"offset": len(consumers)})
        page = msgspec.json.decode(data, type=_Page)
        consumers += page.consumers
        if not page.consumers or len(consumers) >= page.total:
            return consumers
