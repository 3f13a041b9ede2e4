"""Cancelling a work: whatever of it is open ends, the senders before those that they ask."""

from batonbus.rules.chain import OPERATOR, Chain
from batonbus.run.cancellation import cancel_chain
from batonbus.run.core import Core
from batonbus.run.history import find_chains
from batonbus.wire.subjects import work_filter


async def cancel_work(core: Core, work: str, reason: str) -> int:
    """Cancel every open handoff of a work, until none is left; returns how many."""
    ended = 0
    while open_chains := await _open_chains(core, work):
        for chain in open_chains:
            ended += await _cancel(core, chain, reason)
    return ended


async def _open_chains(core: Core, work: str) -> list[Chain]:
    """In the order of their beginning: a scheduler comes before the stages that it asks."""
    chains = await find_chains(core.ledger, work_filter(core.fleet, work))
    own = [it for it in chains.values() if it.work == work]
    # What a settled handoff hands on is open before the window manager has seen it; what stands
    # there then counts for nothing.
    begun = {it.id for it in chains.values() if it.stage != "none"}
    unseen = [
        await core.ledger.read_folded(Chain(id=it.child, work=work, waiter=it.waiter))
        for it in own
        if it.child and it.child not in begun
    ]
    return [it for it in (*own, *unseen) if not it.final]


async def _cancel(core: Core, chain: Chain, reason: str) -> bool:
    """Whether it ended so; a keeper may be first, where whoever asked for it was cancelled."""
    before = await cancel_chain(core, chain, by=OPERATOR, reason=reason)
    return not before.final or before.stage == "cancelled"
