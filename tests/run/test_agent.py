"""An agent is inert: a role, a handler, and what it says of itself."""

from collections.abc import Callable
from typing import Any

import pytest

from batonbus import Agent, Context
from batonbus.rules.errors import InvalidTokenError
from batonbus_schemas import AgentCard, Body, Dispatch, HandoffV1, Question, TaskResult


def test_its_card_says_what_it_is() -> None:
    agent = Agent("builder", id="b-1", capabilities=("code",), slots=3, policy_role="implementer")
    assert agent.card == AgentCard(
        id="b-1", role="builder", capabilities=("code",), slots=3, policy_role="implementer"
    )


def test_two_agents_of_a_role_have_ids_of_their_own() -> None:
    one, two = Agent("builder"), Agent("builder")
    assert one.card.id != two.card.id
    assert one.card.id.startswith("builder-")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "ä", "x" * 65, "a\n"])
def test_a_name_must_be_able_to_stand_in_a_subject(name: str) -> None:
    with pytest.raises(InvalidTokenError, match="cannot stand in a subject"):
        Agent(name)
    if name:
        with pytest.raises(InvalidTokenError, match="cannot stand in a subject"):
            Agent("builder", id=name)


def test_the_longest_role_still_gets_an_id() -> None:
    assert len(Agent("x" * 64).card.id) <= 64


@pytest.mark.parametrize("field", ["id", "policy_role", "runtime", "capabilities"])
def test_no_card_holds_a_secret(field: str) -> None:
    token = "ghp_" + "a1B2" * 9
    options: dict[str, Any] = {field: (token,) if field == "capabilities" else token}
    with pytest.raises(ValueError, match=rf"\$\.{field}.* holds a secret") as error:
        Agent("reviewer", **options)
    assert token not in str(error.value)


@pytest.mark.parametrize("slots", [0, -1])
def test_an_agent_has_at_least_one_slot(slots: int) -> None:
    with pytest.raises(ValueError, match="slots"):
        Agent("builder", slots=slots)


async def one_body(task: Dispatch, ctx: Context) -> TaskResult: ...  # type: ignore[empty-body]


async def two_bodies(task: Dispatch | Question, ctx: Context) -> TaskResult: ...  # type: ignore[empty-body]


async def any_body(task: Body, ctx: Context) -> TaskResult: ...  # type: ignore[empty-body]


async def as_text(task: "HandoffV1", ctx: "Context") -> "TaskResult": ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("handler", "accepts"),
    [
        (one_body, {Dispatch}),
        (two_bodies, {Dispatch, Question}),
        (as_text, {HandoffV1}),
    ],
)
def test_a_handlers_annotation_says_what_it_takes(
    handler: Callable[..., Any], accepts: set[type]
) -> None:
    agent = Agent("builder")
    assert agent.handles(handler) is handler
    assert set(agent.accepts) == accepts


def test_a_handler_may_take_every_body() -> None:
    agent = Agent("builder")
    agent.handles(any_body)
    assert {Dispatch, Question, HandoffV1, TaskResult} <= set(agent.accepts)


def plain(task: Dispatch, ctx: Context) -> TaskResult: ...  # type: ignore[empty-body]


async def no_context(task: Dispatch) -> TaskResult: ...  # type: ignore[empty-body]


async def no_annotation(task, ctx) -> TaskResult: ...  # type: ignore[no-untyped-def, empty-body]


async def another_type(task: str, ctx: Context) -> TaskResult: ...  # type: ignore[empty-body]


async def partly(task: Dispatch | str, ctx: Context) -> TaskResult: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (plain, "plain must be an `async def`"),
        (no_context, "no_context must take a body and a Context"),
        (no_annotation, "no_annotation must annotate 'task' with one of Dispatch, Question"),
        (another_type, "another_type must annotate 'task' with one of"),
        (partly, "partly must annotate 'task' with one of"),
    ],
)
def test_a_function_of_another_shape_is_told_what_to_change(
    handler: Callable[..., Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        Agent("builder").handles(handler)


def test_an_agent_without_a_handler_says_how_to_register_one() -> None:
    with pytest.raises(TypeError, match=r"agent b-1 has no handler: .*@agent\.handles"):
        _ = Agent("builder", id="b-1").handler
