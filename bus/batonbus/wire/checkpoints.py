"""Checkpoints, and how far each reset of a session is: one key an agent, which it alone writes."""

from batonbus.logs import log
from batonbus.wire.connection import Connection
from batonbus.wire.publisher import Publisher
from batonbus.wire.subjects import checkpoint_key, checkpoint_reading
from batonbus_schemas import InvalidMessageError, ResetJournal, decode, encode


class Checkpoints:
    """Reads and writes the journals of one fleet's resets."""

    def __init__(self, connection: Connection, publisher: Publisher, fleet: str) -> None:
        self._connection = connection
        self._publisher = publisher
        self._fleet = fleet

    async def put(self, journal: ResetJournal) -> None:
        """Store how far a reset is. Raises NoAnswerError, ApiError, InvalidMessageError where it is
        too large, and DeniedError where this actor may not write that agent's key."""
        key = checkpoint_key(self._fleet, journal.agent)
        await self._publisher.publish(key, encode(journal), {})

    async def get(self, agent: str) -> ResetJournal | None:
        """An agent's newest journal, or None where there is none that can be read. Raises
        NoAnswerError, DeniedError."""
        data = await self._connection.request(checkpoint_reading(self._fleet, agent))
        if not data:
            return None
        try:
            return decode(data, ResetJournal)
        except InvalidMessageError as error:
            log.warning("checkpoint.unreadable", agent=agent, error=str(error))
            return None
