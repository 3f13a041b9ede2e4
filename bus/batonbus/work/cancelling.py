"""Cancelling a work: whatever of it is open ends, the senders before those that they ask."""

from batonbus.rules.chain import OPERATOR, Chain
from batonbus.run.core import Core
from batonbus.run.history import read_chains
from batonbus.wire.ledger import Draft
from batonbus.wire.publisher import LostRaceError
from batonbus.wire.subjects import NOBODY, Subject
from batonbus_schemas import Receipt, encode


async def cancel_work(core: Core, work: str, reason: str) -> int:
    """Cancel every open handoff of a work, until none is left; returns how many."""
    cancelled = 0
    while open_chains := await _open_chains(core, work):
        for chain in open_chains:
            cancelled += await _cancel(core, chain, reason)
    return cancelled


async def _open_chains(core: Core, work: str) -> list[Chain]:
    """In the order of their beginning: a scheduler comes before the stages that it asks."""
    chains = await read_chains(core.ledger)
    own = [it for it in chains.values() if it.work == work]
    # What a settled handoff hands on is open before the window manager has seen it.
    unseen = [
        Chain(id=it.child, work=work, waiter=it.waiter)
        for it in own
        if it.child and it.child not in chains
    ]
    return [it for it in own if not it.final] + unseen


async def _cancel(core: Core, chain: Chain, reason: str) -> bool:
    receipt = Receipt(handoff_id=chain.id, state="cancelled", by=OPERATOR, reason=reason)
    draft = Draft(
        # To its owner, so that the work stops; whoever waits finds it in the ledger.
        subject=Subject(
            core.fleet, chain.id, "cancelled", chain.work, OPERATOR, chain.owner or NOBODY
        ),
        payload=encode(receipt),
        waiter=chain.waiter,
        reason=reason,
    )
    try:
        await core.ledger.append(draft, tail=chain.tail)
    except LostRaceError:
        return False
    return True
