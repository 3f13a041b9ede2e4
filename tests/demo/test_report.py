"""What is told of a run, from events made by hand."""

from typing import Any

import pytest
from made_ledger import MadeLedger, task_parents
from msgspec.structs import replace

from batonbus.demo.report import Hop, Receipts, Report, Run, WorkReport
from batonbus.rules.chain import RECEIPT_KEEPER
from batonbus_schemas import Envelope, TaskResult

DONE = TaskResult.passed("Done.")
WORK = WorkReport(tasks=6, failed=(), commits=6, repository="/project", tests_pass=True)


def read_hops(ledger: MadeLedger) -> list[Hop]:
    return Run(ledger.events).hops()


def read_report(ledger: MadeLedger, work: WorkReport = WORK) -> Report:
    run = Run(ledger.events)
    return run.report(run.hops(), work, 12.34)


def make_line(ledger: MadeLedger, *roles: str, **fields: Any) -> list[Envelope]:
    """Stages one after the other: FULL is one step back, SUMMARY two."""
    line: list[Envelope] = []
    for role in roles:
        made = ledger.run("scheduler", role, full=line[-1:], summary=line[-2:-1], **fields)
        line.append(made)
    return line


def test_a_hop_is_who_handed_what_to_whom(ledger: MadeLedger) -> None:
    sent = ledger.run("scheduler-1", "builder", work="WORK-01", task="TASK-02")
    (hop,) = read_hops(ledger)
    assert hop.handoff_id == sent.id
    assert (hop.from_, hop.to, hop.work, hop.task) == (
        "scheduler-1",
        "builder",
        "WORK-01",
        "TASK-02",
    )
    assert (hop.attempt, hop.lease, hop.stage, hop.rebuild) == (1, 1, "settled", False)


def test_the_third_stage_sees_one_in_full_one_in_short_and_none_of_the_rest(
    ledger: MadeLedger,
) -> None:
    make_line(ledger, "planner", "builder", "verifier", "committer")
    first, *_, last = read_hops(ledger)
    assert (last.full, last.summary, last.dropped) == (("verifier",), ("builder",), ("planner",))
    assert (last.bytes_before, last.bytes_after) == (300, 130)
    assert (first.full, first.summary, first.dropped) == ((), (), ())
    assert (first.bytes_before, first.bytes_after) == (0, 0)


def test_a_step_of_another_task_is_named_with_its_task(ledger: MadeLedger) -> None:
    before = make_line(ledger, "builder", "committer", task="TASK-01")
    ledger.run(
        "scheduler", "builder", full=before[-1:], task="TASK-02", task_parents=task_parents(*before)
    )
    hop = read_hops(ledger)[-1]
    assert hop.full == ("TASK-01 committer",)
    assert hop.dropped == ("TASK-01 builder",)


def test_a_step_that_two_ways_lead_to_is_counted_once(ledger: MadeLedger) -> None:
    first = ledger.run("closer", "researcher", task="TASK-01")
    beside = [ledger.run("closer", role, full=[first], task="TASK-02") for role in ("a", "b")]
    ledger.run("closer", "reviewer", full=beside, task="TASK-03")
    hop = read_hops(ledger)[-1]
    assert hop.dropped == ("TASK-01 researcher",)
    assert hop.bytes_before == 300


def test_hops_stand_in_the_order_in_which_they_began(ledger: MadeLedger) -> None:
    early = ledger.send("demo", "closer")
    ledger.run("demo", "coder")
    ledger.deliver(early)
    assert [hop.to for hop in read_hops(ledger)] == ["closer", "coder"]


def test_a_receipt_is_counted_from_the_sending_to_the_first_answer(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "builder")
    ledger.deliver(sent)
    ledger.time += 3
    ledger.add(sent, "held", RECEIPT_KEEPER, reason="busy")
    ledger.accept(sent, "builder-1")
    assert read_hops(ledger)[0].receipt_ms == 3200.0


def test_a_handoff_that_nobody_answered_has_no_receipt(ledger: MadeLedger) -> None:
    ledger.deliver(ledger.send("demo", "builder"))
    assert read_hops(ledger)[0].receipt_ms is None
    assert read_report(ledger).receipt_ms == Receipts(p50=0.0, max=0.0)


