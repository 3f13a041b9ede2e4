"""The table of a run, as wide and as narrow terminals show it."""

import io

import pytest
from made_ledger import MadeLedger, task_parents
from msgspec.structs import replace
from rich.console import Console

from batonbus.cli.demo import HopsTable, summary, window
from batonbus.demo.report import Hop, Run, WorkReport


def draw(hops: list[Hop], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(HopsTable(hops))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture
def hops(ledger: MadeLedger) -> list[Hop]:
    """Two tasks that overlap, the second of which needs the first."""
    fields = {"work": "WORK-01", "task": "TASK-01"}
    built = ledger.run("scheduler-1", "builder", **fields)
    verified = ledger.run("scheduler-1", "verifier", full=[built], **fields)
    committed = ledger.run("scheduler-1", "committer", full=[verified], summary=[built], **fields)
    ledger.run(
        "scheduler-1",
        "builder",
        full=[committed],
        work="WORK-01",
        task="TASK-02",
        stage_parents=(),
        task_parents=task_parents(committed),
    )
    return Run(ledger.events).hops()


def test_a_wide_table_has_a_column_for_each_part_of_a_window(hops: list[Hop]) -> None:
    assert [" ".join(line.split()) for line in draw(hops, 120)] == [
        "from → to FULL SUMMARY dropped bytes receipt att. lease",
        "TASK-01",
        "scheduler-1 → builder 200 ms 1 1",
        "scheduler-1 → verifier builder 100 → 100 200 ms 1 1",
        "scheduler-1 → committer verifier builder 200 → 130 200 ms 1 1",
        "TASK-02",
        "scheduler-1 → builder TASK-01 2 older 300 → 100 200 ms 1 1",
    ]


def test_a_narrow_table_has_one_line_for_each_part(hops: list[Hop]) -> None:
    lines = draw(hops, 80)
    assert [" ".join(line.split()) for line in lines[-5:]] == [
        "scheduler-1 → committer FULL verifier 200 → 130 200 ms 1 1",
        "SUMMARY builder",
        "TASK-02",
        "scheduler-1 → builder FULL TASK-01 300 → 100 200 ms 1 1",
        "dropped 2 older",
    ]


@pytest.mark.parametrize("width", [80, 100, 116, 120, 160])
def test_no_line_is_wider_than_the_terminal_and_no_handoff_is_broken(
    hops: list[Hop], width: int
) -> None:
    many = tuple(f"TASK-{number:02} committer" for number in range(1, 5))
    stressed = replace(hops[-1], full=many, summary=many, bytes_before=99_999, receipt_ms=29_999.0)
    lines = draw([*hops, stressed], width)
    assert max(map(len, lines)) <= width
    assert sum("scheduler-1 → " in line for line in lines) == len(hops) + 1


def test_what_was_dropped_is_named_while_it_is_short(hops: list[Hop]) -> None:
    short = replace(hops[-1], dropped=("reviewer", "worker-code"))
    assert window(short)["dropped"] == "reviewer, worker-code"
    assert window(hops[-1])["dropped"] == "2 older"
    assert window(hops[0])["dropped"] == ""


def test_a_handoff_without_a_receipt_says_so(hops: list[Hop]) -> None:
    assert " none " in draw([replace(hops[0], receipt_ms=None)], 120)[-1]


def test_the_sum_names_what_was_not_committed_and_where_the_repository_is_kept(
    ledger: MadeLedger, hops: list[Hop]
) -> None:
    run = Run(ledger.events)
    closed = WorkReport(
        tasks=2, failed=("TASK-02",), commits=1, repository="/kept", tests_pass=False
    )
    report = run.report(hops, closed, 9.87)
    assert summary(report, kept=True) == [
        "4 handoffs: 4 settled, 0 lost, 0 taken over from killed agents.",
        "2 tasks: 1 commits, 0 rebuilt after a failed verification, not committed: TASK-02.",
        "The repository's own tests FAIL.",
        "Receipts: p50 200 ms, max 200 ms (promised: 30,000).",
        "9.9 s, the start of fourteen processes included.",
        "The repository: /kept",
    ]
    assert "/kept" not in str(summary(report, kept=False))
