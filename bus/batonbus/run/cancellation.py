"""Ending a handoff that is not wanted any more."""

from batonbus.rules.chain import Chain
from batonbus.run.core import Core
from batonbus.secrecy import hide
from batonbus.wire.ledger import Draft
from batonbus.wire.publisher import LostRaceError
from batonbus.wire.subjects import NOBODY, Subject
from batonbus_schemas import Receipt, encode


def cancelled(fleet: str, chain: Chain, *, by: str, reason: str) -> Draft:
    """The `cancelled` of this chain. It is for the owner, so that the work stops; whoever waits
    finds it in the ledger."""
    reason = hide(reason)
    receipt = Receipt(handoff_id=chain.id, state="cancelled", by=by, reason=reason)
    return Draft(
        subject=Subject(fleet, chain.id, "cancelled", chain.work, by, chain.owner or NOBODY),
        payload=encode(receipt),
        waiter=chain.waiter,
        reason=reason,
    )


async def cancel_chain(core: Core, chain: Chain, *, by: str, reason: str) -> Chain:
    """Cancel a handoff wherever it stands, as an actor of the bus. Returns it as it stood before;
    where somebody was first, as it ended."""
    while not (chain := await core.ledger.read_folded(chain)).final:
        draft = cancelled(core.fleet, chain, by=by, reason=reason)
        try:
            await core.ledger.append(draft, tail=chain.tail)
        except LostRaceError:
            continue
        break
    return chain
