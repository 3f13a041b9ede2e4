"""Twenty canary secrets on every path: none is found in the store, in a log line or in a span."""

import io
import os
import sys
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import anyio
import msgspec
import pytest
from gate_bench import closed_for
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batonbus import Agent, Bounced, Context, Refuse, ResetDone, ResetRequest, Sent, TryAgain
from batonbus.logs import configure, log
from batonbus.rules.fleet_secrets import Secrets
from batonbus.rules.policy import Policy
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.command import command_agent
from batonbus.run.core import open_operator
from batonbus.wire.agreed import store_policy
from batonbus.wire.ledger import Draft
from batonbus.wire.subjects import Subject
from batonbus_schemas import Dispatch, InvalidMessageError, TaskResult, Then

pytestmark = pytest.mark.anyio

CANARIES = [
    "ghp_" + "cAn4" * 9,
    "AKIACANARY4EXAMPLE99",
    "glpat-canary7890abcdefghij",
    "xoxb-123456789012-canaryabcdef",
    "sk_live_canary4HqLyjWDarjtT1zd7",
    "sk-ant-api03-caNARY123456789ghijklmnoPQRS",
    "tvly-CANARY0123456789abcdef",
    "eyJjYW5hcnkiOiJIUzI1NiJ9.eyJjYW5hcnkiOiIxIn0.canary4_-x",
    "SG.canary78901234567890AB.canarylmnopqrstuvwxyz1234567890ABCDEFGHIJKL",
    "ACcanary0123456789canary0123456789",
    "API_KEY=caNary7Zr0xT1mNq",
    "password is canary2-Prod!",
    "DB_PASSWORD: canary9kkkkkk",
    "client_secret='canary8Secret'",
    "access_token=canary3abcdefg",
    "Authorization: Basic Y2FuYXJ5OnBhc3M5",
    "Authorization: Bearer canary5abcdefgh",
    "postgres://user:canary6pw@host/db",
    "-----BEGIN RSA PRIVATE KEY-----\ncanary0MIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    "<think>canary1 raw reasoning</think>",
]
NEEDLES = [
    it.encode() for it in ("canary", "cAn4", "CANARY", "caNARY", "caNary", "Y2FuYXJ5", "jYW5")
]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """All that is logged, as a process of ours logs it, with tracebacks."""
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    configure("DEBUG", "json")
    return text


def teller() -> Agent:
    """Tells the canary that its brief numbers, in the way that the brief says."""
    agent = Agent("teller", slots=20)

    @agent.handles
    async def tell(task: Dispatch, ctx: Context) -> TaskResult | Then:
        way, number = task.brief.split()
        canary = CANARIES[int(number)]
        match way:
            case "result":
                return TaskResult.passed(what=f"Found {canary}", why=canary, caution=canary)
            case "then":
                following = Dispatch(brief=f"result {number}")
                return TaskResult.passed(what=f"Told {canary}").then("teller", following)
            case "refuse":
                raise Refuse(f"no: {canary}")
            case "again":
                raise TryAgain(canary, after=0.01)
            case _:
                raise RuntimeError(canary)

    return agent


def store_of(bus: Any) -> bytes:
    folder: Path = bus.server.store
    return b"".join(it.read_bytes() for it in folder.rglob("*") if it.is_file())


async def end_of(sent: Sent) -> str:
    try:
        return (await sent.result()).summary
    except Bounced as error:
        return str(error)


async def test_no_canary_is_found_in_store_logs_or_spans(
    open_bus: Any, spans: InMemorySpanExporter, logged: io.StringIO
) -> None:
    script = f"echo '{CANARIES[0]}' >&2; exit 3"
    printer = command_agent("printer", ["sh", "-c", script])
    async with open_bus(teller(), printer, limit=60) as bus:
        sent: list[Sent] = []
        for number, canary in enumerate(CANARIES):
            with pytest.raises(InvalidMessageError) as refused:
                await bus.send("teller", Dispatch(brief="x", attention=f"use {canary}"))
            assert canary not in str(refused.value)
            assert "$.body.attention" in str(refused.value)
            for way in ("result", "then", "refuse", "fail", "again"):
                sent.append(await bus.send("teller", f"{way} {number}"))
        sent.append(await bus.send("printer", "x"))
        ends = [await end_of(it) for it in sent]
        cancelled = await bus.send("nobody", "x")
        assert await cancelled.cancel("because API_KEY=caNary7Zr0xT1mNq")
        store = store_of(bus)
    said, heard = logged.getvalue().encode(), "".join(ends).encode()
    recorded = "".join(it.to_json() for it in spans.get_finished_spans()).encode()
    assert b"masked" in store
    assert b"process teller" in recorded
    assert b"RuntimeError" in said
    assert b"[masked: " in said
    for needle in NEEDLES:
        assert needle not in store, needle
        assert needle not in said, needle
        assert needle not in heard, needle
        assert needle not in recorded, needle


