"""A person in the line: asking one, seeing what waits for one, answering as one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import anyio
import pytest

from batonbus import Agent, Bounced, ConflictError, Context, Sent, TestBus
from batonbus.rules.chain import OPERATOR
from batonbus.rules.ownership import PERSON_PREFIX
from batonbus.run.client import open_client
from batonbus.run.core import Core, open_operator
from batonbus.run.history import HandoffNotFoundError
from batonbus.run.inbox import Inbox, NotWaitingError, Waiting
from batonbus.wire.ledger import Draft
from batonbus.wire.subjects import Subject
from batonbus_schemas import Dispatch, InvalidMessageError, Question, Receipt, TaskResult, encode

pytestmark = pytest.mark.anyio

ROLE = "lead"


@asynccontextmanager
async def operator(bus: TestBus) -> AsyncGenerator[Core]:
    async with open_operator(bus.server.url, fleet="default") as core:
        yield core


async def wait_for(bus: TestBus) -> list[Waiting]:
    """What is in the inbox, as soon as something is."""
    async with operator(bus) as core:
        while not (found := await Inbox(core).read(ROLE)):  # noqa: ASYNC110 - read from outside
            await anyio.sleep(0.02)
        return found


async def answer(bus: TestBus, handoff_id: UUID, text: str, name: str = "ada") -> TaskResult:
    async with (
        operator(bus) as core,
        open_client(bus.server.url, PERSON_PREFIX + name, fleet="default") as person,
    ):
        return await Inbox(core).answer(handoff_id, TaskResult.passed(text), person)


def asker(question: str = "Ship it?", **options: Any) -> Agent:
    """An agent that passes on what the lead says, and how it was bounced."""
    agent = Agent("asker")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        try:
            return TaskResult.passed(f"{await ctx.ask(ROLE, question, **options)}")
        except Bounced as error:
            return TaskResult.failed(f"{error.receipt.state}: {error.receipt.reason}")

    return agent


async def test_an_answer_wakes_whoever_asked(open_bus: Any, read_events: Any) -> None:
    async with open_bus(asker(options=("yes", "no"))) as bus:
        sent = await bus.send("asker", "x", work="shop", task="TASK-07")
        (waiting,) = await wait_for(bus)
        assert waiting.envelope.body == Question(text="Ship it?", options=("yes", "no"))
        assert (waiting.envelope.work, waiting.envelope.task) == ("shop", "TASK-07")
        await answer(bus, waiting.chain.id, "yes")
        assert (await sent.result()).text == "yes"
        asked = [it.event for it in await read_events(bus, waiting.chain.id)]
        own = [it.event for it in await read_events(bus, sent.handoff_id)]
        async with operator(bus) as core:
            assert await Inbox(core).read(ROLE) == []
    assert [it.kind for it in asked] == ["sent", "delivered", "accepted", "settled"]
    assert [it.actor for it in asked[2:]] == ["person-ada", "person-ada"]
    accepted = [(it.attempt, it.lease) for it in own if it.kind == "accepted"]
    assert accepted == [(1, 1)]


async def test_a_question_that_nobody_listens_for_is_held_for_a_person(
    open_bus: Any, quick: Any, read_kinds: Any
) -> None:
    async with open_bus(settings=quick) as bus:
        sent = await bus.send(ROLE, Question(text="Ship it?"))
        receipt = await sent.receipt()
        assert (receipt.state, receipt.reason) == ("held", "waits for a person as lead")
        (waiting,) = await wait_for(bus)
        await answer(bus, waiting.chain.id, "yes")
        assert (await sent.result()).text == "yes"
        assert await read_kinds(bus, sent) == ["sent", "delivered", "held", "accepted", "settled"]


async def test_a_handler_that_runs_again_gets_the_stored_answer_and_asks_nothing(
    open_bus: Any, quick: Any, read_events: Any
) -> None:
    agent, answers, answered = Agent("asker", id="asker-1"), [], anyio.Event()

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        answers.append(await ctx.ask(ROLE, "Ship it?"))
        if len(answers) == 1:
            answered.set()
            await anyio.sleep_forever()
        return TaskResult.passed(answers[-1])

    async with open_bus(settings=quick) as bus:
        async with anyio.create_task_group() as first_life:
            first_life.start_soon(bus.run, agent)
            sent = await bus.send("asker", "x")
            (waiting,) = await wait_for(bus)
            await answer(bus, waiting.chain.id, "yes")
            await answered.wait()
            first_life.cancel_scope.cancel()
        async with anyio.create_task_group() as second_life:
            second_life.start_soon(bus.run, agent)
            assert (await sent.result()).text == "yes"
            second_life.cancel_scope.cancel()
        own = [it.event for it in await read_events(bus, sent.handoff_id)]
        asked = [it.event.kind for it in await read_events(bus, waiting.chain.id)]
    assert answers == ["yes", "yes"]
    assert (asked.count("sent"), asked.count("settled")) == (1, 1)
    accepted = [(it.attempt, it.lease) for it in own if it.kind == "accepted"]
    assert accepted == [(1, 1), (1, 2)]


async def test_two_questions_to_one_role_are_two_and_the_same_one_is_one(open_bus: Any) -> None:
    agent = Agent("asker")

    @agent.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        one = await ctx.ask(ROLE, "One?", ("yes", "no"))
        two = await ctx.ask(ROLE, "Two?", ("yes", "no"))
        again = await ctx.ask(ROLE, "One?", ("yes", "no"))
        with pytest.raises(ConflictError, match="another body"):
            await ctx.ask(ROLE, "Three?", key=key)
        other_options = await ctx.ask(ROLE, "One?", ("now", "never"))
        return TaskResult.passed(f"{one} {two} {again} {other_options}")

    key = "\n".join(("ask", ROLE, "One?", "yes", "no"))
    async with open_bus(agent) as bus:
        sent = await bus.send("asker", "x")
        for text in ("yes", "no", "never"):
            (waiting,) = await wait_for(bus)
            await answer(bus, waiting.chain.id, text)
        assert (await sent.result()).text == "yes no yes never"


async def test_an_agent_of_the_role_answers_questions_too(open_bus: Any) -> None:
    agent = Agent(ROLE)

    @agent.handles
    async def decide(question: Question, ctx: Context) -> TaskResult:
        return TaskResult.passed(question.options[-1])

    async with open_bus(asker(options=("yes", "no")), agent) as bus:
        assert (await (await bus.send("asker", "x")).result()).text == "no"


async def test_an_agent_that_joins_later_drops_what_a_person_has_answered(
    open_bus: Any, read_events: Any
) -> None:
    agent, taken = Agent(ROLE), []

    @agent.handles
    async def decide(question: Question, ctx: Context) -> TaskResult:
        taken.append(question.text)
        return TaskResult.passed("no")

    async with open_bus() as bus, anyio.create_task_group() as tasks:
        one = await bus.send(ROLE, Question(text="One?"))
        await wait_for(bus)
        await answer(bus, one.handoff_id, "yes")
        tasks.start_soon(bus.run, agent)
        two = await bus.send(ROLE, Question(text="Two?"))
        assert ((await one.result()).text, (await two.result()).text) == ("yes", "no")
        events = [it.event for it in await read_events(bus, one.handoff_id)]
        tasks.cancel_scope.cancel()
    assert taken == ["Two?"]
    assert [it.lease for it in events if it.kind == "accepted"] == [1]


async def test_a_question_that_is_cancelled_bounces(open_bus: Any) -> None:
    async with open_bus(asker()) as bus:
        sent = await bus.send("asker", "x")
        (waiting,) = await wait_for(bus)
        await cancel(bus, waiting)
        assert (await sent.result()).text == "cancelled: not now"
        with pytest.raises(NotWaitingError, match=r"was cancelled by operator at .* UTC: not now"):
            await answer(bus, waiting.chain.id, "yes")


async def cancel(bus: TestBus, waiting: Waiting) -> None:
    chain = waiting.chain
    receipt = Receipt(handoff_id=chain.id, state="cancelled", by=OPERATOR, reason="not now")
    subject = Subject("default", chain.id, "cancelled", chain.work, OPERATOR, chain.waiter or "_")
    async with operator(bus) as core:
        draft = Draft(subject=subject, payload=encode(receipt), reason="not now")
        await core.ledger.append(draft, tail=chain.tail)


async def test_after_its_deadline_nobody_waits_for_an_answer(open_bus: Any, quick: Any) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=1.5)
    async with open_bus(asker(deadline=deadline), settings=quick) as bus:
        sent = await bus.send("asker", "x")
        (waiting,) = await wait_for(bus)
        assert waiting.envelope.deadline == deadline
        assert (await sent.result()).text.startswith("dead: ")
        with pytest.raises(NotWaitingError, match="was given up on by receipt-keeper"):
            await answer(bus, waiting.chain.id, "yes")


async def test_of_two_people_who_answer_at_once_one_is_told_that_the_other_did(
    open_bus: Any, read_events: Any
) -> None:
    refused: list[str] = []

    async def try_to(bus: TestBus, sent: Sent, name: str) -> None:
        try:
            await answer(bus, sent.handoff_id, f"{name} says so", name)
        except NotWaitingError as error:
            refused.append(str(error))

    async with open_bus() as bus:
        sent = await bus.send(ROLE, Question(text="Ship it?"))
        await wait_for(bus)
        async with anyio.create_task_group() as tasks:
            for name in ("ada", "bob", "cay"):
                tasks.start_soon(try_to, bus, sent, name)
        said = (await sent.result()).text
        events = [it.event for it in await read_events(bus, sent.handoff_id)]
    first = said.split()[0]
    assert len(refused) == 2
    assert all(f"person-{first}" in it for it in refused)
    assert [it.kind for it in events].count("settled") == 1


async def test_an_answer_that_broke_off_is_given_again(
    open_bus: Any, quick: Any, read_events: Any
) -> None:
    """Accepted, and not settled: for a moment it is that person's, then it waits as before."""
    async with open_bus(settings=quick) as bus:
        sent = await bus.send(ROLE, Question(text="Ship it?"))
        (waiting,) = await wait_for(bus)
        subject = Subject("default", sent.handoff_id, "accepted", "adhoc", "person-ada", "test")
        receipt = Receipt(handoff_id=sent.handoff_id, state="accepted", by="person-ada")
        async with operator(bus) as core:
            draft = Draft(
                subject=subject, payload=encode(receipt), attempt=1, lease=1, waiter="test"
            )
            await core.ledger.append(draft, tail=waiting.chain.tail)
            with pytest.raises(NotWaitingError, match="is person-ada's since"):
                await Inbox(core).find(sent.handoff_id)
        await wait_for(bus)
        await answer(bus, sent.handoff_id, "yes", "bob")
        assert (await sent.result()).text == "yes"
        events = [it.event for it in await read_events(bus, sent.handoff_id)]
    accepted = [(it.actor, it.attempt, it.lease) for it in events if it.kind == "accepted"]
    assert accepted == [("person-ada", 1, 1), ("person-bob", 1, 2)]


