"""The public way in: connect, send, run agents."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4, uuid5

import anyio

from batonbus.run.agent import Agent
from batonbus.run.client import Client, open_client
from batonbus.run.sent import Sent
from batonbus.run.worker import run_agent
from batonbus_schemas import Body, Envelope
from batonbus_schemas.bodies import as_body
from batonbus_schemas.envelope import ADHOC

DEFAULT_FLEET = "default"


class Bus:
    """A connection to the bus as one actor: `async with Bus(url) as bus: …`.

    `actor` is who sends (default: a random name); answers come back to it. Raises
    BusUnavailableError where no server or no receipt keeper answers.
    """

    def __init__(self, url: str, *, actor: str | None = None, fleet: str = DEFAULT_FLEET) -> None:
        self._url = url
        self._is_named = actor is not None
        self._actor = actor or f"sender-{uuid4().hex[:8]}"
        self._fleet = fleet
        self._stack = AsyncExitStack()
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        opening = open_client(self._url, self._actor, fleet=self._fleet)
        self._client = await self._stack.enter_async_context(opening)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    @property
    def client(self) -> Client:
        """The connected client. Raises RuntimeError outside of the `async with` block."""
        if self._client is None:
            raise RuntimeError("the bus is not connected: use `async with Bus(url) as bus`")
        return self._client

    async def send(
        self,
        to: str,
        body: Body | str,
        *,
        key: str | None = None,
        work: str = ADHOC,
        task: str | None = None,
        after: Sequence[Sent] = (),
        deadline: datetime | None = None,
    ) -> Sent:
        """Hand work to a role or an agent; a string is the brief of a Dispatch.

        With a `key`, sending the same again, by the same named `actor`, is the same handoff.
        `after` names the handoffs whose context the receiver shall see. Contents of a ref-cache may
        have 1,000,000 bytes each. Raises InvalidMessageError, ConflictError,
        ReferenceTooLargeError, and ValueError for a key of an actor without a name.
        """
        client = self.client
        if key is not None and not self._is_named:
            raise ValueError("a key is the actor's own: name it with Bus(url, actor=…)")
        envelope = Envelope(
            id=uuid4() if key is None else sender_key(client.actor, key),
            sender=client.actor,
            to=to,
            body=as_body(body),
            work=work,
            task=task,
            reply_to=client.actor,
            after=tuple(it.settled_id for it in after) or None,
            deadline=deadline,
        )
        return await self.send_envelope(envelope)

    async def send_envelope(self, envelope: Envelope) -> Sent:
        """Send a handoff that is complete already, such as one read from a file."""
        return Sent(self.client, await self.client.send(envelope))

    async def run(self, agent: Agent, *, stop: anyio.Event | None = None) -> None:
        """Run an agent on a connection of its own, until cancelled or `stop` is set."""
        await serve(agent, self._url, fleet=self._fleet, stop=stop)


async def serve(
    agent: Agent, url: str, *, fleet: str = DEFAULT_FLEET, stop: anyio.Event | None = None
) -> None:
    """Connect as an agent and work until cancelled or `stop` is set. Raises TypeError where it has
    no handler, BusUnavailableError."""
    _ = agent.handler
    async with open_client(url, agent.card.id, fleet=fleet, card=agent.card) as client:
        await run_agent(agent, client, stop or anyio.Event())


def sender_key(actor: str, key: str) -> UUID:
    """The id of a keyed handoff that a sender outside of any handler sends."""
    return uuid5(UUID(int=0), f"{actor}:{key}")
