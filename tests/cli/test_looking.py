"""`batonbus show`, `tail`, `fleet` and `doctor`: looking at a bus changes nothing."""

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from typer.testing import Result

from batonbus.cli.fleet import describe_usage
from batonbus.cli.history import as_data, describe_step
from batonbus.rules.chain import OPERATOR, WINDOW_MANAGER, Event, child_id
from batonbus.run.core import open_core, open_operator
from batonbus.run.history import make_history
from batonbus.wire.ledger import Draft, Stored
from batonbus.wire.reader import read_to_head
from batonbus.wire.server import embedded_server
from batonbus.wire.subjects import Subject, probe_subject
from batonbus_schemas import ContextUsage

AGENTS = """
from batonbus import Agent, Context
from batonbus_schemas import Dispatch, TaskResult, Then

builder, verifier = Agent("builder", capabilities=("python",)), Agent("verifier")

@builder.handles
async def build(task: Dispatch, ctx: Context) -> Then:
    result = TaskResult.passed("Built it.\\x1b[2J", caution="[red]Not[/red] tested.")
    return result.then("verifier", "Check it.")

@verifier.handles
async def verify(task: Dispatch, ctx: Context) -> TaskResult:
    return TaskResult.passed("Checked it.")
"""


@pytest.fixture(scope="module")
def line(shell: Any, bus_folder: Path, last_json: Any) -> Iterator[UUID]:
    """A handoff to a builder, which handed on to a verifier; both agents are alive."""
    (bus_folder / "line.py").write_text(AGENTS)
    with (
        shell.agent("line:builder", folder=bus_folder),
        shell.agent("line:verifier", folder=bus_folder),
    ):
        arguments = ["--to", "builder", "Build it.", "--work", "bakery", "--wait", "--json"]
        sent = shell.call("send", *arguments, folder=bus_folder)
        yield UUID(last_json(sent.stdout)["handoff_id"])


def test_show_tells_the_chain_the_window_and_the_result_of_the_whole_line(
    invoke: Callable[..., Result], line: UUID
) -> None:
    answer = invoke("show", str(line))
    assert answer.exit_code == 0
    for text in (
        f"handoff {line}: settled",
        "builder, work bakery",
        f"attempt 1, PASS, then verifier {str(child_id(line))[:8]}",
        f"handoff {child_id(line)}: settled",
        "verifier, work bakery",
        "window: empty, nothing came before it",
        "caution: [red]Not[/red] tested.",
        "what: Checked it.",
    ):
        assert text in answer.stdout


def test_what_agents_wrote_cannot_drive_the_terminal(
    invoke: Callable[..., Result], line: UUID
) -> None:
    assert "\x1b" not in invoke("show", str(line)).stdout


def test_show_gives_programs_the_events_and_what_was_cut(
    invoke: Callable[..., Result], line: UUID, last_json: Any
) -> None:
    built, checked = last_json(invoke("show", str(line), "--json").stdout)["handoffs"]
    kinds = [event["kind"] for event in built["events"]]
    assert kinds == ["sent", "delivered", "accepted", "settled"]
    assert built["next"] == checked["handoff_id"] == str(child_id(line))
    (cut,) = checked["cuts"]
    assert (cut["level"], cut["handoff_id"]) == ("FULL", str(line))
    assert checked["window"][0]["caution"] == "[red]Not[/red] tested."


