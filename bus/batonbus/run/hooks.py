"""Functions of an agent's own that the runtime calls beside its handler: `@agent.resets`,
`@agent.checkpoints`. They are not ours, so what they answer is checked like a message that comes
in: what no registry entry or journal can hold would else be found out there."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from batonbus.logs import log
from batonbus.rules.errors import CompactionError, describe
from batonbus.secrecy import hide, hide_in
from batonbus_schemas.violations import find_violations

Q = TypeVar("Q", bound=Struct)
A = TypeVar("A", bound=Struct)


def is_cancelled() -> bool:
    """Whether somebody cancels us; else what we awaited was cancelled: an error as any other."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def ask_hook(
    hook: Callable[[Q], Awaitable[A]],
    request: Q,
    answers: type[A],
    what: str,
    *,
    is_draft: Callable[[A], bool] | None = None,
) -> A:
    """What the function answers, without secrets. `what` names the question; what `is_draft` is
    given back as it came, to ask again. Raises CompactionError where it raises, or answers what is
    no `answers`."""
    try:
        answer: object = await hook(request)
    except Exception as error:
        # Whatever it raises, nothing was done that counts.
        raise _failed(what, error) from error
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        # Nobody cancelled us: the function awaited something that was cancelled.
        raise _failed(what, error) from error
    if not isinstance(answer, answers):
        kind, wanted = type(answer).__name__, answers.__name__
        raise CompactionError(f"{what} returned {kind}, not {wanted}")
    return answer if is_draft and is_draft(answer) else hide_in(_checked(answer, answers, what))


def _failed(what: str, error: BaseException) -> CompactionError:
    log.warning("hook.failed", what=what, exc_info=error)
    return CompactionError(f"{what} failed: {hide(describe(error))}")


def _checked(answer: A, answers: type[A], what: str) -> A:
    try:
        tree = msgspec.to_builtins(answer)
    except Exception as error:
        # Its members are not ours either: what cannot be written as JSON is no answer.
        raise CompactionError(f"{what} returned what is no JSON: {describe(error)}") from error
    if found := find_violations(tree, answers):
        said = "; ".join(map(str, found))
        raise CompactionError(f"{what} returned what is no {answers.__name__}: {hide(said)}")
    return msgspec.convert(tree, answers)
