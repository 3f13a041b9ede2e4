"""`batonbus inbox` and `batonbus answer`: a person sees the questions, and answers them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from typer.testing import Result

from batonbus import Bus
from batonbus.cli.answering import choose
from batonbus.cli.outcome import Outcome, advise
from batonbus.cli.output import duration
from batonbus.rules.receipts import PERSON
from batonbus.run.core import open_operator
from batonbus.run.inbox import Inbox
from batonbus.work.cancelling import cancel_work
from batonbus_schemas import Body, Dispatch, Envelope, Question

LIMIT = 10.0


@pytest.fixture
def role() -> str:
    """A role that no other test asks."""
    return f"lead-{uuid4().hex[:8]}"


@pytest.fixture
def ask(bus_folder: Path, role: str) -> Iterator[Callable[[Body], UUID]]:
    """Hands this over to the role; returns when it waits there. What is left open is cancelled."""

    url = (bus_folder / ".batonbus" / "address").read_text()

    async def hand_over(body: Body) -> UUID:
        with anyio.fail_after(LIMIT):
            async with (
                Bus(url, actor="builder-1") as bus,
                open_operator(url, fleet="default") as core,
            ):
                sent = await bus.send(role, body, work=role, task="TASK-07")
                inbox = Inbox(core)
                while True:
                    if sent.handoff_id in {it.chain.id for it in await inbox.read(role)}:
                        return sent.handoff_id
                    await anyio.sleep(0.02)

    async def clear() -> None:
        async with open_operator(url, fleet="default") as core:
            await cancel_work(core, role, "the test is over")

    yield lambda body: anyio.run(hand_over, body)
    anyio.run(clear)


DEPLOY = Question(text="Which\x1b[2J way?", options=("blue green", "Canary", "never"))


def test_whoever_sends_a_question_is_told_where_a_person_sees_it() -> None:
    envelope = Envelope(id=uuid4(), sender="builder-1", to="lead", body=DEPLOY)
    reason = PERSON.format(role="lead")
    held = Outcome(handoff_id=str(envelope.id), state="held", by="receipt-keeper", reason=reason)
    assert "`batonbus inbox lead`" in advise(held, envelope, 600)


def test_an_empty_inbox_says_so(invoke: Callable[..., Result], role: str, last_json: Any) -> None:
    answer = invoke("inbox", role)
    assert (answer.exit_code, answer.stdout) == (0, f"nothing waits for {role}\n")
    assert last_json(invoke("inbox", role, "--json").stdout)["waiting"] == []


def test_the_inbox_shows_who_asks_what_since_when_the_oldest_first(
    invoke: Callable[..., Result], role: str, ask: Callable[[Body], UUID]
) -> None:
    one, two = ask(DEPLOY), ask(Dispatch(brief="Water the plants."))
    head, first, second = invoke("inbox", role).stdout.splitlines()
    assert head.split() == ["id", "from", "work", "task", "asked", "question", "options"]
    for text in (str(one)[:8], "builder-1", role, "TASK-07", " s ago", "Which\ufffd[2J way?"):
        assert text in first
    assert first.rstrip().endswith("1 blue green, 2 Canary, 3 never")
    assert str(two)[:8] in second
    assert "Water the plants." in second


def test_the_inbox_gives_programs_the_whole_question(
    invoke: Callable[..., Result], role: str, ask: Callable[[Body], UUID], last_json: Any
) -> None:
    handoff_id = ask(DEPLOY)
    (waiting,) = last_json(invoke("inbox", role, "--json").stdout)["waiting"]
    assert 0 <= waiting.pop("waited_s") < LIMIT
    assert waiting.pop("state") in {"delivered", "held"}
    assert waiting == {
        "handoff_id": str(handoff_id),
        "sender": "builder-1",
        "work": role,
        "task": "TASK-07",
        "deadline": None,
        "is_question": True,
        "asked": DEPLOY.text,
        "options": list(DEPLOY.options),
    }


def test_an_answer_is_one_of_the_options_and_only_the_first_one_counts(
    invoke: Callable[..., Result], role: str, ask: Callable[[Body], UUID], last_json: Any
) -> None:
    handoff_id = ask(DEPLOY)
    refused = invoke("answer", str(handoff_id), "maybe")
    assert refused.exit_code == 2
    assert "'maybe' is none of its 3 options: 1 blue green, 2 Canary, 3 never" in refused.stderr
    failed = invoke("answer", str(handoff_id), "never", "--fail", "--json")
    assert failed.exit_code == 2
    assert "omit --fail" in last_json(failed.stdout)["error"]

    answered = invoke("answer", str(handoff_id)[:13], "2", "--as", "ada", "--json")
    assert answered.exit_code == 0
    assert last_json(answered.stdout) == {
        "handoff_id": str(handoff_id),
        "by": "person-ada",
        "status": "PASS",
        "answer": "Canary",
    }
    assert invoke("inbox", role).stdout == f"nothing waits for {role}\n"

    again = invoke("answer", str(handoff_id), "never")
    assert again.exit_code == 1
    assert f"{handoff_id} was answered by person-ada at 2" in again.stderr
    assert again.stderr.endswith(" UTC: Canary\n")


def test_without_options_any_text_is_an_answer_and_dash_reads_it(
    invoke: Callable[..., Result], ask: Callable[[Body], UUID]
) -> None:
    handoff_id = ask(Question(text="What is it called?"))
    assert invoke("answer", str(handoff_id), "-", input=" \n").exit_code == 2
    answer = invoke("answer", str(handoff_id), "-", "--as", "ada", input="Batonbus,\nI think.\n")
    assert answer.exit_code == 0
    assert answer.stdout == f"person-ada answered {handoff_id}: Batonbus,\nI think.\n"


@pytest.mark.parametrize(("options", "status"), [([], "PASS"), (["--fail"], "FAIL")])
def test_work_of_any_kind_can_be_done_by_hand(
    invoke: Callable[..., Result],
    ask: Callable[[Body], UUID],
    last_json: Any,
    options: list[str],
    status: str,
) -> None:
    handoff_id = ask(Dispatch(brief="Water the plants."))
    assert invoke("answer", str(handoff_id), "It rained.", *options).exit_code == 0
    (shown,) = last_json(invoke("show", str(handoff_id), "--json").stdout)["handoffs"]
    assert (shown["state"], shown["result"]["status"]) == ("settled", status)
    assert shown["result"]["context_handoff"]["what"] == "It rained."


@pytest.mark.parametrize("handoff_id", [str(uuid4()), str(uuid4())[:13]], ids=["whole", "short"])
def test_an_unknown_handoff_cannot_be_answered(
    invoke: Callable[..., Result], handoff_id: str
) -> None:
    answer = invoke("answer", handoff_id, "yes")
    assert answer.exit_code == 1
    assert handoff_id in answer.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["inbox", "no role"],
        ["answer", "not-an-id", "yes"],
        ["answer", "12345678", "yes", "--as", "a.b"],
        ["answer", "12345678", "yes", "--as", "x" * 58],
    ],
    ids=" ".join,
)
def test_what_cannot_be_a_name_is_a_usage_error(
    invoke: Callable[..., Result], arguments: list[str]
) -> None:
    assert invoke(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("options", "text", "chosen"),
    [
        ((), " as it is", " as it is"),
        (("yes", "no"), "no", "no"),
        (("yes", "no"), "YES", "yes"),
        (("yes", "no"), "2", "no"),
        (("yes", "no"), "0", None),
        (("yes", "no"), "3", None),
        (("yes", "no"), "²", None),
        (("yes", "no"), "n", None),
        (("2", "1"), "1", "1"),
        (("Yes", "YES"), "yes", None),
        (("Yes", "YES"), "YES", "YES"),
    ],
)
def test_an_option_is_meant_by_its_words_or_its_number(
    options: tuple[str, ...], text: str, chosen: str | None
) -> None:
    assert choose(options, text) == chosen


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0.0 s"), (59.94, "59.9 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_a_time_span_is_said_in_its_largest_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said
