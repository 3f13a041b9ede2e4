"""What the keepers answer: the fleet's numbers, the state of a chain to those in it, and a content
to whoever says its hash."""

from functools import partial
from typing import cast
from uuid import UUID

import anyio
import msgspec

from batonbus.logs import log
from batonbus.rules.chain import Chain, fold, is_in_line
from batonbus.rules.errors import InvalidTokenError, NoAnswerError
from batonbus.rules.references import content_hash
from batonbus.run.asking import (
    CHAIN,
    CONFIRM,
    CONTENT,
    HELLO,
    STORE,
    ChainAnswer,
    ChainQuestion,
    ConfirmAnswer,
    ConfirmQuestion,
    Hello,
    NoContentError,
    NotPartOfItError,
    Welcome,
)
from batonbus.run.confirmation import Confirmed
from batonbus.run.core import Core
from batonbus.run.history import read_sent
from batonbus.run.listings import Listings
from batonbus.wire.agreed import read_policy
from batonbus.wire.ledger import Stored
from batonbus.wire.service import serve
from batonbus.wire.topology import ensure_addressee
from batonbus_schemas import (
    Envelope,
    InvalidMessageError,
    Presence,
    Receipt,
    Settlement,
    decode,
)
from batonbus_schemas.receipts import State

RECEIPTS = frozenset({"held", "overdue", "accepted", "refused", "failed", "dead", "cancelled"})
"""Events whose payload is a Receipt."""


LOOK_TIMEOUT = 0.8
"""Seconds after which a question is answered without the registry: whoever asks waits for 2."""


