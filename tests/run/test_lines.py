"""What is known of a line, in whatever order it is heard."""

import asyncio
import gc
from uuid import UUID, uuid4

import anyio
import anyio.lowlevel
import pytest

from batonbus import Bounced
from batonbus.rules.chain import Chain, Event, Kind, child_id
from batonbus.run.asking import ChainAnswer
from batonbus.run.lines import Line, Lines
from batonbus.wire.ledger import Stored
from batonbus.wire.subjects import Subject
from batonbus_schemas import (
    Dispatch,
    Envelope,
    InvalidMessageError,
    Receipt,
    Settlement,
    TaskResult,
    encode,
)

ROOT = uuid4()
PASSED = Settlement(result=TaskResult.passed(what="done"))


def receipt(line: Line, state: Kind, *, by: str = "worker-1") -> Receipt:
    return Receipt(handoff_id=line.current, state=state, by=by)  # type: ignore[arg-type]


def heard(
    handoff_id: UUID, kind: Kind, content: Receipt | Settlement, *, actor: str = "worker-1"
) -> Stored:
    return Stored(
        event=Event(sequence=0, kind=kind, actor=actor, tail=1, to="test"),
        subject=Subject("default", handoff_id, kind, "adhoc", actor, "test"),
        payload=encode(content),
        headers={},
    )


def watched() -> tuple[Lines, Line]:
    lines, line = Lines(), Line(uuid4())
    lines.watch(line)
    return lines, line


def handing_on(line: Line) -> Settlement:
    following = Envelope(
        id=child_id(line.current), sender="worker-1", to="next", body=Dispatch(brief="x")
    )
    return Settlement(result=PASSED.result, next=following)


def test_a_line_that_has_ended_is_forgotten() -> None:
    for kind in ("refused", "dead", "cancelled"):
        lines, line = watched()
        lines.hear(heard(line.root, kind, receipt(line, kind)))
        assert line.ended
        assert len(lines) == 0
        with pytest.raises(Bounced):
            line.result()
    lines, line = watched()
    lines.hear(heard(line.root, "settled", PASSED))
    assert len(lines) == 0
    assert line.result() == PASSED.result


def test_an_older_answer_that_comes_late_does_not_reopen_a_line() -> None:
    """A question is on its way while its answer is heard: the older answer arrives last."""
    lines, line = watched()
    overdue = ChainAnswer(
        chain=Chain(id=line.root, stage="overdue"), receipt=receipt(line, "overdue")
    )
    lines.hear(heard(line.root, "dead", receipt(line, "dead")))
    lines.hear_asked(line, overdue)
    assert line.ended
    assert len(lines) == 0
    lines, line = watched()
    lines.hear(heard(line.root, "settled", PASSED))
    lines.hear_asked(line, overdue)
    assert line.result() == PASSED.result


def test_a_line_moves_on_with_then_and_hears_its_next_handoff() -> None:
    lines, line = watched()
    lines.hear(heard(line.root, "accepted", receipt(line, "accepted")))
    lines.hear(heard(line.root, "settled", handing_on(line)))
    assert not line.ended
    assert line.current == child_id(line.root)
    assert len(lines) == 1
    lines.hear(heard(line.current, "settled", PASSED))
    assert line.result() == PASSED.result
    assert line.first == receipt(Line(line.root), "accepted")


def test_a_line_hears_nothing_twice_and_nothing_of_others() -> None:
    lines, line = watched()
    lines.hear(heard(line.root, "settled", handing_on(line)))
    lines.hear(heard(line.root, "settled", PASSED))
    lines.hear(heard(uuid4(), "settled", PASSED))
    assert not line.ended
    assert line.current == child_id(line.root)


def test_a_receipt_that_its_writer_puts_in_anothers_mouth_is_not_heard() -> None:
    lines, line = watched()
    lines.hear(heard(line.root, "refused", receipt(line, "refused", by="window-manager")))
    lines.hear(heard(line.root, "accepted", receipt(line, "dead")))
    assert line.last is None


def test_a_payload_that_is_no_receipt_is_an_error_for_its_reader_alone() -> None:
    lines, line = watched()
    with pytest.raises(InvalidMessageError):
        lines.hear(heard(line.root, "settled", receipt(line, "accepted")))
    assert line.last is None
    assert len(lines) == 1


def test_a_line_whose_end_was_missed_goes_with_whoever_sent_it() -> None:
    lines, line = watched()
    lines.sweep()
    assert len(lines) == 1
    del line
    lines.sweep()
    assert not lines


@pytest.mark.anyio
async def test_who_waits_for_a_line_is_woken_though_nobody_else_holds_it() -> None:
    lines, woken = Lines(), anyio.Event()

    async def wait() -> None:
        line = Line(ROOT)
        lines.watch(line)
        await line.wait_change()
        woken.set()

    asyncio.get_running_loop().call_soon(asyncio.create_task, wait())
    with anyio.fail_after(5):
        while not lines.waiting():
            await anyio.lowlevel.checkpoint()
        gc.collect()
        lines.hear(heard(ROOT, "settled", PASSED))
        await woken.wait()


def test_two_that_wait_for_one_handoff_both_hear() -> None:
    lines, one = watched()
    two = Line(one.root)
    lines.watch(two)
    lines.hear(heard(one.root, "settled", PASSED))
    assert one.result() == two.result()
    assert len(lines) == 0


@pytest.mark.anyio
async def test_everyone_who_waits_for_a_line_is_woken() -> None:
    lines, line = watched()
    woken: list[int] = []

    async def wait(number: int) -> None:
        while not line.ended:
            await line.wait_change()
        woken.append(number)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(wait, number)
            await anyio.wait_all_tasks_blocked()
            assert lines.waiting() == [line]
            lines.hear(heard(line.root, "accepted", receipt(line, "accepted")))
            await anyio.wait_all_tasks_blocked()
            lines.hear(heard(line.root, "settled", PASSED))
    assert sorted(woken) == [0, 1, 2]
    assert lines.waiting() == []
