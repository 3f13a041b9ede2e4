"""What waits for a person of a role, and the answer that a person gives by hand.

A person is an agent for a moment: accepts and settles by the code of any agent, one right behind
the other. So there is no presence, no lease to keep, and no consumer to read: the delivered message
stays for whoever reads as that role, who finds the chain final and drops it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct

from batonbus.rules.chain import Chain
from batonbus.rules.errors import BatonbusError
from batonbus.rules.ownership import Claim, claim_by_hand
from batonbus.run.agent import Agent
from batonbus.run.client import Client
from batonbus.run.core import Core
from batonbus.run.handling import Answer, Handling
from batonbus.run.history import HandoffNotFoundError, History, find_chains, make_history
from batonbus.wire.ledger import Stored
from batonbus.wire.publisher import LostRaceError
from batonbus.wire.subjects import deliveries_to
from batonbus_schemas import Delivery, Envelope, Presence, Settlement, TaskResult, decode


class NotWaitingError(BatonbusError):
    """A handoff waits for nobody's answer: it has ended, is being worked on, or did not arrive."""

    def __init__(self, history: History) -> None:
        self.history = history
        super().__init__(f"handoff {history.chain.id} {_describe(history)}")


def _describe(history: History) -> str:
    chain, settlement = history.chain, history.settlement
    moment = f"{datetime.fromtimestamp(chain.changed, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if chain.stage == "settled":
        said = f": {settlement.result.text}" if settlement else ""
        return f"was answered by {chain.owner} at {moment}{said}"
    if chain.final:
        reason = chain.reason or "no reason given"
        ended = "given up on" if chain.stage == "dead" else chain.stage
        return f"was {ended} by {history.last_actor} at {moment}: {reason}"
    if chain.stage == "accepted":
        return f"is {chain.owner}'s since {moment}"
    if chain.delivered_sequence is None:
        return f"is {chain.stage}, not delivered yet: `batonbus doctor` says whether the bus works"
    return f"is {chain.stage} since {moment}, and nobody can take it any more"


class Waiting(Struct, frozen=True, kw_only=True):
    """A handoff that is delivered, open and nobody's: its chain, how a person claims it, and what
    the event `stored` delivered."""

    chain: Chain
    claim: Claim
    stored: Stored
    delivery: Delivery

    @property
    def envelope(self) -> Envelope:
        """What is asked."""
        return self.delivery.envelope


class Inbox:
    """What waits, as an operator sees it. Each method raises NoAnswerError where the registry does
    not answer."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def read(self, role: str) -> list[Waiting]:
        """What waits for this role (or agent), the oldest first."""
        agents = await self._core.registry.list()
        delivered = deliveries_to(self._core.fleet, role)
        chains = await find_chains(self._core.ledger, delivered)
        free = [
            it
            for it in chains.values()
            if it.addressee == role and self._claim(it, agents).act == "take"
        ]
        free.sort(key=lambda it: it.began)
        # Some may be taken while they are read.
        found = [self._find(await self._read(it.id), agents) for it in free]
        return [it for it in found if it is not None]

    async def find(self, handoff_id: UUID) -> Waiting:
        """A handoff that waits for an answer. Raises HandoffNotFoundError, NotWaitingError."""
        history = await self._read(handoff_id)
        if not history.steps:
            raise HandoffNotFoundError(
                f"the ledger of the fleet {self._core.fleet!r} has no handoff {handoff_id}"
            )
        waiting = self._find(history, await self._core.registry.list())
        if waiting is None:
            raise NotWaitingError(history)
        return waiting

    async def answer(self, handoff_id: UUID, result: TaskResult, person: Client) -> TaskResult:
        """Accept and settle a waiting handoff as the connected person; returns the result as it is
        stored, without secrets.

        Raises InvalidMessageError before any event is written, HandoffNotFoundError, and
        NotWaitingError also where somebody else was first.
        """
        while True:
            waiting = await self.find(handoff_id)
            hand = Handling(Agent(waiting.envelope.to), person)
            settled = await hand.settled(waiting.envelope, result)
            if await _answer(hand, waiting, settled):
                return decode(settled.payload, Settlement).result

    async def _read(self, handoff_id: UUID) -> History:
        return make_history(handoff_id, await self._core.ledger.read_chain(handoff_id))

    def _find(self, history: History, agents: Sequence[Presence]) -> Waiting | None:
        claim = self._claim(history.chain, agents)
        stored = history.event(history.chain.delivered_sequence)
        if claim.act != "take" or stored is None or history.delivery is None:
            return None
        return Waiting(chain=history.chain, claim=claim, stored=stored, delivery=history.delivery)

    def _claim(self, chain: Chain, agents: Sequence[Presence]) -> Claim:
        now = self._core.connection.server_time()
        return claim_by_hand(chain, agents, self._core.settings, now=now)


async def _answer(hand: Handling, waiting: Waiting, settled: Answer) -> bool:
    """False where the handoff moved on meanwhile."""
    claim = waiting.claim
    try:
        lease = await hand.take(
            waiting.delivery, waiting.stored, waiting.chain, claim.attempt, claim.lease
        )
    except LostRaceError:
        return False
    return await hand.answer(lease, settled, lease.trace) is not None
