"""The registry of live agents: one key an agent, gone when its heartbeats stop.

Read directly, never watched: watchers are blind for seconds after a server's restart.
"""

import anyio
import msgspec
from nats.aio.msg import Msg

from batonbus.logs import log
from batonbus.rules.errors import NoAnswerError
from batonbus.wire.connection import Connection
from batonbus.wire.publisher import Publisher
from batonbus.wire.subjects import check_token, registry_bucket
from batonbus_schemas import Presence

BATCH = 1000
"""Entries that one answer to a listing may have."""

_decode = msgspec.json.Decoder(Presence).decode


class Registry:
    """Who is there, what it works on."""

    def __init__(self, connection: Connection, publisher: Publisher, fleet: str) -> None:
        self._connection = connection
        self._publisher = publisher
        self._prefix = f"$KV.{registry_bucket(fleet)}"
        self._stream = f"KV_{registry_bucket(fleet)}"

    async def put(self, presence: Presence) -> None:
        """Say that this agent is there, and what it works on. Raises NoAnswerError."""
        key = check_token("agent", presence.card.id)
        await self._publisher.publish(f"{self._prefix}.{key}", msgspec.json.encode(presence), {})

    async def remove(self, agent: str) -> None:
        """Say that this agent is gone. Raises NoAnswerError."""
        await self._publisher.publish(
            f"{self._prefix}.{check_token('agent', agent)}", b"", {"KV-Operation": "DEL"}
        )

    async def list(self, *, timeout: float = 5.0) -> list[Presence]:
        """All live agents, in the order of their ids. Raises NoAnswerError."""
        inbox = self._connection.client.new_inbox()
        found: list[Presence] = []
        done = anyio.Event()

        async def on_message(message: Msg) -> None:
            if not message.data and (message.headers or {}).get("Status") in {"204", "404"}:
                done.set()
            elif message.data:
                found.extend(_read(message))

        subscription = await self._connection.subscribe(inbox, on_message)
        try:
            body = {"multi_last": [f"{self._prefix}.>"], "batch": BATCH}
            await self._connection.publish(
                f"$JS.API.DIRECT.GET.{self._stream}", msgspec.json.encode(body), reply=inbox
            )
            with anyio.fail_after(timeout):
                await done.wait()
        except TimeoutError as error:
            raise NoAnswerError(f"the registry did not answer within {timeout:g} s") from error
        finally:
            await self._connection.unsubscribe(subscription)
        return sorted(found, key=lambda presence: presence.card.id)


def _read(message: Msg) -> list[Presence]:
    try:
        return [_decode(message.data)]
    except msgspec.MsgspecError as error:
        log.warning("registry.unreadable", subject=message.subject, error=str(error))
        return []