async def test_what_an_agent_works_on_is_not_in_the_inbox(open_bus: Any) -> None:
    agent, started = Agent(ROLE, id="lead-1"), anyio.Event()

    @agent.handles
    async def decide(question: Question, ctx: Context) -> TaskResult:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError("slept for ever")

    async with open_bus(agent) as bus:
        sent = await bus.send(ROLE, Question(text="Ship it?"))
        await started.wait()
        async with operator(bus) as core:
            assert await Inbox(core).read(ROLE) == []
            with pytest.raises(NotWaitingError, match="is lead-1's since"):
                await Inbox(core).find(sent.handoff_id)


async def test_a_question_of_a_handoff_that_is_cancelled_leaves_the_inbox(open_bus: Any) -> None:
    async with open_bus(asker()) as bus:
        sent = await bus.send("asker", "x")
        (waiting,) = await wait_for(bus)
        assert await sent.cancel("never mind")
        async with operator(bus) as core:
            while await Inbox(core).read(ROLE):  # noqa: ASYNC110 - read from outside
                await anyio.sleep(0.02)
            with pytest.raises(NotWaitingError, match="was cancelled by receipt-keeper"):
                await Inbox(core).find(waiting.chain.id)


async def test_an_answer_that_is_too_long_writes_nothing(open_bus: Any, read_kinds: Any) -> None:
    async with open_bus() as bus:
        sent = await bus.send(ROLE, Question(text="Ship it?"))
        await wait_for(bus)
        with pytest.raises(InvalidMessageError, match="65,536"):
            await answer(bus, sent.handoff_id, "x" * 70_000)
        assert await read_kinds(bus, sent) == ["sent", "delivered"]


async def test_an_answer_is_stored_without_secrets_and_says_so(open_bus: Any) -> None:
    secret = "postgres://user:s3cretpw@host/db"
    async with open_bus() as bus:
        sent = await bus.send(ROLE, Question(text="Where is it?"))
        await wait_for(bus)
        stored = await answer(bus, sent.handoff_id, f"At {secret}")
        assert await sent.result() == stored
    assert stored.text.startswith("At postgres://")
    assert "s3cretpw" not in stored.text


async def test_what_the_ledger_does_not_have_cannot_be_answered(open_bus: Any) -> None:
    async with open_bus() as bus, operator(bus) as core:
        with pytest.raises(HandoffNotFoundError, match="has no handoff 00000000"):
            await Inbox(core).find(UUID(int=1))


async def test_a_blank_question_is_not_sent(open_bus: Any, bounce: Any) -> None:
    async with open_bus(asker(question=" ")) as bus:
        error = await bounce(await bus.send("asker", "x"))
    assert "$.body.text" in error.receipt.reason