class KeeperService:
    """Answers `hello`, `chain` by a fresh read of the ledger, `confirm` from memory; `store` keeps
    a content, `content` gives it to whoever can say its hash."""

    def __init__(self, core: Core, confirmed: Confirmed) -> None:
        self._core = core
        self._confirmed = confirmed
        self._listings = Listings(core)

    async def run(self) -> None:
        """Serve until cancelled."""
        handlers = {
            HELLO: self._hello,
            CHAIN: self._chain,
            CONFIRM: self._confirm,
            STORE: self._store,
            CONTENT: self._content,
        }
        async with serve(self._core.connection, self._core.fleet, handlers):
            await self._listings.run()

    async def _hello(self, actor: str, data: bytes) -> bytes:
        card = msgspec.json.decode(data, type=Hello).card
        if card is not None:
            if card.id != actor:
                raise InvalidTokenError(f"the card of agent {actor} says id", card.id)
            for addressee in dict.fromkeys((card.role, card.id)):
                await ensure_addressee(
                    self._core.connection, self._core.fleet, addressee, self._core.settings
                )
            # Who joins begins with the one that is stored now.
            await self._core.policies.read(
                partial(read_policy, self._core.connection, self._core.fleet)
            )
        core = self._core
        now = core.connection.server_time()
        return msgspec.json.encode(Welcome(settings=core.settings, policy=core.policy, now=now))

    async def _confirm(self, actor: str, data: bytes) -> bytes:
        question = msgspec.json.decode(data, type=ConfirmQuestion)
        counts = await self._confirmed.check(question.words)
        return msgspec.json.encode(ConfirmAnswer(counts=counts))

    async def _store(self, actor: str, data: bytes) -> bytes:
        # The name is never the asker's to say: nothing is ever stored under another content's.
        name = content_hash(data)
        if await self._core.objects.put(name, data):
            log.info("object.stored", object=name, bytes=len(data), by=actor)
        return name.encode()

    async def _content(self, actor: str, data: bytes) -> bytes:
        name = data.decode()
        content = await self._core.objects.get(name)
        if content is None:
            raise NoContentError(f"nothing is stored under {name}")
        return content

    async def _chain(self, actor: str, data: bytes) -> bytes:
        question = msgspec.json.decode(data, type=ChainQuestion)
        events = await self._core.ledger.read_chain(question.handoff_id)
        chain = fold(Chain(id=question.handoff_id), [it.event for it in events])
        # What a stranger wrote there makes nobody a part of it, and says nothing of it.
        events = [it for it in events if it.event.sequence not in chain.void]
        is_part = not events or await self._is_part(actor, events)
        if not is_part:
            root = question.root or chain.id
            if not (is_in_line(root, chain.id) and await self._took_over(actor, root)):
                if is_part is None:
                    raise NoAnswerError("the registry does not answer: ask again")
                raise NotPartOfItError(f"{actor} is not part of handoff {chain.id}")
        settlement = _settlement(chain, events)
        answer = ChainAnswer(
            chain=chain,
            owner_alive=await self._owner_alive(chain),
            receipt=_last_receipt(chain, events, settlement),
            settlement=settlement,
            envelope=_envelope(events),
        )
        return msgspec.json.encode(answer)

    async def _listening(self, name: str) -> list[Presence] | None:
        """The live agents under this name, or None where the registry does not answer in time."""
        with anyio.move_on_after(LOOK_TIMEOUT):
            return (await self._listings.fresh()).listening(name)
        return None

    async def _is_part(self, actor: str, events: list[Stored]) -> bool | None:
        """Whether a handoff is one of this actor's, or of its role's; None where nobody knows."""
        names = {name for it in events for name in (it.event.actor, it.event.to, it.event.waiter)}
        if actor in names:
            return True
        agents = await self._listening(actor)
        if agents is None:
            return None
        return any(it.card.id == actor and it.card.role in names for it in agents)

    async def _took_over(self, actor: str, root: UUID) -> bool:
        """Whether the actor now owns the handoff in whose handler this line was begun: it took over
        from the line's sender, and runs the handler again."""
        begun = await self._core.ledger.read_folded(Chain(id=root))
        under = await self._core.ledger.read(begun.sent_under) if begun.sent_under else None
        if under is None:
            return False
        parent = await self._core.ledger.read_folded(Chain(id=under.subject.handoff_id))
        return parent.owner == actor

    async def _owner_alive(self, chain: Chain) -> bool | None:
        if chain.stage != "accepted" or chain.owner is None:
            return None
        agents = await self._listening(chain.owner)
        if agents is None:
            return None
        if any(it.card.id == chain.owner and chain.owner_sequence in it.working for it in agents):
            return True
        connection, settings = self._core.connection, self._core.settings
        trusted = connection.connected_for >= settings.trust_after
        # A fresh owner needs a moment to list what it accepted.
        fresh = connection.server_time() - chain.changed < settings.heartbeat
        return False if trusted and not fresh else None


def _last_receipt(
    chain: Chain, events: list[Stored], settlement: Settlement | None
) -> Receipt | None:
    """The newest answer. Where its payload cannot be read, what its header says; a result that
    cannot be read ends the line without one."""
    for stored in reversed(events):
        kind = stored.event.kind
        if kind == "settled" and settlement is None:
            reason = "it is settled, but its result cannot be read"
            return Receipt(handoff_id=chain.id, state="dead", by=stored.event.actor, reason=reason)
        if kind in RECEIPTS:
            return _read_receipt(chain, stored)
    return None


def _read_receipt(chain: Chain, stored: Stored) -> Receipt:
    try:
        return decode(stored.payload, Receipt)
    except InvalidMessageError:
        return Receipt(
            handoff_id=chain.id,
            state=cast("State", stored.event.kind),
            by=stored.event.actor,
            reason=stored.event.reason,
        )


def _settlement(chain: Chain, events: list[Stored]) -> Settlement | None:
    for stored in events:
        if stored.event.sequence == chain.settled_sequence:
            try:
                return decode(stored.payload, Settlement)
            except InvalidMessageError as error:
                log.warning("settlement.unreadable", handoff=str(chain.id), error=str(error))
    return None


def _envelope(events: list[Stored]) -> Envelope | None:
    first = events[0] if events else None
    return read_sent(first) if first and first.event.kind == "sent" else None
