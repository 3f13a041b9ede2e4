"""How much room the ledger has left, and for how long."""

from msgspec import Struct

DAY = 86_400.0

KNOWN_AFTER = 3_600.0
"""Seconds of data from which on a growth can be told."""


class Room(Struct, frozen=True, kw_only=True):
    """One limit: what sets it, the bytes that are used of it, the bytes that there are."""

    by: str
    used: int
    limit: int

    @property
    def left(self) -> int:
        """Bytes that may still be written."""
        return max(0, self.limit - self.used)

    @property
    def filled(self) -> float:
        """From 0 to 1 (or more)."""
        return self.used / self.limit if self.limit else 1.0


class Storage(Struct, frozen=True, kw_only=True):
    """The ledger's bytes and events, the seconds since its oldest event, and all limits known."""

    bytes: int
    events: int
    age: float
    rooms: tuple[Room, ...] = ()

    @property
    def growth(self) -> float | None:
        """Bytes a day on the average, since the oldest event; None in its first hour."""
        return self.bytes / self.age * DAY if self.age >= KNOWN_AFTER else None

    @property
    def tightest(self) -> Room | None:
        """The limit that is reached first."""
        return min(self.rooms, key=lambda it: it.left, default=None)

    @property
    def days_left(self) -> float | None:
        """Days until the tightest limit at this growth; None where either is not known."""
        room, growth = self.tightest, self.growth
        return room.left / growth if room is not None and growth else None


def amount(size: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
