"""Who listens for whom, and since when nobody does: the registry itself forgets who is gone."""

import time

from msgspec import Struct

from batonbus.logs import log
from batonbus.rules.errors import NoAnswerError
from batonbus.rules.receipts import Listening, by_name, who_listens
from batonbus.run.core import Core
from batonbus_schemas import Presence


class Seen(Struct, frozen=True):
    """Who listened for an addressee, at the monotonic moment at which somebody was seen last."""

    at: float
    listening: Listening


class Look(Struct, frozen=True):
    """One look at the registry that can be trusted: at whom, when, and since when without a gap."""

    agents: list[Presence]
    at: float
    known_from: float
    seen: dict[str, Seen]

    def listening(self, addressee: str | None) -> Listening:
        """Who listens for a role or an agent's id."""
        seen = self.seen.get(addressee or "")
        if seen is None or seen.at < self.known_from:
            return Listening(alone_for=self.at - self.known_from)
        if seen.at == self.at:
            return seen.listening
        return Listening(alone_for=self.at - seen.at, gone=seen.listening.agents)


class Listeners:
    """Looks at the registry, and remembers whom it saw for as long as somebody is told of it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen: dict[str, Seen] = {}
        self._known_from = time.monotonic()

    async def look(self) -> Look | None:
        """The live agents, or None while nobody can know: after an outage the registry is empty
        though all agents live."""
        settings = self._core.settings
        try:
            agents = await self._core.registry.list()
        except NoAnswerError as error:
            log.warning("registry.unread", error=str(error))
            self._known_from = time.monotonic()
            return None
        now = time.monotonic()
        self._remember(agents, now)
        # Asked afterwards: the connection may have been lost on the way.
        if self._core.connection.connected_for < settings.trust_after:
            self._known_from = now
            return None
        return Look(agents, now, self._known_from, self._seen)

    def _remember(self, agents: list[Presence], now: float) -> None:
        oldest = now - 2 * self._core.settings.give_up_after
        self._seen = {
            **{name: it for name, it in self._seen.items() if it.at >= oldest},
            **{name: Seen(now, who_listens(its)) for name, its in by_name(agents).items()},
        }
