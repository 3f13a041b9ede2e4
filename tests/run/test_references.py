"""Long contents of a ref-cache on a real bus: stored once, referred to, and given to the handler as
if they had been inline."""

import hashlib
from typing import Any

import anyio
import msgspec
import pytest

from batonbus import (
    Agent,
    Bounced,
    Bus,
    ConflictError,
    Context,
    ObjectError,
    ReferenceTooLargeError,
    TestBus,
)
from batonbus.run.asking import ask_content, ask_store
from batonbus.run.bus import DEFAULT_FLEET, sender_key
from batonbus.run.core import open_operator
from batonbus.run.references import CACHE_LIMIT, References
from batonbus.testing import FAST, run_receipt_keeper
from batonbus.wire.connection import ServiceError
from batonbus.wire.ledger import Draft
from batonbus.wire.subjects import objects_bucket
from batonbus_schemas import (
    Delivery,
    Dispatch,
    Envelope,
    InvalidMessageError,
    Settlement,
    TaskResult,
    Then,
    decode,
    encode,
)
from batonbus_schemas.xml import read_dispatch

pytestmark = pytest.mark.anyio

BUCKET = objects_bucket(DEFAULT_FLEET)
STREAM = f"KV_{BUCKET}"


def text(name: str, length: int) -> str:
    return f"The {name} of this house, é.\n" * (length // 26)


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def reference(content: str) -> str:
    return f"object:sha256-{digest(content)}"


def reader(**options: Any) -> tuple[Agent, list[tuple[Dispatch, Context]]]:
    """An agent, and what its handler was given."""
    agent, seen = Agent("reader", **options), list[tuple[Dispatch, Context]]()

    @agent.handles
    async def read(task: Dispatch, ctx: Context) -> TaskResult:
        seen.append((task, ctx))
        return TaskResult.passed(what="read")

    return agent, seen


async def count(bus: TestBus) -> int:
    """Contents that were ever stored."""
    data = await bus.client.connection.api(f"STREAM.INFO.{STREAM}")
    last: int = msgspec.json.decode(data)["state"]["last_seq"]
    return last


async def delete(bus: TestBus) -> None:
    """All contents, as only an operator may."""
    await bus.client.connection.api(f"STREAM.PURGE.{STREAM}")


async def test_a_ref_cache_of_300_kb_reaches_the_handler_whole(
    open_bus: Any, read_delivery: Any
) -> None:
    agent, seen = reader()
    cache = {f"guide-{number}": text(f"guide {number}", 30_000) for number in range(10)}
    assert sum(map(len, cache.values())) > 299_000
    cache["short"] = "as it is"
    async with open_bus(agent) as bus:
        sent = await bus.send("reader", Dispatch(brief="x", ref_cache=cache))
        await sent.result()
        delivery: Delivery = await read_delivery(bus, sent.handoff_id)
    (task, ctx), *_ = seen
    assert task.ref_cache == cache
    assert ctx.envelope.body == task
    assert ctx.text.endswith("- guide-9\n- short")
    assert len(ctx.text) < 500
    assert isinstance(delivery.envelope.body, Dispatch)
    assert len(encode(delivery)) < 4_000
    assert delivery.envelope.body.ref_cache["guide-1"] == reference(cache["guide-1"])
    assert delivery.envelope.body.ref_cache["short"] == "as it is"


async def test_who_reads_xml_has_the_contents_in_the_text_beyond_its_budget(open_bus: Any) -> None:
    agent, seen = reader(text_form="xml")
    cache = {"style": text("style", 40_000)}
    async with open_bus(agent) as bus:
        await (await bus.send("reader", Dispatch(brief="x", ref_cache=cache))).result()
    assert read_dispatch(seen[0][1].text).value.body.ref_cache == cache


async def test_the_same_content_of_twenty_dispatches_is_stored_once(open_bus: Any) -> None:
    agent, seen = reader()
    style = text("style", 100_000)
    async with open_bus(agent) as bus, Bus(bus.server.url, actor="other") as other:
        sent = []
        for number in range(10):
            for sender in (bus, other):
                body = Dispatch(brief=f"Part {number}", ref_cache={f"key-{number}": style})
                sent.append(await sender.send("reader", body))
        for it in sent:
            await it.result()
        assert await count(bus) == 1
    assert [it for task, _ in seen for it in task.ref_cache.values()] == [style] * 20


async def test_a_result_and_what_is_handed_on_have_their_contents_too(
    open_bus: Any, read_events: Any
) -> None:
    first, (last, seen) = Agent("first"), reader()
    log, style = text("log", 90_000), text("style", 90_000)

    @first.handles
    async def work(task: Dispatch, ctx: Context) -> Then:
        result = TaskResult(status="PASS", summary="x", ref_cache={"log": log})
        return result.then("asker", Dispatch(brief="next", ref_cache={"style": style}))

    asker = Agent("asker")

    @asker.handles
    async def ask(task: Dispatch, ctx: Context) -> TaskResult:
        sent = await ctx.send("reader", Dispatch(brief="read", ref_cache=task.ref_cache))
        await sent.result()
        return TaskResult(status="PASS", summary="y", ref_cache={"log": log})

    async with open_bus(first, asker, last) as bus:
        sent = await bus.send("first", "x")
        result = await sent.result()
        events = await read_events(bus, sent.handoff_id)
        assert await count(bus) == 2
    assert result.ref_cache == {"log": log}
    assert seen[0][0].ref_cache == {"style": style}
    settled = decode(events[-1].payload, Settlement)
    assert settled.result.ref_cache == {"log": reference(log)}


async def test_the_same_key_is_the_same_handoff_whichever_side_has_the_content_inline(
    open_bus: Any,
) -> None:
    """Another client, in another language, need not know of references."""
    agent, seen = reader()
    style = text("style", 20_000)
    body = Dispatch(brief="x", ref_cache={"style": style})
    handoff_id = sender_key("test", "one")
    inline = Envelope(id=handoff_id, sender="test", to="reader", body=body, reply_to="test")
    async with open_bus(agent) as bus:
        draft = Draft(
            subject=bus.client.subject(handoff_id, "sent", "adhoc", "reader"),
            payload=encode(inline),
            waiter="test",
            addressee="reader",
        )
        await bus.client.ledger.append(draft, tail=0)
        sent = await bus.send("reader", body, key="one")
        assert sent.handoff_id == handoff_id
        await sent.result()
        again = await bus.send("reader", body, key="two")
        assert (await bus.send("reader", body, key="two")).handoff_id == again.handoff_id
        other = Dispatch(brief="x", ref_cache={"style": style + "!"})
        for key in ("one", "two"):
            with pytest.raises(ConflictError, match="another body"):
                await bus.send("reader", other, key=key)
    assert seen[0][0] == body


async def test_a_content_that_is_missing_fails_the_attempt_and_says_which(
    open_bus: Any, bounce: Any
) -> None:
    agent, seen = reader()
    style = text("style", 20_000)
    async with open_bus() as bus:
        sent = await bus.send("reader", Dispatch(brief="x", ref_cache={"style": style}))
        await delete(bus)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, agent)
            bounced: Bounced = await bounce(sent)
            tasks.cancel_scope.cancel()
    assert bounced.receipt.state == "dead"
    reason = bounced.receipt.reason or ""
    assert "ObjectError" in reason
    assert f"reference 'style' ({reference(style)}) is not in the object store" in reason
    assert seen == []


