"""`batonbus send`: what became of the work, for people, programs and scripts."""

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import Result

GOLDEN = Path(__file__).parents[2] / "schemas" / "golden"

AGENTS = """
from batonbus import Agent, Context, Refuse
from batonbus_schemas import Dispatch, HandoffV1, TaskResult, Then

jack = Agent("jack", slots=8, capabilities=("terminal", "file", "python"))

@jack.handles
async def work(task: Dispatch | HandoffV1, ctx: Context) -> TaskResult | Then:
    match ctx.envelope.body:
        case Dispatch(brief="refuse"):
            raise Refuse("no work of mine")
        case Dispatch(brief="fail"):
            return TaskResult.failed("It does not compile.")
        case Dispatch(brief="break"):
            raise RuntimeError("broken")
        case Dispatch(brief="hand on"):
            return TaskResult.passed("Built it.").then("jack", "go on")
    return TaskResult.passed("Worked.")
"""


@pytest.fixture(scope="module")
def jack(shell: Any, bus_folder: Path) -> Iterator[str]:
    """A role whose agent does what it is told."""
    (bus_folder / "jacks.py").write_text(AGENTS)
    with shell.agent("jacks:jack", folder=bus_folder):
        yield "jack"


def document(name: str = "minimal", **changed: Any) -> dict[str, Any]:
    """A contract v1 document that was never sent before."""
    tree = json.loads((GOLDEN / f"handoff-v1.{name}.json").read_text())
    return {**tree, "handoff_id": str(uuid4()), **changed}


def test_accepted_work_is_exit_code_0(invoke: Callable[..., Result], jack: str) -> None:
    answer = invoke("send", "--to", jack, "anything")
    assert answer.exit_code == 0
    assert re.match(r"handoff [\w-]{36}\naccepted by jack-\w{8} after [\d.]+ s\n", answer.stdout)


def test_with_json_the_last_line_holds_the_receipt_and_the_rest_is_stderr(
    invoke: Callable[..., Result], jack: str, last_json: Any
) -> None:
    answer = invoke("send", "--to", jack, "anything", "--json")
    receipt = last_json(answer.stdout)
    assert len(answer.stdout.splitlines()) == 1
    assert (receipt["state"], receipt["attempt"], receipt["lease"]) == ("accepted", 1, 1)
    assert "accepted by jack" in answer.stderr


def test_waiting_gives_the_result_of_the_whole_line(
    invoke: Callable[..., Result], jack: str, last_json: Any
) -> None:
    answer = invoke("send", "--to", jack, "hand on", "--wait", "--json")
    assert answer.exit_code == 0
    outcome = last_json(answer.stdout)
    assert outcome["state"] == "settled"
    assert outcome["result"]["context_handoff"]["what"] == "Worked."


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [
        ("fail", 6, "It does not compile."),
        ("refuse", 4, "no work of mine"),
        ("break", 6, "failed 3 of 3 attempts"),
    ],
)
def test_a_line_that_did_not_pass_has_its_own_exit_code(
    invoke: Callable[..., Result], jack: str, told: str, code: int, said: str
) -> None:
    answer = invoke("send", "--to", jack, told, "--wait")
    assert (answer.exit_code, said in answer.stdout) == (code, True)


def test_work_that_nobody_listens_for_is_overdue_and_says_what_to_start(
    invoke: Callable[..., Result], jack: str, last_json: Any, tmp_path: Path
) -> None:
    file = tmp_path / "handoff.json"
    tree = document()
    tree["to_agent"] = {"agent_id": "nobody", "expected_capabilities": ["terminal"]}
    file.write_text(json.dumps(tree))
    answer = invoke("send", str(file), "--json")
    assert answer.exit_code == 5
    receipt = last_json(answer.stdout)
    assert (receipt["state"], receipt["by"]) == ("overdue", "receipt-keeper")
    assert "nobody listens as nobody now, so it waits; live roles: jack (jack-" in answer.stderr
    assert "no agent is listening as nobody" in answer.stderr
    assert "batonbus agent --role nobody --capability terminal --command" in answer.stderr


