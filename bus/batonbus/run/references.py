"""Long contents of a ref-cache, handed to the bus and fetched from it, each only once."""

from collections import OrderedDict
from functools import partial
from typing import TypeVar

from batonbus.logs import log
from batonbus.rules.errors import ObjectError
from batonbus.rules.references import content_hash, refer, reference_to, referred, restore
from batonbus.run.asking import ask_content, ask_store, until_answered
from batonbus.secrecy import find_in
from batonbus.wire.connection import Connection

B = TypeVar("B")
T = TypeVar("T")

CACHE_LIMIT = 64_000_000
"""Characters of the contents that a process keeps of those that it stored or fetched."""


class References:
    """What one process stores and fetches. A bus that is away is waited for."""

    def __init__(self, connection: Connection, fleet: str) -> None:
        self._connection = connection
        self._fleet = fleet
        self._cache: OrderedDict[str, str] = OrderedDict()
        self._cached = 0

    async def store(self, body: B) -> B:
        """The body with its long contents stored, and references in their places. Raises
        ReferenceTooLargeError, MessageTooLargeError, BusUnavailableError."""
        shortened, contents = refer(body)
        for name, content in contents.items():
            if name not in self._cache:
                ask = partial(ask_store, self._connection, self._fleet, content)
                await until_answered(ask, "object")
                self._keep(name, content.decode())
        return shortened

    async def restore(self, body: B) -> B:
        """The body with its contents as if they had never been referred to. Raises ObjectError
        where one is missing, is not what its hash says, or holds what may not travel; and
        BusUnavailableError."""
        names = referred(body)
        return restore(body, {key: await self._fetch(key, name) for key, name in names.items()})

    async def _fetch(self, key: str, name: str) -> str:
        if name in self._cache:
            self._cache.move_to_end(name)
            return self._cache[name]
        ask = partial(ask_content, self._connection, self._fleet, name)
        content = await until_answered(ask, "object")
        text = _checked(key, name, content)
        self._keep(name, text)
        return text

    def _keep(self, name: str, text: str) -> None:
        """What was not used for longest goes first."""
        if name not in self._cache:
            self._cached += len(text)
        self._cache[name] = text
        while self._cached > CACHE_LIMIT:
            _, dropped = self._cache.popitem(last=False)
            self._cached -= len(dropped)


def _checked(key: str, name: str, content: bytes | None) -> str:
    reference = f"reference {key!r} ({reference_to(name)})"
    if content is None:
        raise ObjectError(f"{reference} is not in the object store: send its content again")
    found = content_hash(content)
    if found != name:
        log.warning("security.foreign_object", object=name, found=found)
        raise ObjectError(
            f"{reference} is stored as {len(content):,} bytes of another content (sha256 {found}): "
            "let an operator delete them, then send its content again"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ObjectError(f"{reference} is no UTF-8: {error}") from None
    # The window manager saw the reference alone.
    if banned := find_in(text, f"$.ref_cache[{key!r}]"):
        raise ObjectError(f"{reference} may not travel: {'; '.join(map(str, banned))}")
    return text
