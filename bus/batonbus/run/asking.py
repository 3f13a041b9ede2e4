"""What agents may ask the bus, and what it answers: `<fleet>.ask.<verb>.<actor>`."""

from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import anyio
import msgspec
from msgspec import Struct

from batonbus.logs import log
from batonbus.rules.chain import Chain
from batonbus.rules.errors import BusUnavailableError, NoAnswerError, TopologyError
from batonbus.rules.policy import Policy
from batonbus.rules.settings import Settings
from batonbus.run.confirmation import Word
from batonbus.wire.connection import Connection, ServiceError
from batonbus.wire.publisher import check_size
from batonbus.wire.subjects import ask_subject
from batonbus_schemas import AgentCard, Envelope, Receipt, Settlement

HELLO = "hello"
CHAIN = "chain"
CONFIRM = "confirm"
STORE = "store"
CONTENT = "content"

ASK_TIMEOUT = 2.0
"""Seconds to wait for an answer: a keeper that is killed with a question in hand never answers it,
and the next one does at once."""

CONTENT_TIMEOUT = 10.0
"""Seconds to wait for an answer to do with a content of up to a megabyte."""


ASK_INTERVAL = 0.2
"""Seconds between two questions about the same thing."""

T = TypeVar("T")


class Hello(Struct, frozen=True, kw_only=True):
    """An agent joins (or, without a card, a sender): its consumers are made where missing."""

    card: AgentCard | None = None


class Welcome(Struct, frozen=True, kw_only=True):
    """The numbers that the fleet agreed on, its context policy, and the server's moment (Unix
    seconds)."""

    settings: Settings
    policy: Policy = Policy()
    now: float = 0.0


class ChainQuestion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How is this handoff, which stands in the line of `root`?"""

    handoff_id: UUID
    root: UUID | None = None


class ChainAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The folded chain, whether its owner lives (None: not known now), and what was last said.

    `receipt` is the payload of the newest event that answers, `settlement` that of the settled one,
    `envelope` that of the sent one.
    """

    chain: Chain
    owner_alive: bool | None = None
    receipt: Receipt | None = None
    settlement: Settlement | None = None
    envelope: Envelope | None = None


class ConfirmQuestion(Struct, frozen=True, kw_only=True):
    """Do these events, which were heard, count?"""

    words: tuple[Word, ...]


class ConfirmAnswer(Struct, frozen=True, kw_only=True):
    """True for each that counts; False also where the keeper does not know (any more)."""

    counts: tuple[bool, ...]


class NotPartOfItError(BusUnavailableError):
    """Only those who are part of a handoff may ask for its state."""


class NoContentError(BusUnavailableError):
    """No content is stored under this hash."""


async def ask_hello(connection: Connection, fleet: str, card: AgentCard | None) -> Welcome:
    """Join the fleet. Raises NoAnswerError where no keeper runs, BusUnavailableError, and
    TopologyError where the keeper is of a version whose policy says what this one does not know."""
    data = await _ask(connection, fleet, HELLO, Hello(card=card))
    try:
        return msgspec.json.decode(data, type=Welcome)
    except msgspec.ValidationError as error:
        raise TopologyError(
            f"a keeper of the fleet {fleet!r} tells what this version of batonbus cannot read "
            f"({error}): run the keeper's version here"
        ) from error


async def ask_chain(
    connection: Connection, fleet: str, handoff_id: UUID, *, root: UUID | None = None
) -> ChainAnswer:
    """The state of a handoff that the connected actor is part of, or is so of the line's `root`.
    Raises NoAnswerError where no keeper runs, NotPartOfItError where it may not ask, and
    BusUnavailableError."""
    data = await _ask(connection, fleet, CHAIN, ChainQuestion(handoff_id=handoff_id, root=root))
    return msgspec.json.decode(data, type=ChainAnswer)


async def ask_confirm(
    connection: Connection, fleet: str, words: tuple[Word, ...]
) -> tuple[bool, ...]:
    """Which of these heard events count. Raises NoAnswerError, BusUnavailableError."""
    data = await _ask(connection, fleet, CONFIRM, ConfirmQuestion(words=words))
    return msgspec.json.decode(data, type=ConfirmAnswer).counts


async def ask_store(connection: Connection, fleet: str, content: bytes) -> None:
    """Have a content stored under its hash, if it is not there already. Raises NoAnswerError,
    MessageTooLargeError, BusUnavailableError."""
    check_size(content, {}, connection.client.max_payload)
    await _ask_for_content(connection, fleet, STORE, content)


async def ask_content(connection: Connection, fleet: str, name: str) -> bytes | None:
    """The content with this hash, None where it is not stored. Raises NoAnswerError,
    BusUnavailableError."""
    try:
        return await _ask_for_content(connection, fleet, CONTENT, name.encode())
    except ServiceError as error:
        if error.kind == NoContentError.__name__:
            return None
        raise


async def _ask_for_content(connection: Connection, fleet: str, verb: str, payload: bytes) -> bytes:
    subject = ask_subject(fleet, verb, connection.actor)
    try:
        return await connection.request(subject, payload, timeout=CONTENT_TIMEOUT)
    except ServiceError as error:
        if error.kind == NoAnswerError.__name__:
            raise NoAnswerError(str(error)) from error
        raise


async def until_answered(ask: Callable[[], Awaitable[T]], what: str, **fields: object) -> T:
    """The answer, as soon as there is one; `what` and `fields` say in the log what was asked."""
    while True:
        try:
            return await ask()
        except NoAnswerError as error:
            log.warning(f"{what}.unanswered", error=str(error), **fields)
            await anyio.sleep(ASK_INTERVAL)


async def _ask(connection: Connection, fleet: str, verb: str, question: Struct) -> bytes:
    subject = ask_subject(fleet, verb, connection.actor)
    payload = msgspec.json.encode(question)
    try:
        return await connection.request(subject, payload, timeout=ASK_TIMEOUT)
    except ServiceError as error:
        if error.kind == NotPartOfItError.__name__:
            raise NotPartOfItError(str(error)) from error
        if error.kind == NoAnswerError.__name__:
            raise NoAnswerError(str(error)) from error
        raise
