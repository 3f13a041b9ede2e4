"""Reading the ledger in order, and then what comes: for whoever folds chains or follows events.

By a helper consumer without acks, which the server forgets soon after its reader is gone. What was
on its way when a connection broke does not come again: so each reconnect makes a new consumer,
behind the last event that arrived, and no event is missed or read twice.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import anyio

from batonbus.wire.connection import Connection
from batonbus.wire.feed import Feed, Received, open_feed
from batonbus.wire.ledger import Ledger, Stored, read_received
from batonbus.wire.subjects import all_events, stream_name

BATCH = 1000
"""Messages requested at a time: one request for everything gets the client cut off."""

FORGET_AFTER = 60
"""Seconds without a reader after which the server removes the consumer."""

SILENCE = 1.0
"""Seconds without a message after which a reader that wants the head looks whether it is there."""


@asynccontextmanager
async def read_from(
    connection: Connection,
    fleet: str,
    sequence: int = 1,
    *,
    subject: str | None = None,
    headers_only: bool = True,
) -> AsyncGenerator[Feed]:
    """A feed of every event (under a subject, which may have wildcards) from this sequence on;
    `received.pending` is 0 at the last one that there is."""
    stream = stream_name(fleet)

    async def make_consumer(last: int) -> str:
        name = f"reader-{uuid4().hex[:12]}"
        config = {
            "name": name,
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "filter_subject": subject or all_events(fleet),
            "opt_start_seq": max(sequence, last + 1),
            "headers_only": headers_only,
            "inactive_threshold": FORGET_AFTER * 1_000_000_000,
        }
        body = {"stream_name": stream, "config": config, "action": "create"}
        # Soon tried again, for the connection may break again meanwhile.
        await connection.api(f"CONSUMER.CREATE.{stream}.{name}", body, timeout=2.0)
        return name

    async with open_feed(connection, stream, make_consumer, window=BATCH) as feed:
        yield feed


async def read_to_head(
    ledger: Ledger,
    hear: Callable[[Stored], None],
    start: int = 1,
    *,
    subject: str | None = None,
    headers_only: bool = True,
) -> None:
    """Call `hear` with each event (under a subject, which may have wildcards) from the sequence
    `start` on, up to the ledger's head. About 70,000 events a second, headers only."""
    last = start - 1
    if await ledger.is_head(last, subject):
        return
    async with read_from(
        ledger.connection, ledger.fleet, start, subject=subject, headers_only=headers_only
    ) as feed:
        while True:
            received = await _receive(feed)
            if received is None:
                if await ledger.is_head(last, subject):  # what was to come has been purged
                    return
                continue
            last = received.sequence
            stored = read_received(received)
            if stored is not None:
                hear(stored)
            if received.pending == 0:
                return
            await feed.release()


async def _receive(feed: Feed) -> Received | None:
    """The next message, or None after a SILENCE; time limits cost as much as reading, so only where
    there is something to wait for."""
    if feed.has_more:
        return await feed.receive()
    with anyio.move_on_after(SILENCE):
        return await feed.receive()
    return None
