"""What the tests of the runtime share: a bus with a time limit, and a look into its ledger."""

import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batonbus import Agent, Bounced, Context, Sent, Settings, TestBus
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_operator
from batonbus.testing import FAST
from batonbus.wire.ledger import Stored
from batonbus_schemas import Delivery, Dispatch, TaskResult, decode

sys.path.append(str(Path(__file__).parent))

from stand_ins import STAND_IN, Play, Program


@pytest.fixture
def open_bus() -> Callable[..., AbstractAsyncContextManager[TestBus]]:
    """A TestBus that lives at most `limit` seconds, so that no test waits for ever."""

    @asynccontextmanager
    async def limited(
        *agents: Agent, settings: Settings = FAST, limit: float = 20.0
    ) -> AsyncGenerator[TestBus]:
        with anyio.fail_after(limit):
            async with TestBus(*agents, settings=settings) as bus:
                yield bus

    return limited


@pytest.fixture
def quick() -> Settings:
    """For tests that wait until the fleet's own time limits have passed. A receipt is due when the
    keeper has been there for long enough to say who is gone."""
    return Settings(
        receipt_timeout=0.7,
        ack_wait=0.5,
        heartbeat=0.1,
        give_up_after=0.6,
        retry_delay=0.02,
        stop_grace=2.0,
    )


@pytest.fixture
def read_events() -> Callable[[TestBus, UUID], Awaitable[list[Stored]]]:
    """All events of a handoff, as the ledger holds them."""

    async def read(bus: TestBus, handoff_id: UUID) -> list[Stored]:
        async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
            return await core.ledger.read_chain(handoff_id)

    return read


@pytest.fixture
def read_kinds(read_events: Any) -> Callable[[TestBus, Sent], Awaitable[list[str]]]:
    """The kinds of a handoff's events, in ledger order."""

    async def read(bus: TestBus, sent: Sent) -> list[str]:
        return [it.event.kind for it in await read_events(bus, sent.handoff_id)]

    return read


@pytest.fixture
def read_delivery(read_events: Any) -> Callable[[TestBus, UUID], Awaitable[Delivery]]:
    """What the window manager delivered."""

    async def read(bus: TestBus, handoff_id: UUID) -> Delivery:
        for stored in await read_events(bus, handoff_id):
            if stored.event.kind == "delivered":
                return decode(stored.payload, Delivery)
        raise AssertionError(f"handoff {handoff_id} was not delivered")

    return read


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that ended in this process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def bounce() -> Callable[[Sent], Awaitable[Bounced]]:
    """How a handoff that ends without a result ended."""

    async def wait(sent: Sent) -> Bounced:
        with pytest.raises(Bounced) as caught:
            await sent.result()
        return caught.value

    return wait


@pytest.fixture
def echo() -> Callable[..., Agent]:
    """An agent that answers with its brief."""

    def make(role: str = "echo", **options: Any) -> Agent:
        agent = Agent(role, **options)

        @agent.handles
        async def answer(task: Dispatch, ctx: Context) -> TaskResult:
            return TaskResult.passed(what=task.brief)

        return agent

    return make


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Puts a program of this name on the path; each answer is stdout, or (stdout, code, stderr)."""
    folder = tmp_path / "played"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def put(name: str, *answers: str | tuple[str, int, str]) -> Program:
        for number, answer in enumerate(answers, 1):
            out, code, err = (answer, 0, "") if isinstance(answer, str) else answer
            (folder / f"out.{number}").write_text(out)
            (folder / f"err.{number}").write_text(err)
            (folder / f"code.{number}").write_text(str(code))
        path = tmp_path / name
        path.write_text(STAND_IN.format(folder=shlex.quote(str(folder))))
        path.chmod(0o755)
        return Program(folder)

    return put
