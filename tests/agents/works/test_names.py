import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus_agents.works.names import (
    TaskFile,
    split_task,
    task_file,
    task_file_name,
    task_id,
    task_names,
    work_id,
)


@pytest.mark.parametrize("name", ["TASK-00", "TASK-01", "TASK-99", "TASK-100"])
def test_the_canonical_spelling_stays_as_it_is(name: str) -> None:
    assert task_id(name) == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("TASK-1", "write TASK-01"),
        ("TASK-001", "write TASK-01"),
        ("TASK-0100", "write TASK-100"),
        ("task-01", "write TASK-NN"),
        ("TASK-01.claimed-2", "write TASK-NN"),
        ("TASK-", "write TASK-NN"),
        ("TASK-01\n", "write TASK-NN"),
        ("TASK-\u0661\u0662", "write TASK-NN"),
        ("TASK-" + "9" * 5000, "write TASK-NN"),
        ("WORK-01-TASK-01", "carries the work's prefix: write TASK-01"),
        ("", "write TASK-NN"),
    ],
)
def test_any_other_spelling_of_a_task_is_refused_with_the_right_one(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        task_id(name)


def test_the_older_spelling_is_read_for_a_task_of_this_work() -> None:
    assert task_id("WORK-01-TASK-02", "WORK-01") == "TASK-02"
    assert split_task("WORK-01-TASK-02") == ("WORK-01", "TASK-02")


def test_a_task_of_another_work_is_refused() -> None:
    with pytest.raises(ValueError, match="a task of WORK-02, and this is WORK-01"):
        task_id("WORK-02-TASK-02", "WORK-01")


@pytest.mark.parametrize("name", ["WORK-1", "work-01", "WORK-001", "WORK-01 ", "WORK"])
def test_a_work_has_one_spelling_too(name: str) -> None:
    assert work_id("WORK-01") == "WORK-01"
    with pytest.raises(ValueError, match="write WORK-"):
        work_id(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TASK-01.md", TaskFile("TASK-01", "spec")),
        ("TASK-01_progress.md", TaskFile("TASK-01", "progress")),
        ("TASK-01_result.md", TaskFile("TASK-01", "result")),
        ("WORK-07-TASK-01.md", TaskFile("TASK-01", "spec", old=True)),
        ("WORK-07-TASK-01-result.md", TaskFile("TASK-01", "result", old=True)),
        ("WORK-07-TASK-01_progress.md", TaskFile("TASK-01", "progress", old=True)),
        ("PLAN.md", None),
        ("PROGRESS.md", None),
        ("task-notes.md", None),
        ("TASK-01.txt", None),
        ("multitask-2.md", None),
    ],
)
def test_a_file_name_says_which_task_it_is_of(name: str, expected: TaskFile | None) -> None:
    assert task_file(name, "WORK-07") == expected


@pytest.mark.parametrize(
    "name",
    [
        *("TASK-1.md", "TASK-001.md", "TASK-01.claimed-2.md", "task-01.md", "TASK_01.md"),
        *("TASK-01-result.md", "TASK-01_notes.md", "WORK-08-TASK-01.md", "Task 1.md", "TASK-01.MD"),
    ],
)
def test_a_file_that_means_a_task_and_does_not_spell_it_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="TASK"):
        task_file(name, "WORK-07")


@given(
    st.integers(0, 10**6).map(lambda number: f"TASK-{number:02d}"),
    st.sampled_from(["spec", "progress", "result"]),
)
def test_a_written_file_name_is_read_as_what_it_is(task: str, kind: str) -> None:
    name = task_file_name(task, kind)  # type: ignore[arg-type]
    assert task_file(name, "WORK-01") == TaskFile(task, kind)  # type: ignore[arg-type]


def test_words_that_only_look_like_a_task_name_none() -> None:
    assert [it[0] for it in task_names("a task-specific TASK-01, task-2 and TASK-A")] == [
        *("TASK-01", "task-2", "TASK-A")
    ]
