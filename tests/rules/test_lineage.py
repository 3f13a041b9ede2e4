"""Who comes after whom: positions, and what a sender may name."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus.rules.lineage import Position, Record, check_after, place
from batonbus_schemas.context import ContextHandoff
from batonbus_schemas.envelope import Parent

SAID = ContextHandoff(what="Added the parser")


def record(
    number: int,
    *,
    task: str | None = "TASK-01",
    role: str = "builder",
    opener: str = "builder",
    work: str = "WORK-01",
    silent: bool = False,
    stages: tuple[Record, ...] = (),
    tasks: tuple[Record, ...] = (),
    answered_to: str | None = "scheduler",
    within: UUID | None = None,
) -> Record:
    return Record(
        id=UUID(int=number),
        sequence=number,
        work=work,
        task=task,
        from_=role,
        opener=opener,
        context=None if silent else SAID,
        stage_parents=tuple(r.parent() for r in stages),
        task_parents=tuple(r.parent() for r in tasks),
        answered_to=answered_to,
        within=within,
    )


def after(*records: Record, task: str | None = "TASK-01", to: str = "verifier") -> Position:
    return place(work="WORK-01", task=task, to=to, records=records)


def parents(*records: Record) -> tuple[Parent, ...]:
    return tuple(r.parent() for r in records)


def test_a_parent_carries_the_bytes_of_the_encoded_context() -> None:
    context = ContextHandoff(what="Grüße", why="because")
    settled = msgspec.structs.replace(record(7), context=context)
    assert settled.parent() == Parent(
        handoff_id=UUID(int=7), sequence=7, bytes=len(msgspec.json.encode(context))
    )


def test_a_silent_record_has_no_bytes() -> None:
    assert record(7, silent=True).parent().bytes == 0


def test_a_handoff_after_nothing_opens_its_task() -> None:
    assert after(to="builder") == Position(to="builder", opener="builder")


def test_a_record_of_the_same_task_is_a_stage_and_passes_its_task_parents_on() -> None:
    needed = record(1, task="TASK-00")
    builder = record(2, tasks=(needed,))
    position = after(builder)
    assert position.stage_parents == parents(builder)
    assert position.task_parents == parents(needed)
    assert position.opener == "builder"


def test_a_record_of_another_task_stands_for_that_task() -> None:
    before = record(1, task="TASK-00", role="builder", opener="builder")
    committer = record(2, task="TASK-00", role="committer", opener="builder", stages=(before,))
    position = after(committer, to="builder")
    assert position == Position(to="builder", opener="builder", task_parents=parents(committer))


def test_the_role_that_opened_another_task_does_not_open_this_one() -> None:
    assert after(record(1, task="TASK-00", opener="planner"), to="builder").opener == "builder"


def test_plain_handoffs_are_stages_of_one_unnamed_task() -> None:
    first = record(1, task=None, role="writer", opener="writer")
    position = after(first, task=None, to="editor")
    assert position == Position(to="editor", opener="writer", stage_parents=parents(first))


def test_unnamed_tasks_of_two_works_are_two_tasks() -> None:
    elsewhere = record(1, task=None, work="adhoc", role="specifier", opener="specifier")
    position = after(elsewhere, task=None, to="planner")
    assert position == Position(to="planner", opener="planner", task_parents=parents(elsewhere))


def test_tasks_of_the_same_name_in_two_works_are_two_tasks() -> None:
    position = after(record(1, work="WORK-02"))
    assert not position.stage_parents


def test_a_silent_stage_is_no_step_but_passes_both_its_parents_on() -> None:
    needed, builder = record(1, task="TASK-00"), record(2)
    silent = record(3, role="verifier", silent=True, stages=(builder,), tasks=(needed,))
    position = after(silent, to="committer")
    assert position.stage_parents == parents(builder)
    assert position.task_parents == parents(needed)


def test_after_a_silent_first_stage_the_task_still_has_its_opener() -> None:
    silent = record(1, role="builder", silent=True)
    assert after(silent) == Position(to="verifier", opener="builder")


def test_a_silent_last_stage_of_another_task_leaves_the_stage_before_it_as_the_task() -> None:
    needed, builder = record(1, task="TASK-00"), record(2)
    silent = record(3, role="verifier", silent=True, stages=(builder,), tasks=(needed,))
    assert after(silent, task="TASK-02").task_parents == parents(builder)


def test_another_task_that_never_spoke_is_replaced_by_the_tasks_it_needed() -> None:
    needed = record(1, task="TASK-00")
    silent = record(2, silent=True, tasks=(needed,))
    assert after(silent, task="TASK-02").task_parents == parents(needed)


def test_a_parent_named_twice_or_inherited_twice_stands_once() -> None:
    needed = record(1, task="TASK-00")
    one, two = record(2, tasks=(needed,)), record(3, tasks=(needed,))
    position = after(one, two, one, needed)
    assert position.stage_parents == parents(one, two)
    assert position.task_parents == parents(needed)


def test_a_stage_is_never_a_task_parent_of_its_own_task_too() -> None:
    builder = record(1)
    silent = record(2, task="TASK-02", silent=True, tasks=(builder,))
    position = after(builder, silent)
    assert position.stage_parents == parents(builder)
    assert position.task_parents == ()


def test_where_two_openers_meet_the_earlier_one_opened_the_task() -> None:
    early = record(1, opener="builder")
    late = record(2, role="verifier", opener="verifier")
    assert after(late, early, to="committer").opener == "builder"


@given(st.permutations([1, 2, 3, 4, 5]))
def test_the_order_in_which_a_sender_names_records_does_not_matter(order: list[int]) -> None:
    named = {n: record(n, task=f"TASK-0{n % 2}", opener=f"role-{n}") for n in order}
    assert after(*(named[n] for n in order)) == after(*(named[n] for n in sorted(order)))


def test_a_handoff_sent_without_names_inherits_the_position_of_the_handled_one() -> None:
    needed, builder = record(1, task="TASK-00"), record(2)
    handled = after(builder, needed, to="scheduler")
    inherited = after(builder, needed, to="verifier")
    assert inherited == msgspec.structs.replace(handled, to="verifier")


@pytest.mark.parametrize(
    ("to", "seen"),
    [("verifier", ["stage"]), ("builder", ["stage", "task"])],
    ids=["later stage", "rebuild"],
)
def test_a_later_stage_sees_stages_and_a_rebuild_sees_tasks_too(to: str, seen: list[str]) -> None:
    position = after(record(2), record(1, task="TASK-00"), to=to)
    assert [edge.value for edge, shown in position.shown() if shown] == seen


def test_the_first_stage_sees_tasks() -> None:
    needed = record(1, task="TASK-00")
    assert after(needed, to="builder").parents_shown() == parents(needed)


def test_what_was_answered_to_the_sender_may_be_named() -> None:
    assert not check_after(work="WORK-01", sender="scheduler", within=None, records=[record(1)])


def test_what_was_sent_in_the_same_handler_may_be_named_whoever_got_the_answer() -> None:
    handled = UUID(int=99)
    sibling = record(1, answered_to="person", within=handled)
    assert not check_after(work="WORK-01", sender="scheduler", within=handled, records=[sibling])


@pytest.mark.parametrize("within", [None, UUID(int=99)])
def test_an_answer_to_somebody_else_may_not_be_named(within: UUID | None) -> None:
    foreign = record(1, answered_to="person")
    (violation,) = check_after(
        work="WORK-01", sender="scheduler", within=within, records=[record(2), foreign]
    )
    assert violation.path == "$.after"
    assert f"handoff {foreign.id} was not answered to scheduler" in violation.problem
    assert "person" not in violation.problem


def test_a_handoff_that_answered_nobody_may_not_be_named() -> None:
    unheard = record(1, answered_to=None)
    assert check_after(work="WORK-01", sender="scheduler", within=None, records=[unheard])


def test_every_objection_to_every_record_is_told_at_once() -> None:
    records = [record(1, work="WORK-02", answered_to="person"), record(2, work="WORK-03")]
    violations = check_after(work="WORK-01", sender="scheduler", within=None, records=records)
    assert [v.problem.split(":")[0] for v in violations] == [
        f"handoff {UUID(int=1)} is not of work WORK-01",
        f"handoff {UUID(int=1)} was not answered to scheduler",
        f"handoff {UUID(int=2)} is not of work WORK-01",
    ]
