"""When a task may start, and why it does not."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus_agents.schedule import Outcome, Slot, blocked_reason, make_schedule
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.plan_tasks import PlanTask


def task(number: int, needs: Sequence[int] = (), files: Sequence[str] = ()) -> PlanTask:
    return PlanTask(
        id=name(number),
        depends_on=tuple(name(it) for it in needs),
        files=tuple(FileEntry(it) for it in files),
    )


def name(number: int) -> str:
    return f"TASK-{number:02d}"


@st.composite
def plans(draw: st.DrawFn) -> list[PlanTask]:
    """Tasks in any order, each of which needs some with a smaller number, with a few files."""
    tasks: list[PlanTask] = []
    for number in range(draw(st.integers(1, 12))):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set[int]()
        files = draw(st.sets(st.sampled_from("abcde"), max_size=2))
        tasks.append(task(number, sorted(needs), sorted(files)))
    return draw(st.permutations(tasks))


def rounds(schedule: dict[str, Slot]) -> list[list[str]]:
    """Which tasks run at once, where each takes one round."""
    done: set[str] = set()
    found: list[list[str]] = []
    while len(done) < len(schedule):
        ready = [it for it, slot in schedule.items() if not {*slot.needs, *slot.behind} - done]
        now = sorted(set(ready) - done)
        assert now, f"deadlock after {sorted(done)}"
        done |= set(now)
        found.append(now)
    return found


@given(plans())
def test_every_plan_runs_to_its_end_and_nothing_starts_before_what_it_needs(
    tasks: list[PlanTask],
) -> None:
    order = [it for together in rounds(make_schedule(tasks)) for it in together]
    assert sorted(order) == sorted(it.id for it in tasks)
    for it in tasks:
        assert all(order.index(need) < order.index(it.id) for need in it.depends_on)


@given(plans())
def test_two_tasks_that_name_the_same_file_never_run_at_once(tasks: list[PlanTask]) -> None:
    files = {it.id: {entry.path for entry in it.files} for it in tasks}
    for together in rounds(make_schedule(tasks)):
        for place, first in enumerate(together):
            assert not any(files[first] & files[other] for other in together[place + 1 :])


@given(plans())
def test_the_order_of_the_plan_changes_nothing(tasks: list[PlanTask]) -> None:
    assert make_schedule(tasks) == make_schedule(sorted(tasks, key=lambda it: it.id))


def test_ready_tasks_run_at_once() -> None:
    tasks = [task(1), task(2, [1], "a"), task(3, [1], "b"), task(4, [2, 3])]
    assert rounds(make_schedule(tasks)) == [[name(1)], [name(2), name(3)], [name(4)]]


def test_tasks_with_the_same_file_run_one_after_the_other_but_give_no_context() -> None:
    schedule = make_schedule([task(1, (), "a"), task(2, (), "a"), task(3, (), "b")])
    assert schedule[name(2)] == Slot(needs=(), behind=(name(1),))
    assert schedule[name(3)] == Slot(needs=(), behind=())


def outcome(number: int, status: str) -> Outcome:
    assert status in {"PASS", "FAILED", "BLOCKED"}
    return Outcome(task=name(number), status=status)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("slot", "ended", "reason"),
    [
        (Slot((), ()), [], None),
        (Slot((name(1),), ()), [(1, "PASS")], None),
        (Slot((name(1),), ()), [(1, "FAILED")], "TASK-01 is FAILED"),
        (Slot((name(1),), ()), [(1, "BLOCKED")], "TASK-01 is BLOCKED"),
        (Slot((), (name(1),)), [(1, "FAILED")], "TASK-01 is FAILED"),
        (Slot((name(2), name(1)), ()), [(1, "FAILED"), (2, "PASS")], "TASK-01 is FAILED"),
        (Slot((), ()), [(4, "FAILED"), (3, "FAILED")], "is halted: TASK-03, TASK-04 FAILED"),
        (Slot((), ()), [(3, "BLOCKED")], None),
    ],
)
def test_a_task_is_blocked_by_what_it_waits_for_and_by_any_failure(
    slot: Slot, ended: list[tuple[int, str]], reason: str | None
) -> None:
    outcomes = {name(number): outcome(number, status) for number, status in ended}
    said = blocked_reason(slot, outcomes)
    assert said is None if reason is None else said is not None and reason in said