def test_work_for_a_busy_role_is_held(shell: Any, bus_folder: Path) -> None:
    with shell.agent("--role", "busy", "--command", "sleep 600", folder=bus_folder) as agent:
        assert shell.call("send", "--to", "busy", "one", folder=bus_folder).returncode == 0
        held = shell.call("send", "--to", "busy", "two", folder=bus_folder)
        assert (held.returncode, "held by receipt-keeper" in held.stdout) == (3, True)
        assert "It stays in the ledger until an agent has room for it." in held.stdout
        agent.end_at_once()


def test_no_result_in_time_is_an_error_that_says_how_to_look(
    shell: Any, bus_folder: Path, last_json: Any
) -> None:
    with shell.agent("--role", "sleeper", "--command", "sleep 600", folder=bus_folder) as agent:
        arguments = ["send", "--to", "sleeper", "x", "--wait", "--timeout", "2", "--json"]
        late = shell.call(*arguments, folder=bus_folder)
        receipt = last_json(late.stdout)
        assert (late.returncode, receipt["state"]) == (1, "accepted")
        assert f"handoff {receipt['handoff_id']}\n" in late.stderr
        assert (
            f"no result within 2 s; the work goes on: `batonbus show {receipt['handoff_id'][:8]}`"
            in late.stderr
        )
        agent.end_at_once()


def test_the_wait_for_the_receipt_is_part_of_the_timeout(
    shell: Any, bus_folder: Path, last_json: Any
) -> None:
    arguments = ["send", "--to", "revewer", "x", "--wait", "--timeout", "1.5", "--json"]
    with shell.running(*arguments, folder=bus_folder) as send:
        handoff = send.hear("handoff ").split()[1]
        assert ", so it waits; " in send.hear("nobody listens as revewer now")
        assert send.wait() == 1
    told = last_json("\n".join(send.out))
    assert (told["handoff_id"], told["state"]) == (handoff, "sent")
    assert send.err[-1].startswith("no receipt within 1.5 s; the work goes on: `batonbus show ")


def test_a_contract_document_is_sent_as_it_is(
    invoke: Callable[..., Result], jack: str, tmp_path: Path
) -> None:
    tree = document("seed-example")
    tree["to_agent"]["agent_id"] = jack
    file = tmp_path / "handoff.json"
    file.write_text(json.dumps(tree, ensure_ascii=False))
    answer = invoke("send", str(file), "--wait")
    assert answer.exit_code == 0
    assert tree["handoff_id"] in answer.stdout


def test_the_example_of_the_contract_is_refused_for_its_id(
    invoke: Callable[..., Result], last_json: Any
) -> None:
    tree = document("seed-example", handoff_id="a1b2c3d4-...")
    answer = invoke("send", "-", "--json", input=json.dumps(tree))
    assert answer.exit_code == 4
    refused = last_json(answer.stdout)
    assert (refused["state"], refused["handoff_id"]) == ("refused", "a1b2c3d4-...")
    (violation,) = refused["violations"]
    assert violation["path"] == "$.handoff_id"
    assert "`a1b2c3d4-...` is no UUID" in violation["problem"]


def test_everything_that_is_wrong_with_a_file_is_said_at_once(
    invoke: Callable[..., Result],
) -> None:
    answer = invoke("send", "-", input=json.dumps(document(objective={}, bundle=[])))
    assert answer.exit_code == 4
    assert "$.objective.goal: is missing" in answer.stdout
    assert "$.bundle: expected object, got array" in answer.stdout


