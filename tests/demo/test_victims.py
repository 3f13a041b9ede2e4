"""Who is killed, and what is told meanwhile, by events made by hand."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from subprocess import Popen

import anyio
import pytest
from made_ledger import MadeLedger

from batonbus.demo.victims import Victim, Witness
from batonbus.narration import Narrator
from batonbus.rules.chain import RECEIPT_KEEPER, WINDOW_MANAGER
from batonbus_schemas import TaskResult

DONE = TaskResult.passed("Read it.\nNo findings.")


def tell(ledger: MadeLedger, work: str | None = None) -> list[str]:
    """The lines of a whole ledger, without their seconds and ids."""
    lines: list[str] = []
    narrator = Narrator(lines.append, work=work)
    for stored in ledger.events:
        narrator.hear(stored)
    return [line[len("  0.0 s  12345678  ") :] for line in lines]


def test_a_handoff_is_told_from_its_delivery_to_its_result(ledger: MadeLedger) -> None:
    sent = ledger.send("scheduler-1", "builder", task="TASK-02")
    ledger.deliver(sent)
    ledger.accept(sent, "builder-1")
    ledger.settle(sent, DONE)
    assert tell(ledger) == [
        "TASK-02  scheduler-1 → builder: Do what a builder does.",
        "TASK-02  builder-1 accepts",
        "TASK-02  builder-1 settled: PASS, Read it.",
    ]


def test_what_was_handed_on_in_the_same_write_is_told_like_any_other(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "coder")
    ledger.deliver(sent)
    ledger.accept(sent, "worker-code")
    ledger.deliver(ledger.settle(sent, DONE, then="reviewer"), full=[sent])
    assert tell(ledger)[-1].strip() == "worker-code → reviewer: Do what a reviewer does."


def test_a_takeover_and_a_new_attempt_are_told_apart(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "tester")
    ledger.deliver(sent)
    ledger.accept(sent, "tester-1")
    ledger.accept(sent, "tester-2", lease=2)
    ledger.add(sent, "failed", "tester-2", accepted=4, reason="a full disk")
    ledger.accept(sent, "tester-2", lease=3, attempt=2)
    assert [line.strip() for line in tell(ledger)[2:]] == [
        "tester-2 takes over (attempt 1, lease 2)",
        "tester-2 failed: a full disk",
        "tester-2 accepts (attempt 2)",
    ]


def test_who_answers_for_the_receiver_gives_a_reason(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "tester")
    ledger.add(sent, "overdue", RECEIPT_KEEPER, reason="no agent is listening as tester")
    ledger.add(sent, "refused", WINDOW_MANAGER)
    assert [line.strip() for line in tell(ledger)] == [
        "receipt-keeper overdue: no agent is listening as tester",
        "window-manager refused",
    ]


def test_what_the_ledger_refused_is_told_once(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "tester")
    ledger.deliver(sent)
    for again in range(2):
        ledger.accept(sent, f"tester-{again + 1}")
        ledger.add(sent, "failed", "tester-1", accepted=3, reason="a full disk")
    ledger.accept(sent, "tester-1", lease=2, attempt=2)
    ledger.add(sent, "failed", "tester-1", accepted=7, reason="a full disk")
    assert [line.strip() for line in tell(ledger)[1:]] == [
        "tester-1 accepts",
        "tester-1 failed: a full disk",
        "tester-1 accepts (attempt 2)",
        "tester-1 failed: a full disk",
    ]


def test_another_work_is_not_told_of(ledger: MadeLedger) -> None:
    ledger.run("demo", "builder", work="WORK-01")
    ledger.run("demo", "closer", work="WORK-02")
    told = tell(ledger, work="WORK-01")
    assert len(told) == 3
    assert all("builder" in line for line in told)


def test_words_of_others_are_one_short_line_that_drives_no_terminal(ledger: MadeLedger) -> None:
    for what in ("\x1b[2Jcleared\u202e", "long " * 100, " \n "):
        sent = ledger.send("demo", "coder")
        ledger.deliver(sent)
        ledger.accept(sent, "c")
        ledger.settle(sent, TaskResult(status="PASS", summary=what))
    cleared, long, blank = (line.strip() for line in tell(ledger) if "settled" in line)
    assert (
        cleared == "c settled: PASS, \N{REPLACEMENT CHARACTER}[2Jcleared\N{REPLACEMENT CHARACTER}"
    )
    assert long.endswith("…")
    assert len(long) < 140
    assert blank == "c settled: PASS,"


def test_a_result_that_cannot_be_read_is_told_as_such(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "coder")
    ledger.deliver(sent)
    ledger.accept(sent, "c")
    ledger.add(sent, "settled", "c", b"{}", accepted=3)
    assert tell(ledger)[-1].strip() == "c settled: a result that cannot be read"


Start = Callable[[], "Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs that wait; none is left."""
    started: list[Popen[bytes]] = []

    def one() -> "Popen[bytes]":
        started.append(Popen([sys.executable, "-c", "import signal; signal.pause()"]))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.wait(timeout=10)


@pytest.mark.anyio
async def test_the_first_one_at_the_victims_work_is_killed_and_nobody_else(
    ledger: MadeLedger, start: Start
) -> None:
    processes = {actor: start() for actor in ("builder-1", "builder-2", "verifier-1")}
    pids = {actor: process.pid for actor, process in processes.items()}
    victim = Victim(role="builder", task="TASK-06", pid=pids.__getitem__)
    for to, task, actor in (
        ("verifier", "TASK-06", "verifier-1"),
        ("builder", "TASK-05", "builder-1"),
        ("builder", "TASK-06", "builder-2"),
        ("builder", "TASK-06", "builder-1"),
    ):
        sent = ledger.send("scheduler-1", to, task=task, work="WORK-01")
        ledger.deliver(sent)
        ledger.accept(sent, actor)
    lines: list[str] = []
    async with anyio.create_task_group() as tasks:
        witness = Witness(lines.append, 0.0, {"WORK-01": "work"}, tasks, [victim])
        for stored in ledger.events:
            witness.hear(stored)
    assert processes["builder-2"].wait(timeout=10) == -signal.SIGKILL
    os.kill(pids["builder-1"], 0)
    assert [it.poll() for it in processes.values()] == [None, -signal.SIGKILL, None]
    assert lines[-1].endswith("work      TASK-06  kill -9 builder-2, in the middle of its work")
    assert sum("kill" in line for line in lines) == 1
