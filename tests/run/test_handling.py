"""What becomes of a handler that raises, cancels, or returns something else than a result."""

import asyncio
from typing import Any, cast

import anyio
import pytest
from gate_bench import until

from batonbus import Agent, Context, Refuse, TryAgain
from batonbus.rules.chain import RECEIPT_KEEPER
from batonbus.rules.errors import describe, leaves
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_operator
from batonbus.run.handling import ERROR_LIMIT, clip
from batonbus.wire.streams import role_consumer
from batonbus_schemas import (
    Delivery,
    Dispatch,
    HandoffV1,
    InvalidMessageError,
    Receipt,
    TaskResult,
    Then,
    Violation,
    decode,
)

pytestmark = pytest.mark.anyio


def raising(*errors: BaseException, role: str = "shaky") -> Agent:
    """An agent whose attempts raise these, one after the other, and then pass."""
    agent, left = Agent(role), list(errors)

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        if left:
            raise left.pop(0)
        return TaskResult.passed(what=f"attempt {ctx.attempt}")

    return agent


def returning(outcome: object) -> Agent:
    agent = Agent("shaky")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        return cast("TaskResult", outcome)

    return agent


@pytest.fixture
def read_failures(read_events: Any) -> Any:
    """The failed events' receipts of a handoff."""

    async def read(bus: Any, sent: Any) -> list[Receipt]:
        events = await read_events(bus, sent.handoff_id)
        return [decode(it.payload, Receipt) for it in events if it.event.kind == "failed"]

    return read


async def test_an_exception_is_stored_and_the_next_attempt_may_pass(
    open_bus: Any, read_events: Any
) -> None:
    async with open_bus(raising(ValueError("no such file: a.py"))) as bus:
        sent = await bus.send("shaky", "x")
        assert (await sent.result()).summary == "attempt 2"
        events = await read_events(bus, sent.handoff_id)
    kinds = ["sent", "delivered", "accepted", "failed", "accepted", "settled"]
    assert [it.event.kind for it in events] == kinds
    receipt = decode(events[3].payload, Receipt)
    assert receipt.reason == "ValueError: no such file: a.py"
    assert events[3].event.reason == receipt.reason
    assert [it.event.attempt for it in events[2:]] == [1, 1, 2, 2]
    assert [events[it].event.lease for it in (2, 4)] == [1, 2]
    assert events[3].event.accepted == events[2].event.sequence
    assert events[5].event.accepted == events[4].event.sequence


async def test_the_third_failed_attempt_is_the_last(
    open_bus: Any, bounce: Any, read_kinds: Any
) -> None:
    errors = [RuntimeError(f"broken {number}") for number in range(9)]
    async with open_bus(raising(*errors)) as bus:
        sent = await bus.send("shaky", "x")
        error = await bounce(sent)
        kinds = await read_kinds(bus, sent)
    assert kinds == ["sent", "delivered", *["accepted", "failed"] * 3, "dead"]
    assert (error.receipt.state, error.receipt.by) == ("dead", RECEIPT_KEEPER)
    assert error.receipt.attempt == 3
    assert "failed 3 of 3 attempts" in str(error)


async def test_try_again_says_when(open_bus: Any, read_events: Any) -> None:
    agent = raising(TryAgain("the service is down", after=1.5), TryAgain())
    async with open_bus(agent) as bus:
        sent = await bus.send("shaky", "x")
        assert (await sent.result()).summary == "attempt 3"
        events = await read_events(bus, sent.handoff_id)
    failed = [it for it in events if it.event.kind == "failed"]
    assert [decode(it.payload, Receipt).reason for it in failed] == [
        "TryAgain: the service is down",
        "TryAgain: the handler asked for another attempt",
    ]
    first, second = events.index(failed[0]), events.index(failed[1])
    assert events[first + 1].event.at - events[first].event.at >= 1.5
    assert events[second + 1].event.at - events[second].event.at < 1.5


async def test_refuse_ends_the_handoff_at_once(open_bus: Any, bounce: Any, read_kinds: Any) -> None:
    async with open_bus(raising(Refuse("I do not write Perl"))) as bus:
        sent = await bus.send("shaky", "x")
        error = await bounce(sent)
        assert await read_kinds(bus, sent) == ["sent", "delivered", "accepted", "refused"]
    assert (error.receipt.state, error.receipt.reason) == ("refused", "I do not write Perl")
    assert error.receipt.by.startswith("shaky-")


async def test_a_refusal_or_a_wish_out_of_a_task_group_is_heard(
    open_bus: Any, bounce: Any, read_failures: Any
) -> None:
    group = ExceptionGroup("unhandled", [ExceptionGroup("inner", [TryAgain("later", after=0)])])
    agent = raising(group, ExceptionGroup("unhandled", [Refuse("never")]))
    async with open_bus(agent) as bus:
        sent = await bus.send("shaky", "x")
        assert (await bounce(sent)).receipt.reason == "never"
        assert [it.reason for it in await read_failures(bus, sent)] == ["TryAgain: later"]


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


