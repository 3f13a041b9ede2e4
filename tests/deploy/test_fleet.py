"""A fleet at work on the deployed server, every process with its own password."""

from typing import Any

import anyio
import nats
import pytest

from batonbus import Agent, Bus, Context
from batonbus.run.bus import serve
from batonbus.run.client import open_client
from batonbus.run.core import open_operator
from batonbus.run.inbox import Inbox
from batonbus.testing import FAST, run_receipt_keeper, run_window_manager
from batonbus_schemas import Dispatch, Question, Receipt, TaskResult, encode
from batonbus_schemas.envelope import Settlement

pytestmark = pytest.mark.anyio

FLEET = "default"


def make_agents() -> list[Agent]:
    researcher, coder = Agent("researcher", id="researcher"), Agent("coder", id="worker-code")

    @researcher.handles
    async def research(task: Dispatch, ctx: Context) -> TaskResult:
        body = Dispatch(brief=f"code what {task.brief} needs", ref_cache=task.ref_cache)
        answer = await (await ctx.send("coder", body)).result()
        assert answer.ref_cache == task.ref_cache
        return TaskResult.passed(what=f"asked the coder: {answer.summary}")

    @coder.handles
    async def code(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult(
            status="PASS", summary=f"done: {task.brief}", ref_cache=dict(task.ref_cache)
        )

    return [researcher, coder]


async def test_agents_work_for_an_operator_and_for_each_other(server: Any) -> None:
    operator = server.url("operator")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_window_manager, operator, FLEET, FAST)
            tasks.start_soon(run_receipt_keeper, operator, FLEET, FAST)
            for agent in make_agents():
                tasks.start_soon(serve, agent, server.url(agent.card.id))
            async with Bus(operator, actor="operator") as bus:
                guides = {f"guide-{it}": f"{it} is long.\n" * 8000 for it in range(3)}
                body = Dispatch(brief="the task", ref_cache=guides)
                sent = await bus.send("researcher", body)
                assert (await sent.receipt()).state == "accepted"
                result = await sent.result()
            tasks.cancel_scope.cancel()
    assert result.summary == "asked the coder: done: code what the task needs"
    assert server.refusals() == []


async def test_a_waiter_believes_the_ledger_and_not_what_it_hears(
    server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent may publish its own events for any handoff: void in the ledger, heard by whoever
    waits all the same."""
    coder = Agent("coder", id="worker-code")
    go_on = anyio.Event()

    @coder.handles
    async def code(task: Dispatch, ctx: Context) -> TaskResult:
        await go_on.wait()
        return TaskResult.passed(what="true")

    operator = server.url("operator")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_window_manager, operator, FLEET, FAST)
            tasks.start_soon(run_receipt_keeper, operator, FLEET, FAST)
            tasks.start_soon(serve, coder, server.url("worker-code"))
            async with Bus(operator, actor="operator") as bus:
                sent = await bus.send("coder", "the task")
                await sent.receipt()
                client = await nats.connect(server.url("tester"), inbox_prefix="_INBOX_tester")
                forged = Settlement(result=TaskResult.passed(what="forged"))
                claim = Receipt(handoff_id=sent.handoff_id, state="accepted", by="tester")
                for kind, body in (("accepted", claim), ("settled", forged)):
                    subject = f"{FLEET}.handoff.{sent.handoff_id}.{kind}.adhoc.tester.operator"
                    await client.publish(subject, encode(body))
                await client.flush()
                await client.close()
                while caplog.text.count("security.unconfirmed_answer") < 2:  # noqa: ASYNC110 - a log
                    await anyio.sleep(0.01)
                go_on.set()
                result = await sent.result()
            tasks.cancel_scope.cancel()
    assert result.summary == "true"


async def test_a_person_answers_with_the_operators_password(server: Any) -> None:
    operator = server.url("operator")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_window_manager, operator, FLEET, FAST)
            tasks.start_soon(run_receipt_keeper, operator, FLEET, FAST)
            async with (
                Bus(server.url("sender"), actor="sender") as bus,
                open_operator(operator, fleet=FLEET) as core,
                open_client(operator, "person-ada", fleet=FLEET) as person,
            ):
                sent = await bus.send("lead", Question(text="Ship it?"))
                inbox = Inbox(core)
                while not (waiting := await inbox.read("lead")):  # noqa: ASYNC110 - read from outside
                    await anyio.sleep(0.02)
                assert [it.chain.id for it in waiting] == [sent.handoff_id]
                await inbox.answer(sent.handoff_id, TaskResult.passed("yes"), person)
                assert (await sent.result()).text == "yes"
                assert (await sent.receipt()).by == "person-ada"
            tasks.cancel_scope.cancel()
    assert server.refusals() == []
