"""What an agent is given to read is inside its budget, and nothing of it is lost."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from batonbus import Agent, Context, TestBus
from batonbus.run.command import command_agent
from batonbus_schemas import Delivery, Dispatch, TaskResult, render
from batonbus_schemas.xml import read_dispatch

pytestmark = pytest.mark.anyio

ReadDelivery = Callable[[TestBus, UUID], Awaitable[Delivery]]
LONG = "Read the whole of it. " * 200


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the agents work."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reader(role: str, texts: list[str], **options: Any) -> Agent:
    agent = Agent(role, **options)

    @agent.handles
    async def read(task: Dispatch, ctx: Context) -> TaskResult:
        texts.append(ctx.text)
        return TaskResult.passed(what="Read it.")

    return agent


async def test_a_short_assignment_is_whole_and_its_sizes_are_recorded(
    open_bus: Any, read_delivery: ReadDelivery, folder: Path
) -> None:
    texts: list[str] = []
    async with open_bus(reader("builder", texts)) as bus:
        sent = await bus.send("builder", "Mend it.")
        await sent.result()
        delivery = await read_delivery(bus, sent.handoff_id)
    size = delivery.size
    assert size is not None
    assert texts == [render(delivery.envelope, delivery.window)]
    assert (size.row, size.form, size.steps) == ("implementer", "markdown", ())
    assert (size.max_characters, size.max_tokens) == (2800, 700)
    assert (size.characters, size.tokens) == (len(texts[0]), -(-len(texts[0]) // 4))
    assert os.listdir(folder) == []


async def test_what_is_taken_out_lies_where_the_text_says_and_the_envelope_stays_whole(
    open_bus: Any, read_delivery: ReadDelivery, folder: Path
) -> None:
    script = "path=$(sed -n 's/^All of it: //p'); cat $path"
    async with open_bus(command_agent("reviewer", ["sh", "-c", script])) as bus:
        sent = await bus.send("reviewer", LONG)
        result = await sent.result()
        delivery = await read_delivery(bus, sent.handoff_id)
    assert result.context_handoff is not None
    assert result.context_handoff.what == LONG.strip()
    assert delivery.envelope.body == Dispatch(brief=LONG)
    assert delivery.size is not None
    assert delivery.size.steps == ("brief cut to 320 characters",)
    assert delivery.size.characters <= 2400
    assert (folder / ".batonbus/.gitignore").read_text() == "*\n"


async def test_what_cannot_be_made_short_enough_is_refused_with_the_field_and_the_numbers(
    open_bus: Any,
) -> None:
    body = Dispatch(brief="Mend it.", permission_boundary="Only this. " * 300)
    async with open_bus() as bus:
        receipt = await (await bus.send("builder", body)).receipt()
    assert receipt.state == "refused"
    for told in ("limit 2,800 (700)", "$.body.permission_boundary with 3,300"):
        assert told in receipt.reason
    (found,) = receipt.violations
    assert found.path == "$.body.permission_boundary"


async def test_an_agent_reads_the_form_that_it_asks_for(
    open_bus: Any, read_delivery: ReadDelivery
) -> None:
    texts: list[str] = []
    async with open_bus(reader("builder", texts, text_form="xml")) as bus:
        first = await bus.send("builder", "Mend it.", work="shop", task="TASK-01")
        await first.result()
        sent = await bus.send("builder", LONG, work="shop", task="TASK-02", after=[first])
        await sent.result()
        delivery = await read_delivery(bus, sent.handoff_id)
    assert read_dispatch(texts[0]).value.body.brief == "Mend it."
    (entry,) = read_dispatch(texts[1]).value.window
    assert (entry.from_, entry.task, entry.handoff_id) == ("builder", "TASK-01", first.handoff_id)
    assert delivery.size is not None
    assert (delivery.size.form, delivery.size.characters) == ("xml", len(texts[1]))


async def test_a_stricter_agent_is_given_less_than_its_role(
    open_bus: Any, read_delivery: ReadDelivery
) -> None:
    texts: list[str] = []
    body = Dispatch(brief=LONG[:500], attention=LONG[:2000])
    async with open_bus(reader("builder", texts, policy_role="other")) as bus:
        sent = await bus.send("builder", body)
        await sent.result()
        delivery = await read_delivery(bus, sent.handoff_id)
    assert delivery.size is not None
    assert 2200 < delivery.size.characters <= 2800
    assert len(texts[0]) <= 2200


async def test_where_no_reference_can_be_written_the_attempt_fails_and_says_why(
    open_bus: Any, bounce: Any, folder: Path
) -> None:
    (folder / ".batonbus").write_text("a file in the way")
    async with open_bus(reader("builder", [])) as bus:
        error = await bounce(await bus.send("builder", LONG))
    assert error.receipt.state == "dead"
    assert f"cannot be written below {folder}" in error.receipt.reason


async def test_names_that_no_xml_can_hold_are_refused(open_bus: Any) -> None:
    texts: list[str] = []
    body = Dispatch(brief="x", cache_hint=("a, b",))
    async with open_bus(reader("builder", texts, text_form="xml", id="builder-1")) as bus:
        await (await bus.send("builder", "first")).result()
        receipt = await (await bus.send("builder-1", body)).receipt()
    assert receipt.state == "refused"
    assert "cache-hint cannot name the section" in receipt.reason


async def test_pastes_are_refused_with_all_their_places(open_bus: Any) -> None:
    talk = "User: please mend it\nAssistant: I will.\n"
    body = Dispatch(brief=talk, attention=talk, refs=("works/other/PLAN.md", "a.md"))
    async with open_bus() as bus:
        receipt = await (await bus.send("builder", body, work="shop")).receipt()
    assert receipt.state == "refused"
    places = ["$.body.brief", "$.body.attention", "$.body.refs[0]"]
    assert [it.path for it in receipt.violations] == places


async def test_a_passage_of_another_task_is_refused_and_the_task_named(open_bus: Any) -> None:
    passage = "Write the test first, then the code, then read both of them again. " * 4
    async with open_bus(reader("builder", [])) as bus:
        for task in ("TASK-01", "TASK-01"):
            sent = await bus.send("builder", f"{task}.\n\n{passage}", work="shop", task=task)
            assert (await sent.receipt()).state == "accepted"
        sent = await bus.send("builder", f"Two.\n\n{passage}", work="shop", task="TASK-02")
        receipt = await sent.receipt()
    assert receipt.state == "refused"
    assert "of the dispatch of TASK-01" in receipt.violations[0].problem
