"""Functions that an agent's program has registered: whatever they do, it is told and not spread."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from batonbus.logs import log
from batonbus.rules.errors import CompactionError
from batonbus.secrecy import hide, hide_in

Q = TypeVar("Q")
A = TypeVar("A", bound=Struct)


async def ask_hook(hook: Callable[[Q], Awaitable[A]], request: Q, type_: type[A], what: str) -> A:
    """What a hook answers to a request, without secrets, for it is stored or shown. Raises
    CompactionError, which names the request as `what`, where it raises anything or returns another
    type."""
    try:
        answer = await hook(request)
    except Exception as error:
        # The function is not ours: whatever it raises, what it was asked for was not done.
        log.warning("hook.failed", what=what, exc_info=error)
        told = hide(f"{type(error).__name__}: {error}")
        raise CompactionError(f"{what} failed: {told}") from error
    if not isinstance(answer, type_):  # pyright: ignore[reportUnnecessaryIsInstance] - theirs
        raise CompactionError(f"{what} returned {type(answer).__name__}, not {type_.__name__}")
    return hide_in(answer)
