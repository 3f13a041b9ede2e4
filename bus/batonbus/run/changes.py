"""Waking whoever waits for a change; it costs nothing while nobody does."""

import anyio


class Changes:
    """Something that changes now and then. `count` tells one state from the next."""

    def __init__(self) -> None:
        self.count = 0
        self._event: anyio.Event | None = None

    def tell(self) -> None:
        """It has changed."""
        self.count += 1
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self, since: int | None = None) -> None:
        """Until the next change; at once where it has changed `since` that count."""
        if since is not None and since != self.count:
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
