"""What an agent's own functions answer is checked before it is stored or shown."""

import asyncio
import math
from typing import Any

import anyio
import pytest
from gate_bench import TEN_FIELDS, Builder, closed_for, presence
from msgspec.structs import replace

from batonbus import CompactionError, ResetDone, ResetRequest
from batonbus.run.hooks import ask_hook
from batonbus_schemas import ContextUsage

pytestmark = pytest.mark.anyio

REQUEST = ResetRequest(step="reset", verb="compact", reason="context usage 66 % (hard 65 %)")


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def with_usage(**fields: Any) -> ResetDone:
    return ResetDone(usage=ContextUsage(**fields))


def with_field(text: Any) -> ResetDone:
    return ResetDone(handoff=replace(TEN_FIELDS, evidence_paths=text))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "returned NoneType, not ResetDone"),
        ({"usage": 20}, "returned dict, not ResetDone"),
        (with_usage(source="measured", percent=math.nan), "$.usage.percent: nan is less than 0"),
        (with_usage(source="measured", percent=101), "$.usage.percent: 101 is more than 100"),
        (with_usage(source="measured", percent="20"), "$.usage.percent: expected number, got stri"),
        (with_usage(source="measured", percent=True), "$.usage.percent: expected number, got bool"),
        (with_usage(source="guessed", percent=20), "$.usage.source: `guessed` is not allowed"),
        (with_field(["a", "b"]), "$.handoff.evidence_paths: expected string, got array"),
        (with_field(object()), "returned what is no JSON: TypeError"),
        (ResetDone(changed_files="a.py"), "$.changed_files: expected array, got string"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - theirs
        (ResetDone(capabilities=(1,)), "$.capabilities[0]: expected string, got integer"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - theirs
    ],
)
async def test_an_answer_that_could_not_be_stored_is_named_by_its_place(
    answer: Any, told: str
) -> None:
    async def hook(request: ResetRequest) -> ResetDone:
        assert request is REQUEST
        return answer

    with pytest.raises(CompactionError, match=r"^the reset ") as error:
        await ask_hook(hook, REQUEST, ResetDone, "the reset")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (UnreadableError(), "UnreadableError, whose text cannot be read (ValueError)"),
        (asyncio.CancelledError(), "CancelledError"),
        (OSError("password is canary2-Prod!"), "OSError: password is [masked: named secret]"),
    ],
)
async def test_whatever_it_raises_is_told_without_its_secrets(
    raised: BaseException, told: str
) -> None:
    async def hook(request: ResetRequest) -> ResetDone:
        raise raised

    with pytest.raises(CompactionError) as error:
        await ask_hook(hook, REQUEST, ResetDone, "the reset")
    assert str(error.value) == f"the reset failed: {told}"


async def test_who_is_cancelled_while_it_asks_is_cancelled() -> None:
    async def hook(request: ResetRequest) -> ResetDone:
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.move_on_after(0.01) as scope:
        await ask_hook(hook, REQUEST, ResetDone, "the reset")
    assert scope.cancelled_caught


async def test_an_agent_whose_reset_answers_rubbish_stays_in_the_registry_and_says_why(
    open_bus: Any,
) -> None:
    agent = Builder().agent

    @agent.resets
    async def reset(request: ResetRequest) -> ResetDone:
        if request.step == "handoff":
            return ResetDone(handoff=TEN_FIELDS)
        return with_usage(source="measured", percent=True)

    async with open_bus(agent) as bus:
        await (await bus.send("builder", "one 66")).result()
        closed = await closed_for(bus, agent, "the reset returned")
        there = await presence(bus, agent)
    assert closed.endswith("$.usage.percent: expected number, got boolean")
    assert there.card.context_usage == ContextUsage(source="measured", percent=66.0)
