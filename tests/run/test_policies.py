"""Another context policy takes effect in what runs, within seconds, and never half of it."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from batonbus import Agent, Context, ResetDone, ResetRequest, TestBus
from batonbus.rules.budget import measure
from batonbus.rules.fleet_secrets import Secrets
from batonbus.rules.policy import Budget, Overlay, Policy, Thresholds
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import Core, open_operator
from batonbus.run.window_manager import WindowManager
from batonbus.testing import FAST
from batonbus.wire.agreed import POLICY_KEY, read_policy, store_policy
from batonbus_schemas import (
    CompactionHandoff,
    ContextUsage,
    Dispatch,
    InvalidMessageError,
    Presence,
    TaskResult,
)

pytestmark = pytest.mark.anyio

LOOSE = Policy(thresholds={"implementer": Thresholds(soft=55, hard=90, emergency=95)})
STRICT = Policy(roles={"builder": Overlay(hard=60)})
SMALL = Policy(budgets={"implementer": Budget(characters=900, tokens=225)})
ACME = Policy(secrets=Secrets(patterns=("acme-[0-9a-f]{32}",), names=("acme_pin",)))
MASK = "[masked: secret of the fleet]"
KEY = "acme-" + "0a1b" * 8


class Busy:
    """A builder with two slots: what it is given with a percent stays in work until it may end."""

    def __init__(self) -> None:
        self.agent = Agent("builder", slots=2)
        self.handled: list[str] = []
        self.texts: list[str] = []
        self.may_end = anyio.Event()
        self.agent.handles(self.work)
        self.agent.resets(self.reset)

    async def work(self, task: Dispatch, ctx: Context) -> TaskResult:
        name, _, percent = task.brief.partition(" at ")
        self.handled.append(name)
        self.texts.append(ctx.text)
        if percent:
            await ctx.usage(percent=float(percent))
            await self.may_end.wait()
        return TaskResult.passed(what=f"{name}: {KEY} acme_pin=47-11")

    async def reset(self, request: ResetRequest) -> ResetDone:
        fields = dict.fromkeys(CompactionHandoff.__struct_fields__, "said")
        usage = ContextUsage(source="measured", percent=20)
        return ResetDone(handoff=CompactionHandoff(**fields), usage=usage)


@asynccontextmanager
async def operator(bus: TestBus) -> AsyncGenerator[Core]:
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        yield core


async def only_agent(core: Core) -> Presence:
    while True:
        for it in await core.registry.list():
            return it
        await anyio.sleep(0.02)


async def closed(core: Core, reason: str) -> str:
    """Why the only agent is closed, once that is this reason (empty: once it is open)."""
    while True:
        found = (await only_agent(core)).closed
        if found.startswith(reason) and bool(found) == bool(reason):
            return found
        await anyio.sleep(0.02)


async def reported(core: Core, percent: float) -> Presence:
    """The only agent, once it has reported this."""
    while True:
        found = await only_agent(core)
        if found.card.context_usage.percent == percent:
            return found
        await anyio.sleep(0.02)


async def told(caplog: pytest.LogCaptureFixture) -> None:
    """Until somebody has said that a policy cannot be read."""
    while True:
        if "policy.unreadable" in caplog.text:
            return
        await anyio.sleep(0.02)


async def until_policy(bus: TestBus, policy: Policy) -> None:
    """Until this process, and with it the tests' sender, has it."""
    while bus.client.policy != policy:
        await bus.client.policies.changes.wait()


async def test_a_stricter_policy_closes_a_running_agent_and_a_looser_one_opens_it(
    open_bus: Any,
) -> None:
    builder = Busy()
    async with open_bus(builder.agent) as bus, operator(bus) as core:
        first = await bus.send("builder", "one at 62")
        assert (await reported(core, 62)).closed == ""
        await store_policy(core.connection, DEFAULT_FLEET, STRICT)
        assert await closed(core, "context usage") == "context usage 62 % (hard 60 %)"
        second = await bus.send("builder", "two")
        receipt = await second.receipt()
        await store_policy(core.connection, DEFAULT_FLEET, LOOSE)
        await closed(core, "")
        await second.result()
        assert builder.handled == ["one", "two"]
        builder.may_end.set()
        await first.result()
    assert (receipt.state, receipt.reason) == ("held", "closed: context usage 62 % (hard 60 %)")


async def test_the_window_manager_measures_by_the_new_budget_and_so_does_the_agent(
    open_bus: Any, read_delivery: Any
) -> None:
    builder = Busy()
    async with open_bus(builder.agent) as bus, operator(bus) as core:
        await (await bus.send("builder", "a " * 400)).result()
        await store_policy(core.connection, DEFAULT_FLEET, SMALL)
        while True:
            sent = await bus.send("builder", "a " * 400)
            await sent.result()
            size = (await read_delivery(bus, sent.handoff_id)).size
            if size.max_characters == 900 and len(builder.texts[-1]) <= 900:
                break
    assert (size.max_tokens, size.steps) == (225, ("brief cut to 320 characters",))


