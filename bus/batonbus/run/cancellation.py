"""The event by which somebody ends a handoff that is not wanted any more."""

from batonbus.rules.chain import Chain
from batonbus.secrecy import hide
from batonbus.wire.ledger import Draft
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
