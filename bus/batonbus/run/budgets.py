"""The payload budget before delivery: what the agents that listen may be given."""

import time

import anyio

from batonbus.rules.budget import OverBudgetError, measure
from batonbus.run.arrivals import RefusedError
from batonbus.run.core import Core
from batonbus.run.listings import Listings
from batonbus_schemas import AgentCard, Envelope, TextSize, Violation, WindowEntry

KNOWN_AGE = 1.0
"""Seconds for which the agents of an addressee count as they were read from the registry. Where
none was there it is read anew, for all that wait at once: one may just have joined."""

READ_TIMEOUT = 1.0
"""Seconds after which an assignment is measured without an answer of the registry: an agent fits
its text to its own limits once more."""


class Budgets:
    """Measures assignments for whoever listens, and refuses what cannot be made short enough."""

    def __init__(self, core: Core, listings: Listings) -> None:
        self._core = core
        self._listings = listings

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
        listing = self._listings.newest
        if (
            listing is None
            or not listing.listening(name)
            or time.monotonic() - listing.began >= KNOWN_AGE
        ):
            with anyio.move_on_after(READ_TIMEOUT):
                listing = await self._listings.fresh()
        return [it.card for it in listing.listening(name)] if listing else []
