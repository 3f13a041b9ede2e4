from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from batonbus_agents.works.dag import dag_problems


def reasons(*tasks: tuple[str, list[str]]) -> list[str]:
    return [problem.reason for problem in dag_problems(tasks)]


def test_a_diamond_can_be_run() -> None:
    assert reasons(("A", []), ("B", ["A"]), ("C", ["A"]), ("D", ["B", "C"])) == []


def test_a_cycle_is_told_with_its_path() -> None:
    found = reasons(("TASK-01", ["TASK-03"]), ("TASK-02", ["TASK-01"]), ("TASK-03", ["TASK-02"]))
    assert found == ["a cycle: TASK-01 needs TASK-03 needs TASK-02 needs TASK-01"]


def test_a_task_that_needs_itself_is_refused() -> None:
    assert reasons(("TASK-04", ["TASK-04"])) == ["TASK-04 needs itself"]


def test_an_unknown_task_is_refused_by_name() -> None:
    assert reasons(("TASK-02", ["TASK-99"])) == ["TASK-02 needs TASK-99, which is no task here"]


def test_a_task_that_stands_twice_is_refused_where_it_stands_again() -> None:
    (found,) = dag_problems([("TASK-03", []), ("TASK-04", []), ("TASK-03", ["TASK-04"])])
    assert (found.place, found.task) == (2, "TASK-03")
    assert "TASK-03 is there twice" in found.reason


def test_everything_that_is_wrong_comes_in_one_answer() -> None:
    found = reasons(
        ("A", ["B"]), ("B", ["A"]), ("C", ["C", "X"]), ("D", ["E"]), ("E", ["D"]), ("D", [])
    )
    assert found == [
        "a cycle: A needs B needs A",
        "C needs itself",
        "C needs X, which is no task here",
        "a cycle: D needs E needs D",
        "D is there twice: give each task its id",
    ]


@given(st.lists(st.lists(st.integers(0, 8), max_size=4), max_size=9))
def test_only_what_has_an_order_is_without_problems(needs: list[list[int]]) -> None:
    tasks = [(str(i), [str(need) for need in wanted]) for i, wanted in enumerate(needs)]
    done: set[str] = set()
    for _ in tasks:
        done |= {task for task, wanted in tasks if set(wanted) <= done}
    assert (not dag_problems(tasks)) == (len(done) == len(tasks))


@given(st.lists(st.lists(st.integers(0, 8), max_size=4), max_size=9))
def test_each_cycle_that_is_told_is_one(needs: list[list[int]]) -> None:
    tasks = {str(i): [str(need) for need in wanted] for i, wanted in enumerate(needs)}
    for problem in dag_problems(list(tasks.items())):
        if problem.reason.startswith("a cycle: "):
            path = problem.reason.removeprefix("a cycle: ").split(" needs ")
            assert path[0] == path[-1]
            assert all(need in tasks[task] for task, need in pairwise(path))
