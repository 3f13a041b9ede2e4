"""The registry of live agents: one key an agent, gone when its heartbeats stop.

Read directly, never watched: watchers are blind for seconds after a server's restart.
"""

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from batonbus.logs import log
from batonbus.rules.errors import NoAnswerError
from batonbus.wire.connection import ApiError, Connection
from batonbus.wire.publisher import EXPECTED, LostRaceError, Publisher
from batonbus.wire.subjects import check_token, registry_bucket
from batonbus_schemas import Presence

BATCH = 1000
"""Entries that one answer to a listing may have."""

END_OF_BATCH, NOTHING = "204", "404"

STALE_DELAY = 0.02
"""Seconds until a replica that lags behind is asked again."""


class _State(msgspec.Struct):
    messages: int
    last_seq: int


class _Info(msgspec.Struct):
    state: _State


_decode_info = msgspec.json.Decoder(_Info).decode
_decode = msgspec.json.Decoder(Presence).decode


class Registry:
    """Who is there, what it works on."""

    def __init__(self, connection: Connection, publisher: Publisher, fleet: str) -> None:
        self._connection = connection
        self._publisher = publisher
        self._prefix = f"$KV.{registry_bucket(fleet)}"
        self._stream = f"KV_{registry_bucket(fleet)}"
        self._own: dict[str, int] = {}
        """The sequences of the entries that we wrote."""

    async def put(self, presence: Presence) -> bool:
        """Say that this agent is there, and what it works on. Returns whether somebody else has
        written its entry since we did, as far as that is known. Raises NoAnswerError."""
        key = check_token("agent", presence.card.id)
        subject, data = f"{self._prefix}.{key}", msgspec.json.encode(presence)
        # Without an answer nobody knows what stands there: then whoever wrote it may be we.
        own = self._own.pop(key, None)
        expected = {} if own is None else {EXPECTED: str(own)}
        try:
            self._own[key] = await self._publisher.publish(subject, data, expected)
        except LostRaceError:
            self._own[key] = await self._publisher.publish(subject, data, {})
            return True
        return False

    async def remove(self, agent: str) -> None:
        """Say that this agent is gone. Raises NoAnswerError."""
        await self._publisher.publish(
            f"{self._prefix}.{check_token('agent', agent)}", b"", {"KV-Operation": "DEL"}
        )

    async def list(self, *, timeout: float = 5.0) -> list[Presence]:
        """All live agents, in the order of their ids. Raises NoAnswerError.

        Any node of a cluster may give the entries, also one that was cut off and in which they have
        all ended: what it gives counts when it has the newest entry that the leader has.
        """
        with anyio.move_on_after(timeout):
            newest = await self._newest()
            while True:
                found: dict[str, Presence] = {}
                sequence, last = 1, 0
                while sequence:
                    sequence, last = await self._read_page(sequence, found)
                if last >= newest:
                    return [found[agent] for agent in sorted(found)]
                await anyio.sleep(STALE_DELAY)
                newest = await self._newest()
        raise NoAnswerError(f"the registry did not answer within {timeout:g} s")

    async def _newest(self) -> int:
        """The sequence of the leader's newest entry; 0 where it has none."""
        try:
            info = _decode_info(await self._connection.api(f"STREAM.INFO.{self._stream}"))
        except ApiError as error:
            raise NoAnswerError(f"the registry answered {error}") from error
        return info.state.last_seq if info.state.messages else 0

    async def _read_page(self, sequence: int, found: dict[str, Presence]) -> tuple[int, int]:
        """Add the entries from this sequence on; returns where the next page begins (0 at the end)
        and the last sequence of this one (0 where it is empty). An entry that is put meanwhile
        moves behind: it may come twice, it is never missed."""
        inbox = self._connection.client.new_inbox()
        last: dict[str, str] = {}
        done = anyio.Event()

        async def on_message(message: Msg) -> None:
            headers = message.headers or {}
            if "Nats-Sequence" not in headers:
                last.update(headers)
                done.set()
                return
            key = headers["Nats-Subject"].removeprefix(f"{self._prefix}.")
            if message.data and (presence := _read(key, message.data)):
                found[key] = presence

        subscription = await self._connection.subscribe(inbox, on_message)
        try:
            body = {"seq": sequence, "next_by_subj": f"{self._prefix}.>", "batch": BATCH}
            question = f"$JS.API.DIRECT.GET.{self._stream}"
            with self._connection.until_lost(question):
                await self._connection.publish(question, msgspec.json.encode(body), reply=inbox)
                await done.wait()
        except (NatsError, OSError) as error:
            raise NoAnswerError(f"the registry could not be asked: {error!r}") from error
        finally:
            await self._connection.unsubscribe(subscription)
        if last["Status"] not in {NOTHING, END_OF_BATCH}:
            raise NoAnswerError(f"the registry answered {last['Status']} {last['Description']}")
        if last["Status"] == NOTHING:
            return 0, 0
        end = int(last["Nats-Last-Sequence"])
        return (end + 1 if last["Nats-Num-Pending"] != "0" else 0), end


def _read(key: str, data: bytes) -> Presence | None:
    try:
        presence = _decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        log.warning("registry.unreadable", key=key, error=str(error))
        return None
    if key != presence.card.id:
        # Each agent may write its own key alone: an entry cannot speak for another.
        log.warning("security.foreign_presence", key=key, agent=presence.card.id)
        return None
    return presence
