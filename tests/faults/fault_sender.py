"""Sends a hundred handoffs by key and waits for all of them; killed, it does it again.

`python fault_sender.py FOLDER SECONDS` writes each acknowledged id to FOLDER/acknowledged, and how
each handoff ended to FOLDER/ended, one line in one write.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid5

import anyio

from batonbus import Bounced, Bus, Sent

ACTOR = "source"
COUNT = 100
KEYS = ("first", "left", "right")


def plan() -> Iterator[tuple[str, str, str]]:
    """Key, addressee and brief of each handoff: of ten, six plain, two lines of 3, two fans."""
    for number in range(COUNT):
        seconds = 0.05 + number % 7 * 0.1
        match number % 10:
            case 3 | 7:
                yield f"line-{number}", "worker", f"{seconds:.2f} 2"
            case 1 | 9:
                yield f"fan-{number}", "planner", f"{seconds:.2f} {seconds:.2f}"
            case _:
                yield f"plain-{number}", "worker", f"{seconds:.2f}"


def planned_ids() -> list[UUID]:
    """The ids that these handoffs have: each by its sender and its key."""
    return [uuid5(UUID(int=0), f"{ACTOR}:{key}") for key, _, _ in plan()]


def read_ids(file: Path) -> list[UUID]:
    """The ids in a file of this sender."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [UUID(line.split()[0]) for line in lines]


async def send_all(folder: Path, seconds: float) -> None:
    """Send all, over so many seconds, and return when all have ended."""
    before = set(read_ids(folder / "acknowledged"))
    async with (
        Bus(os.environ["BATONBUS_URL"], actor=ACTOR, fleet=os.environ["BATONBUS_FLEET"]) as bus,
        anyio.create_task_group() as tasks,
    ):
        for key, to, brief in plan():
            sent = await bus.send(to, brief, key=key)
            _write(folder / "acknowledged", str(sent.handoff_id))
            tasks.start_soon(_wait, sent, folder)
            if sent.handoff_id not in before:
                await anyio.sleep(seconds / COUNT)


async def _wait(sent: Sent, folder: Path) -> None:
    try:
        end = (await sent.result()).status
    except Bounced as error:
        end = error.receipt.state
    _write(folder / "ended", f"{sent.handoff_id} {end}")


def _write(file: Path, line: str) -> None:
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, f"{line}\n".encode())
    finally:
        os.close(log)


if __name__ == "__main__":
    anyio.run(send_all, Path(sys.argv[1]), float(sys.argv[2]))
