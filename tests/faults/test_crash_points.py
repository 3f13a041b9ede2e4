"""Each writer dies just before an event of its is stored, and just after: at every such step the
work goes on, and every handoff ends as it would have ended."""

from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from fault_agents import ROLES
from fault_bus import (
    FLEET,
    WITH_FAILPOINTS,
    FaultBus,
    agent_command,
    fault_bus,
    part_command,
    wait_until,
)
from fault_sender import KEYS, planned_ids, read_ids
from ledger_checker import check, read_messages

from batonbus import Bounced, Bus, Sent, Settings
from batonbus.rules.chain import RECEIPT_KEEPER, WINDOW_MANAGER
from batonbus_schemas import Dispatch, Envelope

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

CRASHING = {
    WINDOW_MANAGER: (part_command(WINDOW_MANAGER), ("delivered", "refused")),
    RECEIPT_KEEPER: (part_command(RECEIPT_KEEPER), ("overdue", "dead")),
    "worker_a": (agent_command("worker_a"), ("accepted", "settled")),
    "planner_a": (agent_command("planner_a"), ("sent",)),
    "moody_a": (agent_command("moody_a"), ("failed", "refused")),
    "sender": (["fault_sender.py"], ("sent",)),
}
"""Each program that crashes: its command, and the kinds of events at which it does."""


def points(program: str) -> list[str]:
    return [f"{when}-{kind}" for kind in CRASHING[program][1] for when in ("before", "after")]


def start(faults: FaultBus, program: str, *arguments: str) -> None:
    faults.launcher = WITH_FAILPOINTS
    faults.start(program, *CRASHING[program][0], *arguments)
    for point in points(program):
        faults.arm(program, point, "kill")


def crashed(faults: FaultBus, program: str) -> set[str]:
    return {step for name, step, _ in faults.fired() if name == program}


async def how_it_ends(sent: Sent) -> str:
    try:
        return (await sent.result()).status
    except Bounced as error:
        return error.receipt.state


async def test_a_crash_before_or_after_any_step_loses_nothing(tmp_path: Path) -> None:
    async with fault_bus(tmp_path) as faults:
        agents = [it for it in CRASHING if it.endswith("_a")]
        for program in (WINDOW_MANAGER, RECEIPT_KEEPER, *agents):
            start(faults, program)
        await faults.wait_for_agents(*agents)
        async with Bus(faults.server.url, actor="test", fleet=FLEET) as bus:
            start(faults, "sender", str(tmp_path), "0")
            unreadable = Envelope(
                id=uuid4(), sender="test", to="worker", body=Dispatch(brief="x"), after=(uuid4(),)
            )
            nobody = [await bus.send("nobody", "x") for _ in range(2)]
            expected = [
                (await bus.send("moody", "1"), "PASS"),
                (await bus.send("moody", "1"), "PASS"),
                (await bus.send("moody", "refuse"), "refused"),
                (await bus.send("moody", "refuse"), "refused"),
                (await bus.send("moody", "3"), "dead"),
                (await bus.send("moody", "3"), "dead"),
                (await bus.send_envelope(unreadable), "refused"),
            ]
            with anyio.fail_after(60):
                for sent in nobody:
                    await faults.wait_for_event(sent.handoff_id, "overdue", limit=30)
                    assert await sent.cancel("nobody is there")
                assert [await how_it_ends(sent) for sent, _ in expected] == [
                    end for _, end in expected
                ]

            async def ended() -> bool:
                return faults.programs["sender"].done

            await wait_until(ended, "the work did not end", limit=60)
        messages = await read_messages(faults.server.url, FLEET)

    for program in CRASHING:
        assert crashed(faults, program) == set(points(program)), program
    sent_here = [sent.handoff_id for sent in (*nobody, *(sent for sent, _ in expected))]
    complaints = check(
        messages,
        acknowledged=[*read_ids(tmp_path / "acknowledged"), *sent_here],
        planned=[*planned_ids(), *sent_here],
        keys=KEYS,
        agents=ROLES,
    )
    assert complaints == []
    ends = set((tmp_path / "ended").read_text().splitlines())
    assert ends == {f"{handoff} PASS" for handoff in planned_ids()}


async def test_what_a_killed_manager_had_in_hand_is_delivered_long_before_a_receipt_is_due(
    tmp_path: Path,
) -> None:
    """By default a lease lasts as long as a receipt may take."""
    settings = Settings()
    async with fault_bus(tmp_path, settings) as faults:
        start(faults, WINDOW_MANAGER)
        faults.start(RECEIPT_KEEPER, *part_command(RECEIPT_KEEPER))
        async with Bus(faults.server.url, actor="test", fleet=FLEET) as bus:
            sent = await bus.send("nobody", "x")
            delivered = await faults.wait_for_event(sent.handoff_id, "delivered", limit=40)
            first = (await faults.chain(sent.handoff_id))[0]
    assert crashed(faults, WINDOW_MANAGER) == {"before-delivered", "after-delivered"}
    assert delivered.event.at - first.event.at < settings.receipt_timeout / 2
