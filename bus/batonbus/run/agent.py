"""An agent: a role, a handler, and nothing that runs by itself."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast, get_args, get_type_hints
from uuid import uuid4

from batonbus.rules.budget import CountTokens, reference_tokens
from batonbus.rules.compaction import CheckpointRequest, Evidence, ResetDone, ResetRequest
from batonbus.run.context import Context
from batonbus.secrecy import find_in
from batonbus.wire.subjects import check_token
from batonbus_schemas import AgentCard, Body, TaskResult, TextForm, Then

Handler = Callable[[Any, Context], Awaitable[TaskResult | Then]]
Reset = Callable[[ResetRequest], Awaitable[ResetDone]]
Keep = Callable[[CheckpointRequest], Awaitable[Evidence]]
P = ParamSpec("P")
R = TypeVar("R", bound=TaskResult | Then)

BODY_TYPES: tuple[type, ...] = get_args(Body)


class Agent:
    """One subscriber of a role. It is inert until a bus runs it.

    `id` names this very agent (unique in its fleet; default: the role and a random suffix),
    `capabilities` what contract v1 may expect of it, `slots` how many handoffs it works on at a
    time, `policy_role` the row of the context policy that applies to it, `text_form` how it reads
    `ctx.text`. `count_tokens` counts the tokens of a text exactly: an assignment must then be
    inside its budget of tokens by this count and by the estimate, `ceil(characters / 4)`.
    Raises InvalidTokenError where a name cannot stand in a subject, ValueError without a slot.
    """

    def __init__(
        self,
        role: str,
        *,
        id: str | None = None,
        capabilities: tuple[str, ...] = (),
        slots: int = 1,
        policy_role: str | None = None,
        runtime: str = "python",
        text_form: TextForm = "markdown",
        count_tokens: CountTokens = reference_tokens,
    ) -> None:
        check_token("role", role)
        if slots < 1:
            raise ValueError(f"agent {id or role} has {slots} slots: it needs at least 1 to work")
        self.card = AgentCard(
            id=check_token("agent", id or f"{role[:55]}-{uuid4().hex[:8]}"),
            role=role,
            capabilities=tuple(capabilities),
            slots=slots,
            policy_role=policy_role,
            runtime=runtime,
            text_form=text_form,
        )
        if found := find_in(self.card):
            # It is shown to the whole fleet, and an id stands in every subject.
            raise ValueError(f"the agent's card is not valid: {'; '.join(map(str, found))}")
        self.count_tokens = count_tokens
        self._handler: Handler | None = None
        self.reset: Reset | None = None
        self.keep: Keep | None = None
        self.accepts: tuple[type, ...] = ()

    @property
    def handler(self) -> Handler:
        """The function that works. Raises TypeError where none was registered."""
        if self._handler is None:
            raise TypeError(
                f"agent {self.card.id} has no handler: decorate one with @agent.handles"
            )
        return self._handler

    def handles(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Register the handler: `async def work(task: Dispatch, ctx: Context) -> TaskResult`.

        Its first annotation (a body, or a union of them) says what it takes; other bodies are
        refused for it. The function itself stays as it is. Raises TypeError for another shape.
        """
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} must be an `async def`")
        parameters = list(inspect.signature(function).parameters)
        if len(parameters) != 2:
            raise TypeError(f"{function.__qualname__} must take a body and a Context")
        annotation: Any = get_type_hints(function).get(parameters[0])
        accepts: tuple[type, ...] = tuple(get_args(annotation)) or (annotation,)
        if not set(accepts) <= set(BODY_TYPES):
            names = ", ".join(it.__name__ for it in BODY_TYPES)
            raise TypeError(
                f"{function.__qualname__} must annotate {parameters[0]!r} with one of {names}"
            )
        self.set_handler(cast("Handler", function), accepts)
        return function

    def resets(self, function: Reset) -> Reset:
        """Register how this agent's session is reset: `async def reset(request: ResetRequest) ->
        ResetDone`, called first for the ten fields of a compaction handoff, then, when the
        Checkpoint is stored, to compact or clear. Without it each handoff is taken for a session of
        its own. Raises TypeError for another shape."""
        _check_hook(function, ResetRequest)
        self.reset = function
        return function

    def checkpoints(self, function: Keep) -> Keep:
        """Register where this agent's fleet keeps records of its own: `async def keep(request:
        CheckpointRequest) -> Evidence`. It is called for each Checkpoint of a work, first for what
        the records say (progress marks, changed files), then, where the Checkpoint agrees with
        them, to write it into the execution log. One that fails a condition is not stored, nothing
        is reset, and the agent is closed with what was wrong. An agent without `resets` gets its
        Checkpoint at the end of each handoff of a work. Raises TypeError for another shape."""
        _check_hook(function, CheckpointRequest)
        self.keep = function
        return function

    def set_handler(self, handler: Handler, accepts: tuple[type, ...]) -> None:
        """Register a handler that has no annotation to go by: it takes these bodies."""
        self._handler, self.accepts = handler, accepts


def _check_hook(function: Callable[..., Any], takes: type) -> None:
    name = getattr(function, "__qualname__", repr(function))
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{name} must be an `async def`")
    if len(inspect.signature(function).parameters) != 1:
        raise TypeError(f"{name} must take a {takes.__name__}")