async def test_a_content_that_is_not_what_its_hash_says_never_reaches_a_handler(
    open_bus: Any, bounce: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Only an operator could write it there."""
    agent, seen = reader()
    style = text("style", 20_000)
    async with open_bus() as bus:
        async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
            await core.objects.put(digest(style), b"forged")
        sent = await bus.send("reader", Dispatch(brief="x", ref_cache={"style": style}))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, agent)
            bounced: Bounced = await bounce(sent)
            tasks.cancel_scope.cancel()
    assert "is stored as 6 bytes of another content" in (bounced.receipt.reason or "")
    assert "security.foreign_object" in caplog.text
    assert seen == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff" * 2000, "is no UTF-8"),
        (b"password = 'hunter2hunter2'\n" * 80, "may not travel: $.ref_cache['style']"),
    ],
    ids=["bytes", "a secret"],
)
async def test_a_content_that_no_message_could_have_held_never_reaches_a_handler(
    open_bus: Any, bounce: Any, content: bytes, problem: str
) -> None:
    """Whoever stores by hand can store anything; the window manager sees the reference alone."""
    agent, seen = reader()
    name = hashlib.sha256(content).hexdigest()
    async with open_bus(agent) as bus:
        await ask_store(bus.client.connection, DEFAULT_FLEET, content)
        body = Dispatch(brief="x", ref_cache={"style": f"object:sha256-{name}"})
        bounced: Bounced = await bounce(await bus.send("reader", body))
    assert problem in (bounced.receipt.reason or "")
    assert "hunter2" not in (bounced.receipt.reason or "")
    assert seen == []


async def test_what_may_not_be_sent_is_not_stored(open_bus: Any, bounce: Any) -> None:
    secret = "password = 'hunter2hunter2'\n" * 80
    teller = Agent("teller")

    @teller.handles
    async def tell(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult(status="PASS", summary="x", ref_cache={"log": secret})

    async with open_bus(teller) as bus:
        with pytest.raises(InvalidMessageError, match="ref_cache"):
            await bus.send("teller", Dispatch(brief="x", ref_cache={"log": secret}))
        with pytest.raises(InvalidMessageError, match="surrogate"):
            await bus.send("teller", Dispatch(brief="x", ref_cache={"log": "\ud800" * 2000}))
        with pytest.raises(ReferenceTooLargeError, match="'log' has 1,000,001 bytes"):
            await bus.send("teller", Dispatch(brief="x", ref_cache={"log": "x" * 1_000_001}))
        assert await count(bus) == 0
        result = await (await bus.send("teller", "x")).result()
    assert len(result.ref_cache["log"]) > 1000
    assert "hunter2" not in result.ref_cache["log"]


async def test_a_keeper_gives_a_content_to_whoever_says_its_hash_and_to_nobody_else(
    open_bus: Any,
) -> None:
    async with open_bus() as bus:
        connection = bus.client.connection
        await ask_store(connection, DEFAULT_FLEET, b"content")
        name = hashlib.sha256(b"content").hexdigest()
        assert await ask_content(connection, DEFAULT_FLEET, name) == b"content"
        assert await ask_content(connection, DEFAULT_FLEET, "0" * 64) is None
        for guess in ("*", ">", "", name[:-1] + "*"):
            with pytest.raises(ServiceError, match="cannot stand in a subject"):
                await ask_content(connection, DEFAULT_FLEET, guess)


async def test_a_process_keeps_what_it_used_last(
    open_bus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonbus.run.references.CACHE_LIMIT", 50_000)
    assert CACHE_LIMIT > 10_000_000
    one, two, three = (
        Dispatch(brief="x", ref_cache={"it": text(name, 20_000)}) for name in ("one", "two", "six")
    )
    async with open_bus() as bus:
        references = References(bus.client.connection, DEFAULT_FLEET)
        short = [await references.store(it) for it in (one, two, three)]
        await delete(bus)
        assert await references.restore(short[1]) == two
        assert await references.restore(short[2]) == three
        with pytest.raises(ObjectError, match="is not in the object store"):
            await references.restore(short[0])


async def test_a_bus_that_is_away_is_waited_for(
    open_bus: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It spends no attempt: nobody says that the content is missing."""
    body = Dispatch(brief="x", ref_cache={"style": text("style", 20_000)})
    shortened: list[Dispatch] = []
    async with open_bus() as bus:
        writer, other = (References(bus.client.connection, "later") for _ in range(2))

        async def store() -> None:
            shortened.append(await writer.store(body))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store)
            while "object.unanswered" not in caplog.text:  # noqa: ASYNC110 - a log
                await anyio.sleep(0.01)
            tasks.start_soon(run_receipt_keeper, bus.server.url, "later", FAST)
            while not shortened:  # noqa: ASYNC110 - a task's result
                await anyio.sleep(0.01)
            assert await other.restore(shortened[0]) == body
            tasks.cancel_scope.cancel()
