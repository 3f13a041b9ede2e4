"""What the window manager refuses: each sender is told at once, with everything that is wrong."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import anyio
import msgspec
import pytest

from batonbus import Agent, Context, Sent, Settings, TestBus
from batonbus.rules.chain import WINDOW_MANAGER, child_id
from batonbus.run.client import open_client
from batonbus.run.lines import Line
from batonbus.testing import FAST
from batonbus.wire.ledger import Draft
from batonbus.wire.subjects import Subject
from batonbus_schemas import (
    Dispatch,
    Envelope,
    HandoffV1,
    Parent,
    Question,
    TaskResult,
    Then,
    encode,
)

pytestmark = pytest.mark.anyio

Publish = Callable[..., Awaitable[Sent]]


@pytest.fixture
def publish() -> Publish:
    """Store any bytes as the `sent` event of a handoff: as a foreign sender may do."""

    async def store(
        bus: TestBus,
        payload: bytes,
        *,
        handoff_id: UUID,
        to: str = "nobody",
        actor: str = "test",
        work: str = "adhoc",
        accepted: int | None = None,
    ) -> Sent:
        line = Line(handoff_id)
        bus.client.lines.watch(line)
        draft = Draft(
            subject=Subject(bus.client.fleet, handoff_id, "sent", work, actor, to),
            payload=payload,
            accepted=accepted,
            waiter="test",
            addressee=to,
        )
        await bus.client.ledger.append(draft, tail=0)
        return Sent(bus.client, line)

    return store


def document(**changes: Any) -> dict[str, Any]:
    """A small contract v1 document."""
    return {
        "version": "1.0",
        "handoff_id": str(uuid4()),
        "from_agent": {"agent_id": "hermes-1", "runtime": "hermes"},
        "to_agent": {"agent_id": "coder", "expected_capabilities": []},
        "objective": {"goal": "Make it work"},
        "bundle": {},
        **changes,
    }


def envelope(**changes: Any) -> Envelope:
    defaults = {"id": uuid4(), "sender": "test", "to": "nobody", "body": Dispatch(brief="x")}
    return Envelope(**(defaults | changes))


def worker(role: str, **options: Any) -> Agent:
    agent = Agent(role, **options)

    @agent.handles
    async def work(task: Dispatch | HandoffV1, ctx: Context) -> TaskResult:
        return TaskResult.passed(what="done")

    return agent


async def test_an_invalid_contract_is_refused_with_all_its_violations(
    open_bus: Any, publish: Publish, bounce: Any
) -> None:
    bad = document(
        version="2.0",
        from_agent={"agent_id": " ", "runtime": "emacs"},
        objective={"goal": "x" * 501, "acceptance_criteria": ["y"] * 11},
        bundle={"progress": {"summary": "z" * 1001}},
    )
    async with open_bus() as bus:
        sent = await publish(bus, json.dumps(bad).encode(), handoff_id=UUID(bad["handoff_id"]))
        receipt = await sent.receipt()
        error = await bounce(sent)
    assert (receipt.state, receipt.by) == ("refused", WINDOW_MANAGER)
    assert receipt.reason == "the message is not valid"
    assert {it.path for it in receipt.violations} == {
        "$.version",
        "$.from_agent.agent_id",
        "$.from_agent.runtime",
        "$.objective.goal",
        "$.objective.acceptance_criteria",
        "$.bundle.progress.summary",
    }
    assert error.receipt == receipt
    assert "500" in str(error)


async def test_what_is_no_json_and_what_is_no_handoff_is_refused(
    open_bus: Any, publish: Publish
) -> None:
    async with open_bus() as bus:
        for payload in (b"", b"hello", b"\xff\xfe", b"[]", b'{"id":1}', b"{" * 3_000):
            sent = await publish(bus, payload, handoff_id=uuid4())
            receipt = await sent.receipt()
            assert receipt.state == "refused", payload
            assert receipt.violations, payload


async def test_a_refusal_is_found_by_asking_too(
    open_bus: Any, publish: Publish, bounce: Any
) -> None:
    """The message to the waiter is lost; the stored handoff cannot even be read as one."""
    async with open_bus() as bus:
        bus.client.lines.hear = lambda _stored: None
        error = await bounce(await publish(bus, b"hello", handoff_id=uuid4()))
    assert error.receipt.state == "refused"


async def test_a_raw_contract_reaches_an_agent_and_the_envelope_is_made_for_it(
    open_bus: Any, publish: Publish
) -> None:
    deadline = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    raw = document(extra={"kept": True}, bundle={"constraints": {"deadline": deadline}})
    seen: list[tuple[HandoffV1, Context]] = []
    agent = Agent("coder")

    @agent.handles
    async def work(handoff: HandoffV1, ctx: Context) -> TaskResult:
        seen.append((handoff, ctx))
        return TaskResult.passed(what=handoff.contract.objective.goal)

    async with open_bus(agent) as bus:
        handoff_id = UUID(raw["handoff_id"])
        sent = await publish(bus, json.dumps(raw).encode(), handoff_id=handoff_id, to="coder")
        assert (await sent.result()).summary == "Make it work"
    body, ctx = seen[0]
    assert body.document == raw
    assert (ctx.envelope.id, ctx.envelope.sender) == (handoff_id, "test")
    assert ctx.deadline == datetime.fromisoformat(deadline)
    assert "Make it work" in ctx.text


async def test_a_contract_and_an_agent_that_does_not_take_it_are_told_apart(
    open_bus: Any, bounce: Any
) -> None:
    plain, contracts = Agent("plain"), Agent("contracts")

    @plain.handles
    async def take_dispatch(task: Dispatch, ctx: Context) -> TaskResult:
        raise AssertionError("is not called")

    @contracts.handles
    async def take_contract(task: HandoffV1, ctx: Context) -> TaskResult:
        raise AssertionError("is not called")

    async with open_bus(plain, contracts) as bus:
        one = await bounce(await bus.send("plain", HandoffV1(document())))
        two = await bounce(await bus.send("contracts", "please"))
    assert (one.receipt.state, two.receipt.state) == ("refused", "refused")
    assert one.receipt.reason == "takes Dispatch, not HandoffV1"
    assert two.receipt.reason == "takes HandoffV1, not Dispatch"


async def test_a_capability_that_no_listening_agent_declares_is_named(
    open_bus: Any, bounce: Any
) -> None:
    needs = document(to_agent={"agent_id": "coder", "expected_capabilities": ["code", "review"]})
    async with open_bus(worker("coder", capabilities=("code", "test"))) as bus:
        await (await bus.send("coder", "are you there?")).result()
        error = await bounce(await bus.send("coder", HandoffV1(needs)))
    assert error.receipt.state == "refused"
    (violation,) = error.receipt.violations
    assert violation.path == "$.body.document.to_agent.expected_capabilities"
    assert "declares review" in violation.problem
    assert "code, test" in violation.problem


async def test_a_handoff_goes_to_the_agent_that_has_what_it_expects(open_bus: Any) -> None:
    needs = document(to_agent={"agent_id": "coder", "expected_capabilities": ["review"]})
    able, plain = worker("coder", id="able", capabilities=("review",)), worker("coder", id="plain")
    async with open_bus(able, plain) as bus:
        for number in range(2):
            body = HandoffV1(needs | {"handoff_id": str(uuid4()), "number": number})
            sent = await bus.send("coder", body)
            await sent.result()
            assert (await sent.receipt()).by == "able"


async def test_a_deadline_that_has_passed_is_refused(open_bus: Any, bounce: Any) -> None:
    async with open_bus(worker("coder")) as bus:
        late = datetime.now(UTC) - timedelta(seconds=90)
        error = await bounce(await bus.send("coder", "x", deadline=late))
    assert error.receipt.state == "refused"
    (violation,) = error.receipt.violations
    assert violation.path == "$.deadline"
    assert "passed 9" in violation.problem


async def test_a_deadline_that_was_inherited_and_has_passed_is_refused(
    open_bus: Any, bounce: Any
) -> None:
    """The next step of a line does not start, nor does what a handler asks for."""
    first, asked = Agent("builder"), []
    # Its own deadline leaves the handler a heartbeat, and that is long here.
    patient = msgspec.structs.replace(FAST, heartbeat=5.0)
    soon = datetime.now(UTC) + timedelta(seconds=1)

    @first.handles
    async def work(task: Dispatch, ctx: Context) -> Then:
        assert ctx.deadline == soon
        await anyio.sleep((soon - datetime.now(UTC)).total_seconds() + 0.05)  # the work itself
        asked.append(await bounce(await ctx.send("coder", "help me")))
        return TaskResult.passed(what="built, late").then("coder", "go on")

    async with open_bus(first, worker("coder"), settings=patient) as bus:
        sent = await bus.send("builder", "x", deadline=soon)
        error = await bounce(sent)
    assert error.receipt.handoff_id == child_id(sent.handoff_id)
    for it in (error, *asked):
        assert it.receipt.state == "refused"
        assert [it.path for it in it.receipt.violations] == ["$.deadline"]


async def test_a_fourth_attempt_is_refused(open_bus: Any, bounce: Any) -> None:
    async with open_bus(worker("coder")) as bus:
        error = await bounce(await bus.send_envelope(envelope(to="coder", attempt=4)))
        third = await bus.send_envelope(envelope(to="coder", attempt=3))
        await third.result()
        assert (await third.receipt()).attempt == 3
    assert error.receipt.state == "refused"
    assert [it.path for it in error.receipt.violations] == ["$.attempt"]


async def test_a_sender_that_is_not_the_actor_is_refused(
    open_bus: Any, publish: Publish, bounce: Any
) -> None:
    async with open_bus(worker("coder")) as bus:
        forged = envelope(sender="boss", to="coder")
        elsewhere = envelope(to="committer")
        for it, path in ((forged, "$.sender"), (elsewhere, "$.to")):
            error = await bounce(await publish(bus, encode(it), handoff_id=it.id, to="coder"))
            assert error.receipt.state == "refused"
            assert [it.path for it in error.receipt.violations] == [path]
        error = await bounce(await publish(bus, encode(envelope()), handoff_id=uuid4()))
        assert [it.path for it in error.receipt.violations] == ["$.id"]


async def test_parents_are_the_buss_to_fill(open_bus: Any, bounce: Any) -> None:
    parents = (Parent(handoff_id=uuid4(), sequence=1),)
    async with open_bus() as bus:
        for it in (envelope(stage_parents=parents), envelope(task_parents=parents)):
            error = await bounce(await bus.send_envelope(it))
            assert error.receipt.state == "refused"
            assert "name handoffs in `after`" in error.receipt.violations[0].problem


async def test_after_takes_only_settled_handoffs(open_bus: Any, bounce: Any) -> None:
    async with open_bus() as bus:
        open_one = await bus.send("nobody", "x")
        unknown = uuid4()
        sent = await bus.send_envelope(envelope(after=(open_one.handoff_id, unknown)))
        error = await bounce(sent)
    assert error.receipt.state == "refused"
    assert {it.path for it in error.receipt.violations} == {"$.after"}
    problems = [it.problem for it in error.receipt.violations]
    assert problems == [
        f"handoff {it} is not settled: await its result first"
        for it in (open_one.handoff_id, unknown)
    ]


async def test_after_takes_only_what_was_answered_to_its_sender_in_the_same_work(
    open_bus: Any, bounce: Any
) -> None:
    async with (
        open_bus(worker("coder")) as bus,
        open_client(bus.server.url, "stranger", fleet="default") as stranger,
    ):
        mine = await bus.send("coder", "x", work="one")
        await mine.result()
        theirs = envelope(sender="stranger", work="one", after=(mine.settled_id,))
        foreign = await bounce(Sent(stranger, await stranger.send(theirs)))
        other_work = await bounce(await bus.send("coder", "y", work="two", after=[mine]))
        same_work = await (await bus.send("coder", "y", work="one", after=[mine])).result()
    assert "was not answered to stranger" in foreign.receipt.violations[0].problem
    assert "is not of work two" in other_work.receipt.violations[0].problem
    assert same_work.status == "PASS"


async def test_a_send_under_a_lease_that_its_sender_does_not_hold_is_refused(
    open_bus: Any, publish: Publish, bounce: Any, read_events: Any
) -> None:
    async with open_bus(worker("coder")) as bus:
        over = await bus.send("coder", "x")
        await over.result()
        accepted = (await read_events(bus, over.handoff_id))[2].event.sequence
        it = envelope(within=over.handoff_id)
        stale = await publish(bus, encode(it), handoff_id=it.id, accepted=accepted)
        assert "did not own handoff" in (await bounce(stale)).receipt.reason
        none = await publish(bus, encode(envelope()), handoff_id=uuid4(), accepted=1)
        assert (await bounce(none)).receipt.state == "refused"
        said = await bus.send_envelope(envelope(within=over.handoff_id))
        assert "names no accepted event" in (await bounce(said)).receipt.reason


async def test_a_message_over_the_limit_is_refused_by_the_bus_as_well(
    open_bus: Any, publish: Publish, bounce: Any
) -> None:
    big = envelope(body=Dispatch(brief="x" * 70_000))
    async with open_bus() as bus:
        error = await bounce(await publish(bus, msgspec.json.encode(big), handoff_id=big.id))
    assert error.receipt.state == "refused"
    assert "limit 65,536" in error.receipt.violations[0].problem


async def test_a_next_handoff_that_is_not_admitted_bounces_to_the_first_sender(
    open_bus: Any, bounce: Any
) -> None:
    first, second = Agent("builder"), worker("coder", capabilities=("code",))
    needs = document(to_agent={"agent_id": "coder", "expected_capabilities": ["fly"]})

    @first.handles
    async def work(task: Dispatch, ctx: Context) -> Then:
        return TaskResult.passed(what="built").then("coder", HandoffV1(needs))

    async with open_bus(first, second) as bus:
        await (await bus.send("coder", "are you there?")).result()
        sent = await bus.send("builder", "x")
        error = await bounce(sent)
        assert (await sent.receipt()).state == "accepted"
    assert error.receipt.handoff_id == child_id(sent.handoff_id)
    assert "declares fly" in error.receipt.violations[0].problem


async def test_a_refused_handoff_is_refused_once_and_never_delivered(
    open_bus: Any, read_kinds: Any, quick: Settings, echo: Any
) -> None:
    async with open_bus(echo(), settings=quick) as bus:
        late = datetime.now(UTC) - timedelta(seconds=90)
        sent = await bus.send("echo", "x", deadline=late)
        await sent.receipt()
        # Longer than the fleet's limits: nobody answers it again.
        nobody = await bus.send("nobody", "x")
        assert (await nobody.receipt()).state == "overdue"
        assert await read_kinds(bus, sent) == ["sent", "refused"]


async def test_a_question_is_delivered_like_any_other_body(open_bus: Any) -> None:
    person = Agent("person")

    @person.handles
    async def answer(question: Question, ctx: Context) -> TaskResult:
        return TaskResult.passed(what=question.options[0])

    async with open_bus(person) as bus:
        sent = await bus.send("person", Question(text="which?", options=("this", "that")))
        assert (await sent.result()).summary == "this"