def test_what_also_stands_in_a_referenced_file_is_not_sent(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = "".join(f"{number}: what happened then.\n" for number in range(60))
    (tmp_path / "notes.md").write_text(notes)
    monkeypatch.chdir(tmp_path)
    body = {"kind": "dispatch", "brief": notes, "refs": ["notes.md"]}
    envelope = {"id": str(uuid4()), "sender": "alice", "to": "nobody", "body": body}
    answer = invoke("send", "-", input=json.dumps(envelope))
    assert answer.exit_code == 4
    assert "also stand in notes.md: refer to it" in answer.stdout


def test_a_secret_is_refused_by_its_place_and_never_repeated(
    invoke: Callable[..., Result], last_json: Any
) -> None:
    answer = invoke("send", "--to", "nobody", "password: hunter2-Prod!", "--json")
    assert (answer.exit_code, "hunter2" in answer.output) == (4, False)
    told = last_json(answer.stdout)
    assert (told["state"], told["violations"][0]["path"]) == ("refused", "$.body.brief")


def test_text_that_is_blank_is_refused_without_an_id(invoke: Callable[..., Result]) -> None:
    answer = invoke("send", "--to", "nobody", " ")
    assert answer.exit_code == 4
    assert "handoff" not in answer.stdout


def test_an_envelope_goes_out_in_the_name_of_its_sender(
    invoke: Callable[..., Result], jack: str, last_json: Any
) -> None:
    envelope = {
        "id": str(uuid4()),
        "sender": "alice",
        "to": jack,
        "body": {"kind": "dispatch", "brief": "anything"},
    }
    assert invoke("send", "-", "--wait", input=json.dumps(envelope)).exit_code == 0
    shown = last_json(invoke("show", envelope["id"], "--json").stdout)
    assert shown["handoffs"][0]["events"][0]["actor"] == "alice"


def test_the_same_id_with_other_content_is_an_error(
    invoke: Callable[..., Result], jack: str, last_json: Any
) -> None:
    envelope: dict[str, Any] = {"id": str(uuid4()), "sender": "alice", "to": jack}
    for brief, code in (("one", 0), ("one", 0), ("two", 1)):
        body = {"kind": "dispatch", "brief": brief}
        answer = invoke("send", "-", "--json", input=json.dumps({**envelope, "body": body}))
        assert answer.exit_code == code
    assert "already stored with another body" in last_json(answer.stdout)["error"]


def test_a_file_that_was_sent_already_is_told_where_it_stands(
    invoke: Callable[..., Result], jack: str, tmp_path: Path
) -> None:
    tree = document()
    tree["to_agent"] = {"agent_id": jack}
    file = tmp_path / "handoff.json"
    file.write_text(json.dumps(tree))
    assert invoke("send", str(file)).exit_code == 0
    again = invoke("send", str(file))
    assert again.exit_code == 1
    assert "was sent already, by another sender" in again.stderr
    assert f"`batonbus show {tree['handoff_id']}`" in again.stderr


def test_work_and_task_go_with_the_text(
    invoke: Callable[..., Result], jack: str, last_json: Any
) -> None:
    arguments = ["--work", "parser", "--task", "TASK-07", "--json"]
    sent = last_json(invoke("send", "--to", jack, "-", *arguments, input="anything").stdout)
    shown = last_json(invoke("show", sent["handoff_id"], "--json").stdout)
    envelope = shown["handoffs"][0]["envelope"]
    assert (envelope["work"], envelope["task"]) == ("parser", "TASK-07")
    assert envelope["body"]["brief"] == "anything"


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.json"],
        ["-", "--work", "parser"],
        ["--to", "jack", "x", "--timeout", "3"],
        ["--to", "jack"],
    ],
)
def test_a_wrong_call_is_a_usage_error(invoke: Callable[..., Result], arguments: list[str]) -> None:
    assert invoke("send", *arguments).exit_code == 2


def test_without_a_bus_the_error_says_how_to_start_one(
    invoke: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    last_json: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = invoke("send", "--to", "jack", "x", "--json")
    assert answer.exit_code == 1
    assert answer.stderr.startswith("error: no bus in this folder")
    assert "batonbus up" in last_json(answer.stdout)["error"]


def test_ctrl_c_while_waiting_is_exit_code_130_without_a_traceback(
    shell: Any, bus_folder: Path, tmp_path: Path
) -> None:
    """A question to a person waits for as long as it takes."""
    question = {"id": str(uuid4()), "sender": "alice", "to": "absent"}
    file = tmp_path / "question.json"
    file.write_text(json.dumps({**question, "body": {"kind": "question", "text": "Which?"}}))
    with shell.running("send", str(file), "--wait", folder=bus_folder) as sent:
        sent.hear("held by receipt-keeper")
        assert sent.end(signal.SIGINT) == 130
    assert not any("Traceback" in line for line in sent.err)
