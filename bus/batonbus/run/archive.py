"""Taking handoffs out of the ledger: exported to a file that is on the disk, then purged.

A crash between the two leaves a file and the handoffs: done again, it repeats harmlessly.
"""

import base64
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

import anyio.to_thread
import msgspec
from msgspec import Struct

from batonbus.logs import log
from batonbus.rules.errors import BatonbusError
from batonbus.run.core import Core
from batonbus.run.discovery import STATE_FOLDER
from batonbus.wire.ledger import Message

EXPORTS = Path(STATE_FOLDER) / "exports"
"""Where exports go, below the current folder."""

AT_ONCE = 200
"""Handoffs that are exported before these are purged: one wait for the disk for all of them."""


class ExportError(BatonbusError):
    """An export cannot be written, so nothing that it should hold was removed."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"{path} cannot be written ({error.strerror}); what it should hold is still in the "
            "ledger: make room or name another folder with --to, and run this again"
        )


class ExportedMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an export: a message as the ledger had it. A payload that is no text stands in
    base64 in `payload_base64`."""

    subject: str
    sequence: int
    time: datetime
    headers: dict[str, str]
    payload: str = ""
    payload_base64: str = ""


class Removed(Struct, frozen=True, kw_only=True):
    """What was taken out of the ledger, and the file that has it (None where nothing was)."""

    handoffs: int = 0
    events: int = 0
    file: Path | None = None


class Export:
    """A new file of JSON lines that only its owner may read."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = path.parent
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, message: Message) -> None:
        """Add a message."""
        self._file.write(msgspec.json.encode(as_line(message)) + b"\n")

    def sync(self) -> None:
        """Return when all that was written, and the file itself, is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def as_line(message: Message) -> ExportedMessage:
    """A stored message as a line of an export."""
    text, coded = "", ""
    try:
        text = message.data.decode()
    except UnicodeDecodeError:
        coded = base64.b64encode(message.data).decode()
    return ExportedMessage(
        subject=message.subject,
        sequence=message.seq,
        time=message.time,
        headers=message.headers,
        payload=text,
        payload_base64=coded,
    )


async def remove(core: Core, handoffs: Sequence[UUID], folder: Path) -> Removed:
    """Export these handoffs into a new file in `folder`, and purge them, at most 10 ms each. They
    are purged in the order given: a handoff before those that it handed on to. Raises ExportError,
    ApiError, NoAnswerError; what was not purged by then is still there."""
    if not handoffs:
        return Removed()
    now = datetime.fromtimestamp(core.connection.server_time(), UTC)
    path = folder / f"{core.fleet}-{now:%Y%m%dT%H%M%S.%fZ}.jsonl"
    events = 0
    try:
        with Export(path) as export:
            for start in range(0, len(handoffs), AT_ONCE):
                events += await _remove(core, handoffs[start : start + AT_ONCE], export)
    except OSError as error:
        raise ExportError(path, error) from error
    log.info("handoffs.removed", handoffs=len(handoffs), events=events, file=str(path))
    return Removed(handoffs=len(handoffs), events=events, file=path)


async def _remove(core: Core, handoffs: Sequence[UUID], export: Export) -> int:
    sequences: list[int] = []
    for handoff_id in handoffs:
        for message in await core.ledger.read_messages(handoff_id):
            export.write(message)
            sequences.append(message.seq)
    await anyio.to_thread.run_sync(export.sync)
    for sequence in sequences:
        await core.ledger.delete(sequence)
    return len(sequences)
