from datetime import date

import pytest

from batonbus_agents.works.problems import WorksFileError
from batonbus_agents.works.work_list import (
    WorkEntry,
    WorkList,
    next_work_id,
    parse_work_list,
    read_work_list,
    render_work_list,
    with_status,
    with_work,
)

DAY = date(2026, 7, 24)
ONE = WorkEntry(work="WORK-07", title="A parser", created=DAY)
LIST = WorkList(last="WORK-07", works=(ONE,))


def test_it_is_written_in_the_seeds_form() -> None:
    assert render_work_list(LIST) == (
        "LAST_WORK_ID: WORK-07\n\n"
        "| WORK | Title | Status | Created | Done |\n|---|---|---|---|---|\n"
        "| WORK-07 | A parser | IN_PROGRESS | 2026-07-24 |  |\n"
    )


def test_a_list_with_a_heading_and_korean_columns_is_read() -> None:
    text = (
        "LAST_WORK_ID: WORK-07\n\n# WORK-LIST\n\n| WORK | 제목 | 상태 | 생성일 | 완료일 |\n"
        "|---|---|---|---|---|\n| WORK-07 | A parser | IN_PROGRESS | 2026-07-24 | |\n"
    )
    assert parse_work_list(text) == LIST


def test_the_next_id_follows_the_list_and_the_folders() -> None:
    assert next_work_id(WorkList(), []) == "WORK-01"
    assert next_work_id(LIST, []) == "WORK-08"
    assert next_work_id(LIST, ["WORK-07", "WORK-31", "notes"]) == "WORK-32"
    assert next_work_id(WorkList(last="WORK-42", works=(ONE,)), ["WORK-31"]) == "WORK-43"
    assert next_work_id(WorkList(last="WORK-99"), []) == "WORK-100"


def test_a_new_work_is_added_and_its_id_is_the_last() -> None:
    works = with_work(LIST, WorkEntry(work="WORK-08", title="More", created=DAY))
    assert (works.last, [it.work for it in works.works]) == ("WORK-08", ["WORK-07", "WORK-08"])
    assert with_work(works, WorkEntry(work="WORK-03")).last == "WORK-08"


def test_an_id_is_not_given_twice() -> None:
    with pytest.raises(ValueError, match="WORK-07 stands in the list already"):
        with_work(LIST, ONE)


def test_a_work_is_done_and_then_completed() -> None:
    done = with_status(LIST, "WORK-07", "DONE", DAY)
    assert done.find("WORK-07") == WorkEntry(
        work="WORK-07", title="A parser", status="DONE", created=DAY, done=DAY
    )
    assert with_status(done, "WORK-07", "COMPLETED", DAY) == WorkList(last="WORK-07")


def test_no_step_is_left_out_and_none_goes_back() -> None:
    with pytest.raises(ValueError, match="is IN_PROGRESS, so it cannot become COMPLETED"):
        with_status(LIST, "WORK-07", "COMPLETED", DAY)
    with pytest.raises(ValueError, match="is DONE, so it cannot become DONE"):
        with_status(with_status(LIST, "WORK-07", "DONE", DAY), "WORK-07", "DONE", DAY)
    with pytest.raises(ValueError, match="WORK-09 does not stand in the list"):
        with_status(LIST, "WORK-09", "DONE", DAY)


def row(*cells: str) -> str:
    head = "LAST_WORK_ID: WORK-07\n\n| WORK | Title | Status |\n|---|---|---|\n"
    return head + "".join(f"| {cell} |\n" for cell in cells)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (row("WORK-07 | a | DONE", "WORK-07 | b | DONE"), ":6: WORK-07 is there twice"),
        (row("WORK-7 | a | DONE"), ":5: 'WORK-7' is not the one spelling"),
        (row("WORK-07 | a | STARTED"), ":5: status 'STARTED' is none of IN_PROGRESS, DONE"),
        ("LAST_WORK_ID: seven\n", ":1: 'seven' is no work id"),
        ("LAST_WORK_ID: WORK-07\n\n| A |\n|---|\n| b |\n", ":3: the table of works needs"),
    ],
)
def test_what_cannot_be_read_is_refused_with_file_and_line(text: str, told: str) -> None:
    with pytest.raises(WorksFileError) as caught:
        parse_work_list(text)
    assert f"WORK-LIST.md{told}" in str(caught.value)


def test_a_list_without_its_first_line_is_warned_of() -> None:
    reading = read_work_list("| WORK | Title | Status |\n|---|---|---|\n| WORK-07 | a | DONE |\n")
    assert [it.warning for it in reading.problems] == [True]
    assert reading.whole().find("WORK-07") is not None
