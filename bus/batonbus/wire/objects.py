"""Long contents, stored once by their hash: one message of a key-value bucket each.

Only the bus's own actors read and write here, and what they write has the hash that it is stored
under. The server refuses a second message of a name, whoever sends it.
"""

import msgspec

from batonbus.rules.errors import NoAnswerError
from batonbus.wire.connection import ApiError, Connection
from batonbus.wire.ledger import NO_MESSAGE, Message
from batonbus.wire.publisher import EXPECTED, LostRaceError, Publisher
from batonbus.wire.subjects import check_token, objects_bucket

_NOTHING_YET = {EXPECTED: "0"}


class _Found(msgspec.Struct):
    message: Message


class Objects:
    """The contents of one fleet."""

    def __init__(self, connection: Connection, publisher: Publisher, fleet: str) -> None:
        self._connection = connection
        self._publisher = publisher
        self._prefix = f"$KV.{objects_bucket(fleet)}"
        self._stream = f"KV_{objects_bucket(fleet)}"

    async def put(self, name: str, content: bytes) -> bool:
        """Store a content under its hash; False where it is stored already. Raises NoAnswerError
        (it may be stored or not), MessageTooLargeError, BusUnavailableError."""
        try:
            await self._publisher.publish(self._subject(name), content, _NOTHING_YET)
        except LostRaceError:
            return False
        return True

    async def get(self, name: str) -> bytes | None:
        """The content with this hash, None where it is not stored: the stream's leader knows.
        Raises NoAnswerError, BusUnavailableError."""
        body = {"last_by_subj": self._subject(name)}
        try:
            data = await self._connection.api(f"STREAM.MSG.GET.{self._stream}", body)
        except ApiError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise NoAnswerError(str(error)) if error.temporary else error from error
        return msgspec.json.decode(data, type=_Found).message.data

    def _subject(self, name: str) -> str:
        return f"{self._prefix}.{check_token('object', name)}"
