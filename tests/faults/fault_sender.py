"""Sends handoffs by key and waits for all of them; killed, it goes on with those that did not end.

`python fault_sender.py FOLDER SECONDS [COUNT]` writes each acknowledged id to FOLDER/acknowledged,
and how each handoff ended to FOLDER/ended, one line in one write. With a COUNT some of them do not
end well.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid5

import anyio
from fault_agents import write_line

from batonbus import Bounced, Bus, Sent

ACTOR = "source"
COUNT = 100
KEYS = ("first", "left", "right", "join")
NOBODY = "nobody"

Planned = tuple[str, str, str]
"""Key, addressee and brief of a handoff."""


def plan() -> Iterator[Planned]:
    """A hundred that end well: of ten, six plain, two lines of 3, two fans."""
    for number in range(COUNT):
        seconds = _seconds(number)
        match number % 10:
            case 3 | 7:
                yield f"line-{number}", "worker", f"{seconds:.2f} 2"
            case 1 | 9:
                yield f"fan-{number}", "planner", f"{seconds:.2f} {seconds:.2f}"
            case _:
                yield f"plain-{number}", "worker", f"{seconds:.2f}"


def mixed_plan(count: int) -> Iterator[Planned]:
    """Of twenty, thirteen plain, two lines of 4, one fan, and four that do not end so well: one
    needs a second attempt, one gets none, one is refused, and one finds nobody."""
    for number in range(count):
        seconds = _seconds(number)
        match number % 20:
            case 3 | 13:
                yield f"line-{number}", "worker", f"{seconds:.2f} 3"
            case 8:
                yield f"fan-{number}", "planner", f"{seconds:.2f} {seconds:.2f}"
            case 5:
                yield f"second-{number}", "moody", "1"
            case 10:
                yield f"hopeless-{number}", "moody", "3"
            case 15:
                yield f"refused-{number}", "moody", "refuse"
            case 18:
                yield f"nobody-{number}", NOBODY, "x"
            case _:
                yield f"plain-{number}", "worker", f"{seconds:.2f}"


def _seconds(number: int) -> float:
    return 0.05 + number % 7 * 0.1


def planned_ids(count: int | None = None) -> list[UUID]:
    """The ids that these handoffs have: each by its sender and its key."""
    planned = plan() if count is None else mixed_plan(count)
    return [key_id(key) for key, _, _ in planned]


def key_id(key: str) -> UUID:
    """The id of the handoff with that key."""
    return uuid5(UUID(int=0), f"{ACTOR}:{key}")


def read_ids(file: Path) -> list[UUID]:
    """The ids in a file of this sender."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [UUID(line.split()[0]) for line in lines]


async def send_all(folder: Path, seconds: float, count: int | None = None) -> None:
    """Send all, over so many seconds, and return when all have ended."""
    planned = list(plan() if count is None else mixed_plan(count))
    before, ended = (set(read_ids(folder / name)) for name in ("acknowledged", "ended"))
    async with (
        Bus(os.environ["BATONBUS_URL"], actor=ACTOR, fleet=os.environ["BATONBUS_FLEET"]) as bus,
        anyio.create_task_group() as tasks,
    ):
        for key, to, brief in planned:
            if key_id(key) in ended:
                continue
            sent = await bus.send(to, brief, key=key)
            write_line(folder / "acknowledged", str(sent.handoff_id))
            tasks.start_soon(_wait, sent, to, folder)
            if sent.handoff_id not in before:
                await anyio.sleep(seconds / len(planned))


async def _wait(sent: Sent, to: str, folder: Path) -> None:
    try:
        if to == NOBODY:
            await sent.receipt()
            await sent.cancel("nobody is there")
        end = (await sent.result()).status
    except Bounced as error:
        end = error.receipt.state
    write_line(folder / "ended", f"{sent.handoff_id} {end}")


if __name__ == "__main__":
    anyio.run(send_all, Path(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:]))