async def test_what_the_fleet_calls_a_secret_is_refused_and_masked_from_then_on(
    open_bus: Any, bounce: Any, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    builder = Busy()
    async with open_bus(builder.agent) as bus, operator(bus) as core:
        before = await (await bus.send("builder", f"one {KEY}")).result()
        await store_policy(core.connection, DEFAULT_FLEET, ACME)
        await until_policy(bus, ACME)
        with pytest.raises(InvalidMessageError) as refused:
            await bus.send("builder", Dispatch(brief="x", attention=f"acme-pin: 47-11, {KEY}"))
        after = await (await bus.send("builder", "two")).result()
        with monkeypatch.context() as patch:
            patch.setattr("batonbus.run.client.find_in", lambda _message: [])
            error = await bounce(await bus.send("builder", Dispatch(brief=KEY)))
        await store_policy(core.connection, DEFAULT_FLEET, Policy())
        await until_policy(bus, Policy())
        await (await bus.send("builder", f"three {KEY}")).result()
    assert KEY in before.summary
    assert after.summary == f"two: {MASK} acme_pin={MASK}"
    assert "$.body.attention" in str(refused.value)
    assert [it.path for it in error.receipt.violations] == ["$.body.brief"]
    for said in (str(refused.value), str(error)):
        assert KEY not in said
    assert KEY not in caplog.text


async def test_a_policy_that_cannot_be_read_leaves_the_old_one_and_is_told_once(
    open_bus: Any, caplog: pytest.LogCaptureFixture
) -> None:
    builder = Busy()
    async with open_bus(builder.agent) as bus, operator(bus) as core:
        await store_policy(core.connection, DEFAULT_FLEET, STRICT)
        await until_policy(bus, STRICT)
        for unread in ('{"of_a_newer_version": 1}', '{"secrets": {"patterns": ["(a+)+b"]}}'):
            await store_text(core, unread)
            caplog.clear()
            await told(caplog)
        # What joins now is not kept out by it either.
        async with anyio.create_task_group() as tasks:
            joined = Agent("joined")
            joined.handles(builder.work)
            tasks.start_soon(bus.run, joined)
            await (await bus.send("joined", "one")).result()
            tasks.cancel_scope.cancel()
        assert bus.client.policy == STRICT
        lines = [it for it in caplog.records if "policy.unreadable" in it.getMessage()]
    assert {it.levelno for it in lines} == {logging.ERROR}
    # The window manager and the keeper: agents hear the old one from it.
    assert len(lines) <= 2
    assert "store one anew with `batonbus policy set FILE`" in lines[0].getMessage()


async def store_text(core: Core, text: str) -> None:
    """Store what is no policy of this version."""
    stream = core.ledger.stream
    config = msgspec.json.decode(await core.connection.api(f"STREAM.INFO.{stream}"))["config"]
    config["metadata"][POLICY_KEY] = text
    await core.connection.api(f"STREAM.UPDATE.{stream}", config)


async def test_one_handoff_is_judged_by_one_policy(
    open_bus: Any, read_delivery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another policy comes into force in the middle of a decision: it is made anew."""
    builder, cores, seen = Busy(), list[Core](), list[Policy]()
    make = WindowManager.__init__

    def noted_make(self: WindowManager, core: Core) -> None:
        cores.append(core)
        make(self, core)

    def noted_measure(envelope: Any, window: Any, policy: Policy, listening: Any) -> Any:
        seen.append(policy)
        cores[0].policies.take(SMALL)
        return measure(envelope, window, policy, listening)

    monkeypatch.setattr(WindowManager, "__init__", noted_make)
    monkeypatch.setattr("batonbus.run.budgets.measure", noted_measure)
    async with open_bus(builder.agent, settings=replace(FAST, heartbeat=20.0)) as bus:
        sent = await bus.send("builder", "one")
        await sent.result()
        size = (await read_delivery(bus, sent.handoff_id)).size
    assert seen == [Policy(), SMALL]
    assert size.max_characters == 900


async def test_who_starts_begins_with_what_is_stored(open_bus: Any) -> None:
    """Also where the keeper has not looked at it again."""
    patient = replace(FAST, heartbeat=60.0, receipt_timeout=5.0)
    async with open_bus(settings=patient) as bus, operator(bus) as core:
        await store_policy(core.connection, DEFAULT_FLEET, STRICT)
        assert await read_policy(core.connection, DEFAULT_FLEET) == STRICT
        agent, limits = Agent("builder"), list[float]()

        @agent.handles
        async def work(task: Dispatch, ctx: Context) -> TaskResult:
            limits.append(60.0 if await ctx.usage(percent=60) == "hard" else 65.0)
            return TaskResult.passed(what="done")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, agent)
            await (await bus.send("builder", "one")).result()
            tasks.cancel_scope.cancel()
    assert limits == [60.0]
