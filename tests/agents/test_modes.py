"""Which mode a work needs."""

import pytest

from batonbus_agents.modes import (
    BIG_FILES,
    SIMPLE_CRITERION,
    choose_mode,
    mode_problem,
    needs_planner,
)
from batonbus_agents.routes import Mode
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.requirement import Requirement


def plan(*tasks: PlanTask, mode: Mode = "full") -> Plan:
    return Plan(work="WORK-01", mode=mode, tasks=tasks)


def task(number: int, *needs: str, files: int = 1) -> PlanTask:
    entries = tuple(FileEntry(f"{number}-{it}.txt") for it in range(files))
    return PlanTask(id=f"TASK-{number:02d}", depends_on=needs, files=entries)


@pytest.mark.parametrize(
    ("tasks", "mode"),
    [
        ([task(1)], "direct"),
        ([task(1, files=BIG_FILES)], "direct"),
        ([task(1, files=BIG_FILES + 1)], "pipeline"),
        ([task(1), task(2)], "full"),
        ([task(1), task(2, "TASK-01")], "full"),
        ([task(1, files=BIG_FILES + 1), task(2)], "full"),
    ],
)
def test_a_plan_gets_the_least_mode_that_its_tasks_need(tasks: list[PlanTask], mode: Mode) -> None:
    assert choose_mode(plan(*tasks)) == mode


@pytest.mark.parametrize("mode", ["direct", "pipeline", "full"])
def test_one_task_may_run_in_any_mode(mode: Mode) -> None:
    assert mode_problem(plan(task(1), mode=mode)) is None


@pytest.mark.parametrize("mode", ["direct", "pipeline"])
def test_several_tasks_run_in_full_mode_only_and_the_line_to_write_is_said(mode: Mode) -> None:
    problem = mode_problem(plan(task(1), task(2), mode=mode))
    assert problem is not None
    assert mode in problem
    assert "2" in problem
    assert "`> Execution-Mode: full`" in problem
    assert mode_problem(plan(task(1), task(2), mode="full")) is None


def requirement(functional: int = 1, other: int = 0, criterion: int = 10) -> Requirement:
    return Requirement(
        work="WORK-01",
        functional=tuple(f"FR-{it:02d}: x" for it in range(functional)),
        non_functional=tuple(f"NFR-{it:02d}: x" for it in range(other)),
        acceptance_criteria=("x" * criterion,),
    )


@pytest.mark.parametrize(
    ("asked", "planned"),
    [
        (requirement(1), False),
        (requirement(2), False),
        (requirement(3), True),
        (requirement(1, other=1), True),
        (requirement(1, criterion=SIMPLE_CRITERION), False),
        (requirement(1, criterion=SIMPLE_CRITERION + 1), True),
    ],
)
def test_what_is_small_and_simple_needs_no_planner(asked: Requirement, planned: bool) -> None:
    assert needs_planner(asked) is planned
