"""`batonbus cancel`: one handoff ends, whoever is at it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import anyio
import pytest
from typer.testing import Result

from batonbus.rules.chain import OPERATOR, WINDOW_MANAGER, Kind, child_id
from batonbus.run.core import open_core
from batonbus.testing import FAST
from batonbus.wire.ledger import Draft
from batonbus.wire.subjects import Subject

AGENTS = """
from pathlib import Path

import anyio

from batonbus import Agent, Context
from batonbus_schemas import Dispatch, TaskResult, Then

asker, sleeper = Agent("asker", slots=8), Agent("sleeper", slots=8)

@asker.handles
async def ask(task: Dispatch, ctx: Context) -> TaskResult | Then:
    if task.brief == "hand on":
        return TaskResult.passed("Did my part.").then("sleeper", task.brief)
    return await (await ctx.send("sleeper", task)).result()

@sleeper.handles
async def sleep(task: Dispatch, ctx: Context) -> TaskResult:
    Path(f"{task.brief}.began").write_text(str(ctx.envelope.id))
    try:
        await anyio.sleep_forever()
    finally:
        Path(f"{task.brief}.stopped").touch()
"""


@pytest.fixture(scope="module")
def agents(shell: Any, bus_folder: Path) -> Iterator[Path]:
    (bus_folder / "sleepers.py").write_text(AGENTS)
    with (
        shell.agent("sleepers:asker", folder=bus_folder),
        shell.agent("sleepers:sleeper", folder=bus_folder),
    ):
        yield bus_folder


def wait_for(path: Path) -> str:
    """What a file holds, as soon as it is there."""
    deadline = time.monotonic() + 20
    while not path.exists() or (not path.read_text() and path.suffix == ".began"):
        assert time.monotonic() < deadline, f"no {path.name} within 20 s"
        time.sleep(0.02)
    return path.read_text()


def test_its_handler_is_stopped_and_what_it_asked_for_ends_too(
    invoke: Callable[..., Result], agents: Path, last_json: Any
) -> None:
    sent = last_json(invoke("send", "--to", "asker", "family", "--json").stdout)
    child = wait_for(agents / "family.began")
    answer = invoke("cancel", sent["handoff_id"][:13], "--reason", "not wanted", "--json")
    assert answer.exit_code == 0
    told = last_json(answer.stdout)
    assert told["handoff_id"] == sent["handoff_id"]
    assert (told["state"], told["was"], told["owner"]) == ("cancelled", "accepted", sent["by"])
    assert f"the work of {sent['by']} on it is stopped" in answer.stderr
    wait_for(agents / "family.stopped")
    last = [
        last_json(invoke("show", it, "--json").stdout)["handoffs"][0]["events"][-1]
        for it in (sent["handoff_id"], child)
    ]
    assert [it["kind"] for it in last] == ["cancelled", "cancelled"]
    assert [it["actor"] for it in last] == ["operator", "receipt-keeper"]
    assert last[0]["reason"] == "not wanted"


def test_to_cancel_twice_is_done_and_keeps_the_first_reason(
    invoke: Callable[..., Result], bus_folder: Path, last_json: Any
) -> None:
    held = last_json(invoke("send", "--to", "nobody-here", "x", "--json").stdout)
    assert held["state"] == "overdue"
    first = invoke("cancel", held["handoff_id"], "--reason", "the first")
    assert first.exit_code == 0
    assert first.stdout == f"handoff {held['handoff_id']} is cancelled, it was overdue\n"
    again = invoke("cancel", held["handoff_id"], "--reason", "the second", "--json")
    assert again.exit_code == 0
    told = last_json(again.stdout)
    assert (told["was"], told["reason"]) == ("cancelled", "the first")


def test_one_that_ended_otherwise_is_an_error_that_names_what_came_next(
    invoke: Callable[..., Result], agents: Path, last_json: Any
) -> None:
    sent = last_json(invoke("send", "--to", "asker", "hand on", "--json").stdout)
    child = wait_for(agents / "hand on.began")
    answer = invoke("cancel", sent["handoff_id"], "--json")
    assert answer.exit_code == 1
    error = last_json(answer.stdout)["error"]
    assert f"handoff {sent['handoff_id']} is settled already" in error
    assert f"`batonbus cancel {child}`" in error
    assert invoke("cancel", child).exit_code == 0
    wait_for(agents / "hand on.stopped")


async def hand_on_unseen(url: str, handoff_id: UUID) -> None:
    """A handoff that was settled and handed on in a fleet where nobody delivers what comes next."""
    async with open_core(url, OPERATOR, fleet="unmanned", settings=FAST) as core:
        tail = 0
        for kind, actor, marks in (
            ("sent", "ada", {}),
            ("delivered", WINDOW_MANAGER, {}),
            ("accepted", "bob", {"attempt": 1, "lease": 1}),
            ("settled", "bob", {"accepted": 3, "child_to": "cleo"}),
        ):
            subject = Subject("unmanned", handoff_id, cast("Kind", kind), "shop", actor)
            draft = Draft(subject=subject, payload=b"{}", **cast("dict[str, Any]", marks))
            tail = await core.ledger.append(draft, tail=tail)


def test_what_was_handed_on_and_is_not_delivered_yet_can_be_cancelled(
    invoke: Callable[..., Result], bus_folder: Path, last_json: Any
) -> None:
    parent = uuid4()
    child = str(child_id(parent))
    url = (bus_folder / ".batonbus" / "address").read_text()
    anyio.run(hand_on_unseen, url, parent)
    answer = invoke("cancel", child, "--fleet", "unmanned", "--json")
    assert answer.exit_code == 0
    assert last_json(answer.stdout)["was"] == "none"
    assert f"handoff {child} is cancelled, it was handed on" in answer.stderr
    again = invoke("cancel", child, "--fleet", "unmanned")
    assert f"handoff {child} was cancelled before" in again.stdout


def test_one_that_is_not_there_is_an_error(invoke: Callable[..., Result], bus_folder: Path) -> None:
    answer = invoke("cancel", str(uuid4()))
    assert answer.exit_code == 1
    assert "has no handoff" in answer.stderr