async def test_any_text_of_an_exception_can_be_stored(open_bus: Any, read_failures: Any) -> None:
    long = "x" * 100_000
    texts = ["half \ud800 a pair", "line\r\nbreak\x00\x1b[31m\u2028 ä 🙂"]
    for errors in ([RuntimeError(it) for it in texts], [RuntimeError(long), UnreadableError()]):
        async with open_bus(raising(*errors)) as bus:
            sent = await bus.send("shaky", "x")
            assert (await sent.result()).summary == "attempt 3"
            one, two = [it.reason for it in await read_failures(bus, sent)]
        if long in str(errors[0]):
            assert one == f"RuntimeError: {long}"[:ERROR_LIMIT]
            assert two == "UnreadableError, whose text cannot be read (ZeroDivisionError)"
        else:
            assert one == "RuntimeError: half ? a pair"
            assert two == f"RuntimeError: {texts[1]}"


async def test_any_text_of_a_refusal_can_be_stored(open_bus: Any, bounce: Any) -> None:
    async with open_bus(raising(Refuse("\ud800" + "y" * 100_000))) as bus:
        error = await bounce(await bus.send("shaky", "x"))
    assert error.receipt.reason == "?" + "y" * (ERROR_LIMIT - 1)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (None, "TypeError: the handler returned NoneType: return a TaskResult, or result.then("),
        ("done", "TypeError: the handler returned str"),
        (TaskResult(status="MAYBE"), "InvalidMessageError: invalid message: $.result.status"),  # type: ignore[arg-type]
        (TaskResult.passed(what="x" * 70_000), "limit 65,536: refer to files instead"),
        (TaskResult.passed(what="\ud800"), "holds half of a surrogate pair"),
        (TaskResult.passed(what="x").then("a.b", "y"), "$.next.to: `a.b` is no name"),
        (TaskResult.passed(what="x").then("b", Dispatch(brief="")), "$.next.body.brief"),
        (Then(result=None, to="b", body=Dispatch(brief="x")), "$.result"),  # type: ignore[arg-type]
    ],
    ids=["none", "text", "status", "huge", "surrogate", "name", "next-body", "then-nothing"],
)
async def test_a_wrong_return_value_is_a_failed_attempt_that_says_so(
    open_bus: Any, bounce: Any, read_failures: Any, outcome: object, said: str
) -> None:
    async with open_bus(returning(outcome)) as bus:
        sent = await bus.send("shaky", "x")
        assert (await bounce(sent)).receipt.state == "dead"
        failures = await read_failures(bus, sent)
    assert [it.attempt for it in failures] == [1, 2, 3]
    assert all(said in it.reason for it in failures), failures[0].reason


async def test_a_cancellation_that_nobody_asked_for_is_a_failed_attempt(
    open_bus: Any, read_failures: Any
) -> None:
    """The handler awaited a task of its own that was cancelled."""
    agent = Agent("shaky")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        if ctx.attempt == 1:
            own = asyncio.ensure_future(asyncio.Event().wait())
            own.cancel()
            await own
        return TaskResult.passed(what=f"attempt {ctx.attempt}")

    async with open_bus(agent) as bus:
        sent = await bus.send("shaky", "x")
        assert (await sent.result()).summary == "attempt 2"
        assert [it.reason for it in await read_failures(bus, sent)] == ["CancelledError"]


async def test_a_time_limit_inside_a_handler_is_its_own(open_bus: Any) -> None:
    agent = Agent("patient")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep_forever()
        if ctx.attempt == 1:
            with anyio.fail_after(0.01):
                await anyio.sleep_forever()
        return TaskResult.passed(what=f"attempt {ctx.attempt}, {scope.cancelled_caught}")

    async with open_bus(agent) as bus:
        assert (await (await bus.send("patient", "x")).result()).summary == "attempt 2, True"


async def test_an_agent_takes_every_body_that_its_annotation_names(open_bus: Any) -> None:
    agent, kinds = Agent("open"), []

    @agent.handles
    async def work(task: Dispatch | TaskResult | HandoffV1, ctx: Context) -> TaskResult:
        kinds.append(type(task).__name__)
        return TaskResult.passed(what="taken")

    async with open_bus(agent) as bus:
        await (await bus.send("open", "x")).result()
        await (await bus.send("open", TaskResult.failed(what="see here"))).result()
    assert kinds == ["Dispatch", "TaskResult"]


def test_a_group_is_told_by_its_leaves() -> None:
    one, two = ValueError("a"), KeyError("b")
    group = BaseExceptionGroup("g", [one, BaseExceptionGroup("h", [two])])
    assert leaves(group) == [one, two]
    assert leaves(one) == [one]
    assert describe(one) == "ValueError: a"
    assert describe(TimeoutError()) == "TimeoutError"


def test_clipped_text_is_short_and_can_be_encoded() -> None:
    assert clip("ä" * 5_000) == "ä" * ERROR_LIMIT
    assert clip("\udfff").encode() == b"?"


async def test_a_delivery_that_cannot_be_read_is_left_to_others_until_it_is_over(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(data: bytes, type: Any) -> Any:
        if type is Delivery:
            problem = Violation(path="$.envelope.body", problem="is of a new kind")
            raise InvalidMessageError([problem])
        return decode(data, type)

    monkeypatch.setattr("batonbus.run.handling.decode", unreadable)
    async with open_bus(raising()) as bus:
        sent = await bus.send("shaky", "x")
        await until(lambda: "delivery.unreadable" in caplog.text)
        await sent.cancel("enough")
        async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
            verb = f"CONSUMER.INFO.{core.ledger.stream}.{role_consumer('shaky')}"
            while b'"num_ack_pending":0' not in await core.connection.api(verb):  # noqa: ASYNC110 - only the server knows
                await anyio.sleep(0.05)
    assert caplog.text.count("is of a new kind") < 5
