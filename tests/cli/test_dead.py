"""`batonbus dead`: looking at dead letters, trying them again, letting go of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from typer.testing import Result

from batonbus.rules.chain import OPERATOR, child_id, retry_id
from batonbus.run.core import open_core
from batonbus.testing import FAST
from batonbus.wire.ledger import Draft
from batonbus.wire.subjects import NOBODY, Subject
from batonbus_schemas import Dispatch, Envelope, Receipt, encode

FLEET = "graveyard"

SECRET = "ghp_" + "aB3dE5gH7jK9" * 3
"""Of the form of a token, and none."""

AGENTS = """
from batonbus import Agent, Context
from batonbus_schemas import Dispatch, TaskResult

weak = Agent("weak", slots=8)

@weak.handles
async def work(task: Dispatch, ctx: Context) -> TaskResult:
    if "break" in task.brief:
        raise RuntimeError("[red]broken[/red]\\x1b[2J")
    return TaskResult.passed(f"Did: {task.brief}")
"""


@pytest.fixture(scope="module")
def weak(shell: Any, bus_folder: Path) -> Iterator[Path]:
    """A role whose agent fails at what it is told to break."""
    (bus_folder / "weaklings.py").write_text(AGENTS)
    with shell.agent("weaklings:weak", folder=bus_folder):
        yield bus_folder


@pytest.fixture
def dead(weak: Path, invoke: Callable[..., Result], last_json: Any) -> UUID:
    """A handoff that failed three times."""
    place = ["--work", "shop", "--task", "TASK-01"]
    sent = invoke("send", "--to", "weak", "Please break it.", *place, "--wait", "--json")
    assert sent.exit_code == 6
    return UUID(last_json(sent.stdout)["handoff_id"])


def listed(invoke: Callable[..., Result], handoff_id: UUID, *more: str) -> dict[str, Any] | None:
    answer = invoke("dead", "list", "--json", *more)
    found = json.loads(answer.stdout.splitlines()[-1])["dead"]
    return next((it for it in found if it["handoff_id"] == str(handoff_id)), None)


def test_a_dead_letter_is_listed_with_what_happened(
    invoke: Callable[..., Result], dead: UUID
) -> None:
    row = listed(invoke, dead, "--work", "shop")
    assert row is not None
    assert (row["task"], row["to"], len(row["attempts"])) == ("TASK-01", "weak", 3)
    assert row["error"].startswith("RuntimeError: [red]broken[/red]")
    assert row["retry"] is None
    assert listed(invoke, dead, "--work", "elsewhere") is None
    table = invoke("dead", "list").stdout
    assert str(dead)[:8] in table
    assert "\x1b" not in table


def test_an_item_of_the_list_is_the_head_of_what_is_shown(
    invoke: Callable[..., Result], dead: UUID, last_json: Any
) -> None:
    shown = last_json(invoke("dead", "show", str(dead), "--json").stdout)
    beyond = {name: shown.pop(name) for name in ("fleet", "envelope", "events")}
    assert listed(invoke, dead) == shown
    assert all(beyond.values())


def test_a_dead_letter_is_shown_by_the_beginning_of_its_id(
    invoke: Callable[..., Result], dead: UUID, last_json: Any
) -> None:
    answer = invoke("dead", "show", str(dead)[:12], "--json")
    shown = last_json(answer.stdout)
    assert [it["attempt"] for it in shown["attempts"]] == [1, 2, 3]
    assert {it["agent"][:5] for it in shown["attempts"]} == {"weak-"}
    assert shown["reason"].startswith("failed 3 of 3 attempts")
    assert shown["envelope"]["body"]["brief"] == "Please break it."
    assert [it["kind"] for it in shown["events"]][-1] == "dead"
    for text in (f"handoff {dead}: dead since", "last error: RuntimeError", "Please break it."):
        assert text in answer.stderr


def test_what_is_no_dead_letter_is_an_error(invoke: Callable[..., Result], weak: Path) -> None:
    for command in (["show"], ["retry"], ["purge", "--yes"]):
        answer = invoke("dead", *command, str(uuid4()))
        assert answer.exit_code == 1
        assert "`batonbus dead list` names them" in answer.stderr


def test_a_retry_prints_its_receipt_and_waits_for_its_result(
    invoke: Callable[..., Result], dead: UUID, last_json: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/break/mend/")
    answer = invoke("dead", "retry", str(dead), "--edit", "--wait", "--json")
    assert answer.exit_code == 0
    outcome = last_json(answer.stdout)
    assert outcome["handoff_id"] == str(retry_id(dead))
    assert outcome["result"]["context_handoff"]["what"] == "Did: Please mend it."
    row = listed(invoke, dead)
    assert row is not None
    assert row["retry"] == {"handoff_id": str(retry_id(dead)), "state": "settled"}
    again = invoke("dead", "retry", str(dead))
    assert again.exit_code == 1
    assert f"was retried already by {retry_id(dead)}, which is settled" in again.stderr


def test_text_that_is_left_as_it_is_is_a_plain_retry(
    invoke: Callable[..., Result], dead: UUID, last_json: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    answer = invoke("dead", "retry", str(dead), "--edit", "--json")
    assert (answer.exit_code, last_json(answer.stdout)["state"]) == (0, "accepted")


@pytest.mark.parametrize(
    ("editor", "code", "said"),
    [
        ("sed -i s/brief/breif/", 4, ["$.body.breif", "$.body.brief"]),
        ("truncate -s 5", 4, ["not JSON"]),
        (f"sed -i 's/break/{SECRET}/'", 4, ["$.body.brief"]),
        ("false", 1, ["the editor 'false' failed"]),
        ("no-such-editor", 1, ["nothing was sent"]),
    ],
)
def test_what_is_wrong_with_an_edited_body_is_said_and_nothing_is_sent(
    invoke: Callable[..., Result],
    dead: UUID,
    monkeypatch: pytest.MonkeyPatch,
    editor: str,
    code: int,
    said: list[str],
) -> None:
    monkeypatch.setenv("EDITOR", editor)
    answer = invoke("dead", "retry", str(dead), "--edit")
    assert answer.exit_code == code
    assert all(text in answer.output for text in said)
    row = listed(invoke, dead)
    assert row is not None
    assert row["retry"] is None


def test_editing_needs_an_editor(
    invoke: Callable[..., Result], dead: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EDITOR", "VISUAL"):
        monkeypatch.delenv(name, raising=False)
    answer = invoke("dead", "retry", str(dead), "--edit")
    assert (answer.exit_code, "set EDITOR" in answer.stderr) == (1, True)


def test_an_editor_that_leaves_no_file_sends_nothing(
    invoke: Callable[..., Result], dead: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    for editor in ("false", "no-such-editor", "rm", "'unbalanced"):
        monkeypatch.setenv("VISUAL", editor)
        answer = invoke("dead", "retry", str(dead), "--edit")
        assert answer.exit_code == 1
        assert "nothing was sent" in answer.stderr


class Graveyard:
    """A fleet on the same server in which nothing runs: its handoffs are written by hand."""

    def __init__(self, url: str) -> None:
        self.url = url

    def bury(self, *, work: str = "adhoc", over: bool = True, child_of: UUID | None = None) -> UUID:
        handoff_id = uuid4() if child_of is None else child_id(child_of)
        sent = Envelope(id=handoff_id, sender=OPERATOR, to="nobody", body=Dispatch(brief="x"))
        dead = Receipt(handoff_id=handoff_id, state="dead", by=OPERATOR, reason="nobody took it")
        events: list[tuple[Any, bytes]] = [("sent", encode(sent))] if child_of is None else []
        anyio.run(self._write, handoff_id, work, [*events, *([("dead", encode(dead))] * over)])
        return handoff_id

    async def _write(self, handoff_id: UUID, work: str, events: list[tuple[Any, bytes]]) -> None:
        async with open_core(self.url, OPERATOR, fleet=FLEET, settings=FAST) as core:
            tail = 0
            for kind, payload in events:
                subject = Subject(FLEET, handoff_id, kind, work, OPERATOR, NOBODY)
                tail = await core.ledger.append(Draft(subject=subject, payload=payload), tail=tail)


@pytest.fixture
def graveyard(bus_folder: Path) -> Iterator[Graveyard]:
    made = Graveyard((bus_folder / ".batonbus" / "address").read_text())
    yield made
    anyio.run(_empty, made.url)


async def _empty(url: str) -> None:
    async with open_core(url, OPERATOR, fleet=FLEET, settings=FAST) as core:
        await core.connection.api(f"STREAM.PURGE.{core.ledger.stream}")


def purge(
    invoke: Callable[..., Result], *arguments: str, answer: str | None = None
) -> tuple[Result, Any]:
    result = invoke("dead", "purge", *arguments, "--fleet", FLEET, "--json", input=answer)
    lines = result.stdout.splitlines()
    return result, json.loads(lines[-1]) if lines else None


def test_a_purge_exports_before_it_removes(
    invoke: Callable[..., Result], graveyard: Graveyard, tmp_path: Path
) -> None:
    one, other = graveyard.bury(), graveyard.bury()
    result, told = purge(invoke, str(one)[:13], "--yes", "--to", str(tmp_path))
    assert (result.exit_code, told["purged"], told["kept"]) == (0, [str(one)], {})
    lines = [json.loads(line) for line in Path(told["export"]).read_text().splitlines()]
    assert [it["subject"].split(".")[2:4] for it in lines] == [
        [str(one), "sent"],
        [str(one), "dead"],
    ]
    assert listed(invoke, one, "--fleet", FLEET) is None
    assert listed(invoke, other, "--fleet", FLEET) is not None


def test_a_purge_asks_first(
    invoke: Callable[..., Result], graveyard: Graveyard, tmp_path: Path
) -> None:
    one = graveyard.bury()
    result, told = purge(invoke, "--all", "--to", str(tmp_path / "out"), answer="n\n")
    assert (result.exit_code, told["purged"]) == (1, [])
    assert "Dead letters to purge: 1;" in result.stderr
    assert not (tmp_path / "out").exists()
    result, told = purge(invoke, "--all", "--to", str(tmp_path / "out"), answer="")
    assert (result.exit_code, told["purged"]) == (1, [])
    assert "add --yes" in result.stderr
    result, told = purge(invoke, "--all", "--to", str(tmp_path / "out"), answer="y\n")
    assert (result.exit_code, told["purged"]) == (0, [str(one)])


def test_a_purge_of_all_can_leave_the_younger_ones(
    invoke: Callable[..., Result], graveyard: Graveyard, tmp_path: Path
) -> None:
    graveyard.bury()
    result, told = purge(invoke, "--all", "--older-than", "7d", "--yes", "--to", str(tmp_path))
    assert (result.exit_code, told["purged"], told["export"]) == (0, [], None)


def test_a_dead_letter_of_an_open_work_stays(
    invoke: Callable[..., Result], graveyard: Graveyard, tmp_path: Path
) -> None:
    one, still_open = graveyard.bury(work="shop"), graveyard.bury(work="shop", over=False)
    result, told = purge(invoke, str(one), "--yes", "--to", str(tmp_path))
    assert (result.exit_code, told["purged"]) == (1, [])
    assert str(still_open) in told["kept"][str(one)]


@pytest.mark.parametrize(
    "arguments",
    [[], ["5f0c", "--all"], ["--all", "--older-than", "soon"], ["5f0c", "--older-than", "7d"]],
)
def test_a_purge_that_says_nothing_clear_is_a_usage_error(
    invoke: Callable[..., Result], arguments: list[str]
) -> None:
    assert invoke("dead", "purge", *arguments).exit_code == 2


def test_retention_lets_go_of_what_is_over(
    invoke: Callable[..., Result], graveyard: Graveyard, tmp_path: Path, last_json: Any
) -> None:
    over, still_open = graveyard.bury(work="shop"), graveyard.bury(work="site", over=False)
    run = ["retention", "run", "--fleet", FLEET, "--to", str(tmp_path / "out"), "--json"]
    young = last_json(invoke(*run).stdout)
    assert (young["handoffs"], young["kept"], young["export"]) == (0, 2, None)
    dry = invoke(*run, "--older-than", "0s", "--dry-run")
    assert "handoffs that would go: 1; that stay: 1" in dry.stderr
    assert not (tmp_path / "out").exists()
    done = last_json(invoke(*run, "--older-than", "0s").stdout)
    assert (done["handoffs"], done["works"], done["events"]) == (1, {"shop": 1}, 2)
    assert str(over) in Path(done["export"]).read_text()
    assert listed(invoke, over, "--fleet", FLEET) is None
    assert invoke("show", str(still_open), "--fleet", FLEET).exit_code == 0