def test_show_tells_how_long_the_text_was_and_how_long_it_may_be(
    invoke: Callable[..., Result], line: UUID, last_json: Any
) -> None:
    built, checked = last_json(invoke("show", str(line), "--json").stdout)["handoffs"]
    sizes = built["sizes"]
    assert (sizes["row"], sizes["form"], sizes["max_characters"]) == (
        "implementer",
        "markdown",
        2800,
    )
    assert sizes["tokens"] == -(-sizes["characters"] // 4)
    assert checked["sizes"]["row"] == "reviewer"
    text = f"text: {sizes['characters']} of 2,800 characters, {sizes['tokens']} of 700 tokens"
    assert text in invoke("show", str(line)).stdout


def test_what_was_taken_out_of_a_text_is_shown(
    invoke: Callable[..., Result], line: UUID, last_json: Any
) -> None:
    sent = invoke("send", "--to", "builder", "Build it. " * 400, "--wait", "--json")
    handoff = last_json(sent.stdout)["handoff_id"]
    shown = invoke("show", handoff)
    assert "  brief cut to 320 characters\n" in shown.stdout
    built = last_json(invoke("show", handoff, "--json").stdout)["handoffs"][0]
    assert built["sizes"]["steps"] == ["brief cut to 320 characters"]
    assert len(built["envelope"]["body"]["brief"]) == 4000


def test_trace_shows_every_handoff_of_a_work_with_its_sizes_and_its_window(
    invoke: Callable[..., Result], line: UUID, last_json: Any
) -> None:
    traced = last_json(invoke("trace", "bakery", "--json").stdout)
    assert traced["work"] == "bakery"
    built, checked = traced["handoffs"]
    assert (built["id"], built["to"], built["state"]) == (str(line), "builder", "settled")
    assert (built["window"], built["cuts"]) == ([], [])
    assert (checked["from"], checked["to"]) == (checked["from"], "verifier")
    (seen,) = checked["window"]
    assert (seen["distance"], seen["level"], seen["from"]) == (1, "FULL", "builder")
    assert checked["cuts"][0]["handoff_id"] == str(line)
    assert 0 < checked["sizes"]["characters"] <= checked["sizes"]["max_characters"] == 2400
    table = invoke("trace", "bakery").stdout
    assert f"{checked['sizes']['characters']} of 2,400" in table
    assert str(line)[:8] in table


def test_a_work_without_handoffs_cannot_be_traced(
    invoke: Callable[..., Result], line: UUID
) -> None:
    answer = invoke("trace", "nothing")
    assert answer.exit_code == 1
    assert "no handoff of nothing" in answer.stderr


def test_the_beginning_of_an_id_is_enough(
    invoke: Callable[..., Result], line: UUID, last_json: Any
) -> None:
    shown = last_json(invoke("show", str(line)[:8], "--json").stdout)
    assert shown["handoffs"][0]["handoff_id"] == str(line)


@pytest.mark.parametrize("handoff_id", [str(uuid4()), str(uuid4())[:13]], ids=["whole", "short"])
def test_an_unknown_handoff_is_an_error(
    invoke: Callable[..., Result], line: UUID, handoff_id: str
) -> None:
    answer = invoke("show", handoff_id)
    assert answer.exit_code == 1
    assert handoff_id in answer.stderr


@pytest.mark.parametrize("text", ["abc", "not-an-id", ""])
def test_what_is_no_id_is_a_usage_error(invoke: Callable[..., Result], text: str) -> None:
    assert invoke("show", text).exit_code == 2


def test_a_void_event_is_marked_with_its_reason(
    invoke: Callable[..., Result], bus_folder: Path, last_json: Any
) -> None:
    forged = uuid4()

    async def forge() -> None:
        url = (bus_folder / ".batonbus" / "address").read_text()
        async with open_operator(url, fleet="default") as core:
            subject = Subject("default", forged, "settled", "adhoc", "mallory", "_")
            await core.ledger.append(Draft(subject=subject, payload=b"no JSON"), tail=0)

    anyio.run(forge)
    answer = invoke("show", str(forged), "--json")
    (event,) = last_json(answer.stdout)["handoffs"][0]["events"]
    assert event["void"] == "nothing of that kind follows none"
    assert "VOID: nothing of that kind follows none" in answer.stderr


def test_a_takeover_says_whose_answer_is_stale() -> None:
    """A former owner's answer is not stored: the ledger tells at which event it lost its right."""
    taken, stored = uuid4(), []
    for number, (kind, actor, lease) in enumerate(
        [
            ("sent", "source", None),
            ("delivered", WINDOW_MANAGER, None),
            ("accepted", "one", 1),
            ("accepted", "two", 2),
            ("accepted", "three", 2),
        ]
    ):
        subject = Subject("default", taken, kind, "adhoc", actor, "_")  # type: ignore[arg-type]
        event = Event(
            sequence=number + 1,
            tail=number,
            kind=subject.kind,
            actor=actor,
            attempt=1 if lease else None,
            lease=lease,
        )
        stored.append(Stored(event=event, subject=subject, payload=b"{}", headers={}))
    history = make_history(taken, stored)
    assert [it.takes_over_from for it in history.steps] == [None, None, None, "one", None]
    told = [describe_step(it, history) for it in history.steps]
    assert told[2:4] == [
        "attempt 1, lease 1",
        "attempt 1, lease 2, takes over from one, whose answer is stale from here on",
    ]
    assert as_data(history, 0.0)["events"][3]["takes_over_from"] == "one"


def test_tail_follows_until_ctrl_c(shell: Any, bus_folder: Path) -> None:
    with shell.running("tail", "--json", folder=bus_folder, BATONBUS_LOG_LEVEL="info") as tail:
        tail.hear("follow.started")
        shell.call("send", "--to", "absentee", "x", folder=bus_folder)
        tail.hear('"kind":"overdue"')
        assert tail.end(signal.SIGINT) == 0
    events = [json.loads(text) for text in tail.out]
    mine = [it for it in events if it["handoff_id"] == events[0]["handoff_id"]]
    assert [it["kind"] for it in mine] == ["sent", "delivered", "overdue"]
    assert mine[0]["payload"]["body"]["brief"] == "x"
    assert mine[2]["payload"]["reason"] == "no agent is listening as absentee"


def test_tail_can_begin_at_the_first_event(shell: Any, bus_folder: Path, line: UUID) -> None:
    with shell.running("tail", "--all", folder=bus_folder) as tail:
        assert "builder" in tail.hear(f"{str(line)[:8]} sent")
        settled = tail.hear(f"{str(line)[:8]} settled")
        assert settled.endswith(f"PASS, then verifier {str(child_id(line))[:8]}")
        assert tail.end(signal.SIGTERM) == 0


def test_a_reader_that_has_enough_ends_tail_quietly(
    shell: Any, bus_folder: Path, line: UUID, invoke: Callable[..., Result]
) -> None:
    """At the next event: until then nothing is written, and nobody sees that the reader is gone."""
    with ThreadPoolExecutor() as threads:
        for options in ("--all", "--all --json"):
            tail = threads.submit(shell.pipe, f"tail {options}", "head -n 1", folder=bus_folder)
            while not tail.done():
                invoke("send", "--to", "builder", "go on", "--json")
            piped = tail.result()
            assert (piped.returncode, piped.stderr, len(piped.stdout.splitlines())) == (0, "", 1)


def test_fleet_lists_who_is_there(
    invoke: Callable[..., Result], line: UUID, last_json: Any
) -> None:
    answer = invoke("fleet", "--json")
    agents = {it["card"]["role"]: it for it in last_json(answer.stdout)["agents"]}
    assert agents["builder"]["card"]["capabilities"] == ["python"]
    assert (agents["builder"]["state"], agents["builder"]["working"]) == ("idle", [])
    assert "verifier" in answer.stderr


def test_fleet_names_the_handoffs_that_are_worked_on(
    shell: Any, bus_folder: Path, last_json: Any
) -> None:
    with shell.agent("--role", "digger", "--command", "sleep 600", folder=bus_folder) as agent:
        sent = shell.call("send", "--to", "digger", "x", "--json", folder=bus_folder)
        listed = last_json(shell.call("fleet", "--json", folder=bus_folder).stdout)
        agent.end_at_once()
    (digger,) = [it for it in listed["agents"] if it["card"]["role"] == "digger"]
    assert digger["working"] == [last_json(sent.stdout)["handoff_id"]]
    assert digger["state"] == "busy"


NO_WAY_DOWN = """
from batonbus import Agent, Context, ResetDone, ResetRequest
from batonbus_schemas import Dispatch, TaskResult

agent = Agent("stuck")


@agent.handles
async def work(task: Dispatch, ctx: Context) -> TaskResult:
    await ctx.usage(percent=75)
    return TaskResult.passed(what="done")


@agent.resets
async def reset(request: ResetRequest) -> ResetDone:
    raise OSError("the session is gone")
"""


def test_a_closed_agent_is_named_with_its_reason_and_the_way_out(
    shell: Any, bus_folder: Path, last_json: Any
) -> None:
    (bus_folder / "stuck.py").write_text(NO_WAY_DOWN)
    with shell.agent("stuck:agent", folder=bus_folder) as agent:
        shell.call("send", "--to", "stuck", "--wait", "x", folder=bus_folder)
        agent.hear("agent.closed")
        fleet = shell.call("fleet", "--json", folder=bus_folder)
        doctor = shell.call("doctor", "--json", folder=bus_folder)
    (stuck,) = [it for it in last_json(fleet.stdout)["agents"] if it["card"]["role"] == "stuck"]
    why = "the handoff failed: OSError: the session is gone"
    assert (stuck["state"], stuck["closed"]) == ("closed", why)
    assert "then start it again" in stuck["advice"]
    assert f"{stuck['card']['id']} is closed: {why}" in fleet.stderr
    assert f"what to do: {stuck['advice']}" in fleet.stderr
    (agents,) = [it for it in last_json(doctor.stdout)["checks"] if it["name"] == "agents"]
    assert (doctor.returncode, agents["status"]) == (0, "warn")
    assert f"{stuck['card']['id']} is closed: {why}" in agents["detail"]
    assert agents["advice"] == stuck["advice"]


@pytest.mark.parametrize(
    ("usage", "shown"),
    [
        (ContextUsage(), "unknown"),
        (ContextUsage(source="measured", percent=58.5), "58.5 %"),
        (ContextUsage(source="estimated", percent=18.0), "about 18 %"),
    ],
)
def test_the_fleet_says_how_full_a_context_is(usage: ContextUsage, shown: str) -> None:
    assert describe_usage(usage) == shown


def test_a_fleet_without_a_ledger_is_said_to_have_none(invoke: Callable[..., Result]) -> None:
    for command in (["fleet"], ["show", str(uuid4())], ["tail"]):
        answer = invoke(*command, "--fleet", "elsewhere")
        assert answer.exit_code == 1
        assert "there is no ledger of the fleet 'elsewhere'" in answer.stderr
    assert invoke("doctor", "--fleet", "elsewhere").exit_code == 1


def test_the_doctor_is_content_with_a_bus_that_works(
    invoke: Callable[..., Result], line: UUID, last_json: Any
) -> None:
    answer = invoke("doctor", "--json")
    assert answer.exit_code == 0
    checks = {it["name"]: it["status"] for it in last_json(answer.stdout)["checks"]}
    assert checks.pop("disk") == "warn"
    assert set(checks.values()) == {"ok"}


def test_the_doctor_sees_a_wrong_clock_and_the_bus_works_on(
    invoke: Callable[..., Result], last_json: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() - 3600)
    answer = invoke("doctor", "--json")
    assert answer.exit_code == 0
    (clock,) = [it for it in last_json(answer.stdout)["checks"] if it["name"] == "clock"]
    assert clock["status"] == "warn"
    assert re.search(r"the server's clock is 3,(599|600)\.\d s ahead of ours", clock["detail"])


def test_the_doctors_write_is_no_event(
    invoke: Callable[..., Result], last_json: Any, bus_folder: Path
) -> None:
    """However often it is called, the ledger holds one such message, and nobody hears of it."""

    async def count() -> tuple[int, int]:
        url = (bus_folder / ".batonbus" / "address").read_text()
        async with open_operator(url, fleet="default") as core:
            wanted = {"subjects_filter": probe_subject("default")}
            data = await core.connection.api(f"STREAM.INFO.{core.ledger.stream}", wanted)
            events: list[Stored] = []
            await read_to_head(core.ledger, events.append)
        held = json.loads(data)["state"]["subjects"]
        ours = [it for it in events if it.event.actor == OPERATOR]
        return held[probe_subject("default")], len(ours)

    invoke("doctor")
    before = anyio.run(count)
    assert [invoke("doctor").exit_code for _ in range(2)] == [0, 0]
    assert anyio.run(count) == before
    assert before[0] == 1


def test_the_doctor_names_what_is_missing(
    invoke: Callable[..., Result], last_json: Any, tmp_path: Path
) -> None:
    """A server with a ledger, but without any process of the bus."""

    async def start() -> None:
        async with (
            embedded_server(tmp_path) as server,
            open_core(server.url, OPERATOR, fleet="default"),
        ):
            await anyio.to_thread.run_sync(check, server.url)

    def check(url: str) -> None:
        answer = invoke("doctor", "--url", url, "--json")
        assert answer.exit_code == 1
        checks = {it["name"]: it for it in last_json(answer.stdout)["checks"]}
        failed = [name for name, it in checks.items() if it["status"] == "fail"]
        assert failed == ["window manager", "receipt keeper"]
        assert "batonbus run window-manager" in checks["window manager"]["advice"]

    anyio.run(start)


def test_the_doctor_says_where_no_server_is(invoke: Callable[..., Result], last_json: Any) -> None:
    answer = invoke("doctor", "--url", "nats://127.0.0.1:9", "--json")
    assert answer.exit_code == 1
    (server,) = last_json(answer.stdout)["checks"]
    assert "nats://127.0.0.1:9" in server["detail"]
