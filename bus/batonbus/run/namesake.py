"""Another process that runs under our agent's id."""

from collections import deque

OVERWRITTEN = 2
"""Times in short that tell of one: once, it may be the goodbye of the process before us, or an
entry that ended while we stood still."""


class Namesake:
    """Whether there is one: both then write the same registry entry, and each finds that the last
    word is not its own. `period` is in seconds; moments are of a clock that only goes forward."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._overwritten: deque[float] = deque(maxlen=OVERWRITTEN)

    def note_overwritten(self, now: float) -> None:
        """Somebody else has written our entry since we did."""
        self._overwritten.append(now)

    def is_there(self, now: float) -> bool:
        """Whether somebody did so often enough, and not long ago."""
        often = len(self._overwritten) == OVERWRITTEN
        return often and now - self._overwritten[0] <= self._period
