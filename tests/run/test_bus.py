"""The public way in: a handoff is sent, answered at once, and settled."""

from functools import partial
from typing import Any

import anyio
import pytest

from batonbus import (
    Agent,
    Bounced,
    Bus,
    BusUnavailableError,
    ConflictError,
    Context,
    NoAnswerError,
    Refuse,
    Settings,
    gather,
)
from batonbus.testing import run_receipt_keeper
from batonbus.wire.connection import connect
from batonbus.wire.server import free_port
from batonbus_schemas import Dispatch, InvalidMessageError, TaskResult

pytestmark = pytest.mark.anyio


async def test_an_agent_of_a_few_lines_answers(open_bus: Any) -> None:
    reviewer = Agent("reviewer")

    @reviewer.handles
    async def review(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult.passed(what=f"Read {task.brief}: no findings.")

    async with open_bus(reviewer) as bus:
        sent = await bus.send("reviewer", "README.md")
        receipt = await sent.receipt()
        result = await sent.result()
    assert (receipt.state, receipt.by) == ("accepted", reviewer.card.id)
    assert (receipt.attempt, receipt.lease) == (1, 1)
    assert result == await review(Dispatch(brief="README.md"), None)  # type: ignore[arg-type]


async def test_the_receipt_comes_before_the_handler_ends(open_bus: Any) -> None:
    agent, may_end = Agent("slow"), anyio.Event()

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        await may_end.wait()
        return TaskResult.passed(what="done")

    async with open_bus(agent) as bus:
        sent = await bus.send("slow", "x")
        assert (await sent.receipt()).state == "accepted"
        may_end.set()
        assert (await sent.result()).status == "PASS"


async def test_a_failed_result_is_a_value_and_one_attempt(open_bus: Any, read_kinds: Any) -> None:
    agent = Agent("verifier")

    @agent.handles
    async def verify(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult.failed(what="two tests fail", caution="flaky clock")

    async with open_bus(agent) as bus:
        sent = await bus.send("verifier", "x")
        result = await sent.result()
        assert await read_kinds(bus, sent) == ["sent", "delivered", "accepted", "settled"]
    assert result.status == "FAIL"
    assert result.context_handoff is not None
    assert result.context_handoff.caution == "flaky clock"


async def test_a_result_can_be_asked_for_twice_and_after_it_the_receipt(
    open_bus: Any, echo: Any
) -> None:
    async with open_bus(echo()) as bus:
        sent = await bus.send("echo", "x")
        assert await sent.result() == await sent.result()
        assert (await sent.receipt()).state == "accepted"


async def test_a_handoff_reaches_one_agent_by_its_id(open_bus: Any, echo: Any) -> None:
    async with open_bus(echo(id="echo-1"), echo(id="echo-2")) as bus:
        sent = [await bus.send("echo-2", f"{number}") for number in range(4)]
        assert {(await it.receipt()).by for it in sent} == {"echo-2"}


async def test_the_same_key_with_the_same_content_is_the_same_handoff(
    open_bus: Any, echo: Any
) -> None:
    async with open_bus(echo()) as bus:
        first = await bus.send("echo", "x", key="one")
        await first.result()
        again = await bus.send("echo", "x", key="one")
        assert again.handoff_id == first.handoff_id
        assert await again.result() == await first.result()
        assert (await bus.send("echo", "x", key="two")).handoff_id != first.handoff_id


async def test_the_same_key_with_other_content_is_a_conflict(open_bus: Any, echo: Any) -> None:
    async with open_bus(echo()) as bus:
        first = await bus.send("echo", "x", key="one")
        with pytest.raises(ConflictError, match=r"another body: .* another id or key") as caught:
            await bus.send("echo", "y", key="one")
        assert (caught.value.handoff_id, caught.value.differing) == (first.handoff_id, ("body",))
        assert (await first.result()).summary == "x"


async def test_many_senders_of_one_key_send_one_handoff(
    open_bus: Any, echo: Any, read_kinds: Any
) -> None:
    results: list[TaskResult] = []

    async with open_bus(echo()) as bus:

        async def ask() -> None:
            results.append(await (await bus.send("echo", "x", key="one")).result())

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        one = await bus.send("echo", "x", key="one")
        assert await read_kinds(bus, one) == ["sent", "delivered", "accepted", "settled"]
    assert [it.summary for it in results] == ["x"] * 20


async def test_a_message_that_is_wrong_is_refused_before_it_is_sent(open_bus: Any) -> None:
    async with open_bus() as bus:
        with pytest.raises(InvalidMessageError) as caught:
            await bus.send("echo", Dispatch(brief=" "), task="seven")
        assert {it.path for it in caught.value.violations} == {"$.body.brief", "$.task"}
        for to in ("a.b", "a b", "*", ">", "", "x" * 65, "ä", "echo\n"):
            with pytest.raises(InvalidMessageError, match=r"^invalid message: \$\.to: "):
                await bus.send(to, "x")
        with pytest.raises(InvalidMessageError, match=r"limit 65,536"):
            await bus.send("echo", "x" * 70_000)
        with pytest.raises(InvalidMessageError, match="surrogate"):
            await bus.send("echo", "half \ud800")
        assert len(bus.client.lines) == 0


async def test_gather_gives_results_in_the_order_of_its_arguments(open_bus: Any) -> None:
    agent, turns = Agent("echo", slots=3), [anyio.Event() for _ in range(3)]
    turns[2].set()

    @agent.handles
    async def answer(task: Dispatch, ctx: Context) -> TaskResult:
        number = int(task.brief)
        await turns[number].wait()
        turns[number - 1].set()
        return TaskResult.passed(what=task.brief)

    async with open_bus(agent) as bus:
        sent = [await bus.send("echo", str(number)) for number in range(3)]
        assert [it.summary for it in await gather(*sent)] == ["0", "1", "2"]
        assert await gather() == []


async def test_gather_raises_every_bounce_once_all_lines_have_ended(open_bus: Any) -> None:
    agent = Agent("picky", slots=4)

    @agent.handles
    async def answer(task: Dispatch, ctx: Context) -> TaskResult:
        if task.brief.startswith("bad"):
            raise Refuse(f"I do not do {task.brief}")
        return TaskResult.passed(what=task.brief)

    async with open_bus(agent) as bus:
        sent = [await bus.send("picky", brief) for brief in ("good", "bad 1", "fine", "bad 2")]
        with pytest.raises(ExceptionGroup, match="2 of 4 handoffs gave no result") as caught:
            await gather(*sent)
        reasons = [it.receipt.reason for it in caught.value.exceptions if isinstance(it, Bounced)]
        assert reasons == ["I do not do bad 1", "I do not do bad 2"]
        assert (await sent[2].result()).summary == "fine"


async def test_no_server_is_said_with_the_address_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impatient = partial(connect, connect_timeout=0.5)
    monkeypatch.setattr("batonbus.run.client.connect", impatient)
    port = free_port()
    bus = Bus(f"nats://user:secret@127.0.0.1:{port}")
    with pytest.raises(BusUnavailableError, match=f"127.0.0.1:{port} .*batonbus up") as caught:
        async with bus:
            raise AssertionError("nobody is there")
    assert "secret" not in str(caught.value)
    with pytest.raises(RuntimeError, match="async with"):
        _ = bus.client


async def test_a_fleet_without_any_keeper_is_said_so(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bus() as bus:
        monkeypatch.setattr("batonbus.run.client.HELLO_PATIENCE", 0.3)
        with pytest.raises(BusUnavailableError, match="no receipt keeper of the fleet 'other'"):
            async with Bus(bus.server.url, fleet="other"):
                raise AssertionError("nobody is there")


async def test_an_error_in_the_block_comes_out_as_it_is(open_bus: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_bus():
            _ = 1 / 0
    async with open_bus() as outer:
        with pytest.raises(KeyError):
            async with Bus(outer.server.url):
                raise KeyError("mine")


async def test_two_fleets_on_one_server_do_not_hear_each_other(open_bus: Any, echo: Any) -> None:
    settings = Settings(receipt_timeout=0.5)
    async with open_bus(echo()) as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(run_receipt_keeper, bus.server.url, "other", settings)
        async with Bus(bus.server.url, fleet="other") as other:
            receipt = await (await other.send("echo", "x")).receipt()
        tasks.cancel_scope.cancel()
    assert receipt.state == "overdue"
    assert "window manager has not delivered it" in receipt.reason


async def test_a_promised_receipt_that_does_not_come_is_an_error_with_help(
    open_bus: Any, quick: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonbus.run.sent.RECEIPT_MARGIN", 0.0)
    monkeypatch.setattr("batonbus.run.receipt_keeper.judge", lambda *_args, **_options: None)
    async with open_bus(settings=quick) as bus:
        sent = await bus.send("nobody", "x")
        with pytest.raises(NoAnswerError, match=r"within 0.7 s.*is a receipt keeper running\?"):
            await sent.receipt()


async def test_a_key_needs_a_named_actor(open_bus: Any) -> None:
    async with open_bus() as bus, Bus(bus.server.url) as nameless:
        with pytest.raises(ValueError, match="actor"):
            await nameless.send("reviewer", "x", key="once")
