"""One line of handoffs is one trace, with an SDK or without."""

from typing import Any
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batonbus import Agent, Context, Sent, TestBus
from batonbus.run.lines import Line
from batonbus.run.telemetry import read_context, span
from batonbus.wire.ledger import Draft
from batonbus_schemas import Dispatch, Envelope, TaskResult, Then, encode

pytestmark = pytest.mark.anyio

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FOREIGN = {
    "Traceparent": f"00-{TRACE}-00f067aa0ba902b7-03",
    "TraceState": "vendor=one",
    "BAGGAGE": "user=7",
    "Other": "is not carried",
}


def agents() -> list[Agent]:
    """first asks helper, then hands on to last."""
    first, helper, last = Agent("first"), Agent("helper"), Agent("last")

    @first.handles
    async def begin(task: Dispatch, ctx: Context) -> Then:
        await (await ctx.send("helper", "help me")).result()
        return TaskResult.passed(what="begun").then("last", "finish it")

    async def answer(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult.passed(what=task.brief)

    helper.handles(answer)
    last.handles(answer)
    return [first, helper, last]


async def send_traced(bus: TestBus, to: str, headers: dict[str, str]) -> Sent:
    """A handoff from a sender in another language, with its own trace headers."""
    envelope = Envelope(sender="test", to=to, body=Dispatch(brief="x"), id=uuid4())
    line = Line(envelope.id)
    bus.client.lines.watch(line)
    draft = Draft(
        subject=bus.client.subject(envelope.id, "sent", "adhoc", to),
        payload=encode(envelope),
        waiter="test",
        addressee=to,
        trace=headers,
    )
    await bus.client.ledger.append(draft, tail=0)
    return Sent(bus.client, line)


async def test_a_line_of_handoffs_is_one_trace_joined_by_parents(
    open_bus: Any, spans: InMemorySpanExporter
) -> None:
    async with open_bus(*agents()) as bus:
        sent = await bus.send("first", "x", work="WORK-01")
        await sent.result()
    ended = [it for it in spans.get_finished_spans() if it.context is not None]
    by_id = {it.context.span_id: it for it in ended if it.context is not None}

    def parent(it: ReadableSpan) -> str | None:
        return by_id[it.parent.span_id].name if it.parent else None

    assert {(it.name, parent(it)) for it in ended} == {
        ("send first", None),
        ("deliver first", "send first"),
        ("process first", "deliver first"),
        ("send helper", "process first"),
        ("deliver helper", "send helper"),
        ("process helper", "deliver helper"),
        ("deliver last", "process first"),
        ("process last", "deliver last"),
    }
    assert len({it.context.trace_id for it in ended if it.context is not None}) == 1
    (process,) = [it for it in ended if it.name == "process first"]
    assert process.attributes == {
        "batonbus.handoff": str(sent.handoff_id),
        "batonbus.work": "WORK-01",
        "batonbus.attempt": 1,
    }
    by_the_way = [it.attributes for it in ended if it.name.startswith(("send ", "process "))]
    assert {it["batonbus.work"] for it in by_the_way if it is not None} == {"WORK-01"}


async def test_a_foreign_trace_is_continued_whatever_the_case_of_its_header(
    open_bus: Any, spans: InMemorySpanExporter
) -> None:
    async with open_bus(*agents()) as bus:
        await (await send_traced(bus, "first", FOREIGN)).result()
    ended = spans.get_finished_spans()
    assert len(ended) == 7
    assert {f"{it.context.trace_id:032x}" for it in ended if it.context is not None} == {TRACE}
    (deliver,) = [it for it in ended if it.name == "deliver first"]
    assert deliver.parent is not None
    assert f"{deliver.parent.span_id:016x}" == "00f067aa0ba902b7"


async def test_without_an_sdk_a_foreign_trace_passes_through_unchanged(
    open_bus: Any, read_events: Any
) -> None:
    """On to the next handoff, and to those that its handler asks for."""
    asked: list[Sent] = []
    first, helper, last = agents()

    @first.handles
    async def begin(task: Dispatch, ctx: Context) -> Then:
        asked.append(await ctx.send("helper", "help me"))
        await asked[0].result()
        return TaskResult.passed(what="begun").then("last", "finish it")

    async with open_bus(first, helper, last) as bus:
        sent = await send_traced(bus, "first", FOREIGN)
        await sent.result()
        carried = {
            "traceparent": FOREIGN["Traceparent"],
            "tracestate": FOREIGN["TraceState"],
            "baggage": FOREIGN["BAGGAGE"],
        }
        for handoff_id in (sent.handoff_id, sent.settled_id, asked[0].handoff_id):
            for it in await read_events(bus, handoff_id):
                if it.headers.get("Traceparent") is None:
                    assert carried.items() <= it.headers.items(), it.subject
                    assert "Other" not in it.headers
        await (await bus.send("last", "untraced", key="u")).result()
        untraced = await bus.send("last", "untraced", key="u")
        for it in await read_events(bus, untraced.handoff_id):
            assert "traceparent" not in it.headers


def test_a_context_is_read_in_any_case_and_a_broken_one_is_none() -> None:
    read = trace.get_current_span(read_context(FOREIGN)).get_span_context()
    assert f"{read.trace_id:032x}" == TRACE
    assert read.trace_flags.sampled
    broken = trace.get_current_span(read_context({"traceparent": "00-nonsense"}))
    assert not broken.get_span_context().is_valid


def test_an_error_inside_a_span_ends_it_and_comes_out(spans: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), span("work", trace.SpanKind.INTERNAL):
        raise KeyError
    (ended,) = spans.get_finished_spans()
    assert ended.status.status_code is trace.StatusCode.ERROR