def test_a_handed_on_handoff_begins_where_its_parent_is_settled(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "coder")
    ledger.deliver(sent)
    ledger.accept(sent, "worker-code")
    child = ledger.settle(sent, DONE, then="reviewer")
    ledger.deliver(child, full=[sent])
    ledger.accept(child, "reviewer")
    hop = read_hops(ledger)[1]
    assert (hop.from_, hop.to, hop.full) == ("worker-code", "reviewer", ("coder",))
    assert hop.receipt_ms == 200.0


def test_a_takeover_is_a_second_lease_of_the_same_attempt(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "tester")
    ledger.deliver(sent)
    ledger.accept(sent, "tester-1")
    ledger.accept(sent, "tester-2", lease=2)
    ledger.settle(sent, DONE)
    (hop,) = read_hops(ledger)
    assert (hop.attempt, hop.lease) == (1, 2)
    assert read_report(ledger).takeovers == 1


def test_an_attempt_after_a_failed_one_is_no_takeover(ledger: MadeLedger) -> None:
    sent = ledger.send("demo", "tester")
    ledger.deliver(sent)
    ledger.accept(sent, "tester-1")
    ledger.add(sent, "failed", "tester-1", accepted=3, reason="a full disk")
    ledger.accept(sent, "tester-1", lease=2, attempt=2)
    assert read_hops(ledger)[0].attempt == 2
    assert read_report(ledger).takeovers == 0


def test_a_builder_of_a_later_attempt_is_a_rebuild_and_a_verifier_is_none(
    ledger: MadeLedger,
) -> None:
    for attempt in (1, 2):
        for role in ("builder", "verifier"):
            ledger.run("scheduler", role, task="TASK-01", attempt=attempt)
    assert read_report(ledger).rebuilds == 1


def test_an_open_handoff_is_lost(ledger: MadeLedger) -> None:
    ledger.run("demo", "builder")
    ledger.deliver(ledger.send("demo", "builder"))
    report = read_report(ledger)
    assert (report.handoffs, report.settled, report.lost) == (2, 1, 1)


def test_a_handoff_that_was_never_delivered_is_counted_and_is_no_hop(ledger: MadeLedger) -> None:
    ledger.send("demo", "builder")
    assert read_hops(ledger) == []
    assert read_report(ledger).handoffs == 1


def test_an_event_that_is_not_allowed_changes_nothing(ledger: MadeLedger) -> None:
    sent = ledger.run("demo", "builder")
    ledger.add(sent, "accepted", "a-stranger", attempt=1, lease=2)
    (hop,) = read_hops(ledger)
    assert (hop.stage, hop.lease) == ("settled", 1)


def test_the_report_has_the_middle_and_the_longest_receipt(ledger: MadeLedger) -> None:
    for waited in (0.0, 1.0, 5.0):
        sent = ledger.send("demo", "builder")
        ledger.deliver(sent)
        ledger.time += waited
        ledger.accept(sent, "builder-1")
    assert read_report(ledger).receipt_ms == Receipts(p50=1200.0, max=5200.0)


def test_the_report_has_one_row_a_hop_and_the_ends_of_the_work(ledger: MadeLedger) -> None:
    make_line(ledger, "builder", "verifier", task="TASK-01")
    report = read_report(ledger)
    assert [(row.to, row.full, row.task) for row in report.window] == [
        ("builder", (), "TASK-01"),
        ("verifier", ("builder",), "TASK-01"),
    ]
    assert (report.tasks, report.commits, report.repository) == (6, 6, "/project")
    assert report.seconds == 12.3
    assert report.good


@pytest.mark.parametrize(
    "work",
    [
        replace(WORK, commits=5),
        replace(WORK, failed=("TASK-03",)),
        replace(WORK, tests_pass=False),
    ],
    ids=["a commit is missing", "a task failed", "the tests fail"],
)
def test_a_run_is_not_good_where(ledger: MadeLedger, work: WorkReport) -> None:
    ledger.run("demo", "builder")
    assert read_report(ledger).good
    assert not read_report(ledger, work).good


def test_a_run_is_not_good_where_a_handoff_is_open(ledger: MadeLedger) -> None:
    ledger.deliver(ledger.send("demo", "builder"))
    assert not read_report(ledger).good
