"""Whether the ledger stores what is written to it. Only a write can tell: on a full disk a server
answers every question, refuses a lost compare-and-set, and stores small entries elsewhere."""

from contextlib import suppress

from batonbus.wire.connection import Connection, DeniedError
from batonbus.wire.publisher import Publisher
from batonbus.wire.subjects import probe_subject, stream_name

PROBE_TIMEOUT = 3.0
"""Seconds: a server whose disk is full leaves a write without an answer."""


async def probe_ledger(connection: Connection, fleet: str) -> None:
    """Store one empty message that is no event, in the place of the last one.
    Raises ApiError, DeniedError, NoAnswerError where it is not stored."""
    subject = probe_subject(fleet)
    async with Publisher(connection, timeout=PROBE_TIMEOUT) as publisher:
        await publisher.publish(subject, b"", {})
    with suppress(DeniedError):
        # The newest stays: a stream must not end in a hole, behind which its readers would wait.
        await connection.api(f"STREAM.PURGE.{stream_name(fleet)}", {"filter": subject, "keep": 1})
