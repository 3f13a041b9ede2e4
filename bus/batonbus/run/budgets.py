"""The payload budget before delivery: what the agents that listen may be given."""

import time

import anyio

from batonbus.logs import log
from batonbus.rules.budget import OverBudgetError, measure
from batonbus.rules.errors import NoAnswerError
from batonbus.run.arrivals import RefusedError
from batonbus.run.core import Core
from batonbus_schemas import AgentCard, Envelope, TextSize, Violation, WindowEntry

KNOWN_AGE = 1.0
"""Seconds for which the agents of an addressee count as they were read from the registry. Where
none was there it is read anew, for all that wait at once: one may just have joined."""

READ_TIMEOUT = 1.0
"""Seconds after which an assignment is measured without an answer of the registry: an agent fits
its text to its own limits once more."""


class Budgets:
    """Measures assignments for whoever listens, and refuses what cannot be made short enough."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._cards: dict[str, list[AgentCard]] = {}
        self._read_at = float("-inf")
        self._reading = anyio.Lock()

    async def measure(self, envelope: Envelope, window: tuple[WindowEntry, ...]) -> TextSize:
        """How long the text of an assignment is, within its limits. Raises RefusedError."""
        listening = await self._listening(envelope.to)
        try:
            return measure(envelope, window, self._core.policy, listening)
        except OverBudgetError as error:
            problem = f"has {error.length:,} characters, and the assignment may have"
            limits = f"{error.budget.characters:,} in all ({error.budget.tokens:,} tokens)"
            found = Violation(path=error.field, problem=f"{problem} {limits}")
            raise RefusedError(str(error), (found,)) from error
        except ValueError as error:
            raise RefusedError(f"the assignment cannot be written: {error}") from error

    async def _listening(self, name: str) -> list[AgentCard]:
        asked_at = time.monotonic()
        if name not in self._cards or asked_at - self._read_at >= KNOWN_AGE:
            async with self._reading:
                # Whoever had the lock before may have read it for us.
                if self._read_at < asked_at:
                    await self._read()
        return self._cards.get(name, [])

    async def _read(self) -> None:
        self._read_at = time.monotonic()
        try:
            agents = await self._core.registry.list(timeout=READ_TIMEOUT)
        except NoAnswerError as error:
            log.warning("registry.unread", error=str(error))
        else:
            self._cards = {}
            for agent in agents:
                for name in {agent.card.role, agent.card.id}:
                    self._cards.setdefault(name, []).append(agent.card)