async def test_what_the_fleet_calls_a_secret_is_found_nowhere_either(
    open_bus: Any,
    spans: InMemorySpanExporter,
    logged: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is the value of a variable of that name."""
    ours = ["acme-0a1b0a1b", "the acme_pin is 47-11", "hunter-in-the-environment"]
    monkeypatch.setitem(os.environ, "OUR_ACME_PIN", ours[2])
    secrets = Secrets(patterns=("acme-[0-9a-f]{8}",), names=("acme_pin",))
    agent = Agent("teller")

    @agent.handles
    async def tell(task: Dispatch, ctx: Context) -> TaskResult:
        if ctx.attempt == 1:
            raise RuntimeError(ours)
        return TaskResult.passed(what=" ".join(ours))

    async with open_bus() as bus:
        async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
            await store_policy(core.connection, DEFAULT_FLEET, Policy(secrets=secrets))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, agent)
            said = (await (await bus.send("teller", "x")).result()).summary
            tasks.cancel_scope.cancel()
        store = store_of(bus)
    recorded = "".join(it.to_json() for it in spans.get_finished_spans())
    mask = "[masked: secret of the fleet]"
    assert said == f"{mask} the acme_pin is {mask} [masked: value of the environment]"
    assert "RuntimeError" in logged.getvalue()
    for needle in ("acme-0a1b0a1b", "47-11", ours[2]):
        for text in (store.decode(errors="replace"), logged.getvalue(), recorded):
            assert needle not in text, needle


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_logged_traceback_is_masked(
    form: Literal["json", "console"], capsys: pytest.CaptureFixture[str]
) -> None:
    configure("DEBUG", form)
    try:
        raise RuntimeError(CANARIES[10])
    except RuntimeError as error:
        log.exception("it.failed", error=repr(error), nested={"list": [CANARIES[11]]})
    said = capsys.readouterr().err
    assert "[masked: named secret]" in said
    assert "\033" not in said  # colours are for terminals
    assert "caNary" not in said
    assert "canary2" not in said


async def test_a_secret_of_a_foreign_writer_is_refused_with_its_place_alone(
    open_bus: Any, bounce: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that went past the sender's own check."""
    monkeypatch.setattr("batonbus.run.client.find_in", lambda _message: [])
    async with open_bus(teller()) as bus:
        error = await bounce(await bus.send("teller", Dispatch(brief="x", attention=CANARIES[0])))
    (violation,) = error.receipt.violations
    assert violation.path == "$.body.attention"
    assert CANARIES[0] not in str(error)


TOKEN = "ghp_" + "cAn4" * 9


async def test_what_a_hook_raises_or_returns_is_masked_before_it_is_stored_or_shown(
    open_bus: Any,
) -> None:
    leaky = Agent("leaky")

    @leaky.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        await ctx.usage(90)
        return TaskResult.passed(what="done")

    @leaky.resets
    async def reset(request: ResetRequest) -> ResetDone:
        raise RuntimeError(f"cannot log in with {TOKEN}")

    async with open_bus(leaky) as bus:
        await bus.send("leaky", "x")
        closed = await closed_for(bus, leaky, "cannot log in")
        receipt = await (await bus.send("leaky", "y")).receipt()
    assert closed.endswith("cannot log in with [masked: GitHub Token]")
    assert receipt.reason == f"closed: {closed}"


async def test_the_end_of_what_a_program_said_is_cut_after_it_was_masked(
    open_bus: Any, read_events: Any, bounce: Any
) -> None:
    key = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *["canary0MIIE" * 6] * 20, "cut off"])
    script = f"printf '%s' '{key}' >&2; exit 3"
    async with open_bus(command_agent("leaky", ["sh", "-c", script])) as bus:
        sent = await bus.send("leaky", "x")
        reason = (await bounce(sent)).receipt.reason
        events = await read_events(bus, sent.handoff_id)
    assert "[masked: private key]" in reason
    assert not [it for it in events if b"canary0" in it.payload]


async def test_a_refusal_quotes_no_secret(open_bus: Any, read_events: Any) -> None:
    async with open_bus() as bus, open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        raw = {"version": TOKEN, TOKEN: 1, "body": {"kind": "dispatch", "brief": "x"}}
        subject = Subject(DEFAULT_FLEET, uuid4(), "sent", "adhoc", "test", "leaky")
        draft = Draft(subject=subject, payload=msgspec.json.encode(raw), waiter="test")
        await core.ledger.append(draft, tail=0)
        while len(events := await read_events(bus, subject.handoff_id)) < 2:  # noqa: ASYNC110 - only the ledger knows
            await anyio.sleep(0.02)
    assert events[1].event.kind == "refused"
    assert b"cAn4" not in events[1].payload
    assert events[1].payload.count(b"[masked: GitHub Token]") == 2
