"""The context policy that is in force: the stored one, read again every few seconds.

It is never changed, only replaced by another: who takes it once judges by one policy.
"""

from collections.abc import Awaitable, Callable

import anyio

from batonbus.logs import log
from batonbus.rules.errors import BusUnavailableError, NoAnswerError, TopologyError
from batonbus.rules.policy import Policy
from batonbus.rules.settings import Settings
from batonbus.run.changes import Changes
from batonbus.secrecy import extend

Ask = Callable[[], Awaitable[Policy]]
"""Gives the stored policy. Raises TopologyError where this version cannot read it."""


class Policies:
    """The policy of one process, and what tells of another. What it calls a secret counts in all
    that the process says, from the moment at which the policy does."""

    def __init__(self, fleet: str, policy: Policy, settings: Settings) -> None:
        self._fleet = fleet
        self._interval = settings.policy_interval
        self._problem = ""
        self.now = policy
        self.changes = Changes()
        extend(fleet, policy.secrets)

    def take(self, policy: Policy) -> None:
        """From here on this one counts."""
        self._problem = ""
        if policy != self.now:
            self.now = policy
            extend(self._fleet, policy.secrets)
            log.info("policy.changed", fleet=self._fleet)
            self.changes.tell()

    async def read(self, ask: Ask) -> None:
        """Take what is stored now. One that cannot be read leaves the old one in force, and is
        logged once; so does an answer that does not come."""
        try:
            self.take(await ask())
        except (NoAnswerError, BusUnavailableError) as error:
            log.debug("policy.unanswered", error=str(error))
        except TopologyError as error:
            if (problem := str(error)) != self._problem:
                self._problem = problem
                log.error("policy.unreadable", fleet=self._fleet, problem=problem)

    async def watch(self, ask: Ask) -> None:
        """Read it again and again. Never returns."""
        while True:
            await anyio.sleep(self._interval)
            await self.read(ask)
