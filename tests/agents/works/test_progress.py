from datetime import UTC, datetime

import pytest

from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.problems import WorksFileError
from batonbus_agents.works.progress import (
    Progress,
    Status,
    gate,
    parse_progress,
    read_progress,
    render_progress,
)

FILE = "TASK-01_progress.md"
DONE = Progress(task="TASK-01", status="COMPLETED", files=(FileEntry("a.py", "MODIFY"),))


def test_a_task_without_a_progress_file_may_not_be_committed() -> None:
    assert gate(None) == "progress.md not found"


@pytest.mark.parametrize("status", ["PENDING", "STARTED", "IN_PROGRESS"])
def test_a_task_that_is_not_completed_may_not_be_committed(status: Status) -> None:
    assert gate(Progress(task="TASK-01", status=status, files=DONE.files)) == (
        "Status is not COMPLETED"
    )


def test_a_task_that_changed_no_file_may_not_be_committed() -> None:
    text = "# TASK-02 Progress\n\n- Status: COMPLETED\n- Files changed:\n"
    assert gate(parse_progress(text, "TASK-02_progress.md")) == "no files changed"


def test_a_completed_task_with_files_may_be_committed() -> None:
    assert gate(DONE) is None


def test_it_is_written_in_the_seeds_form() -> None:
    progress = Progress(
        task="TASK-01",
        status="IN_PROGRESS",
        started=datetime(2026, 7, 24, 10, 15, 30, 123456, tzinfo=UTC),
        files=(FileEntry("src/a.py", "CREATE"), FileEntry("b.py", "DELETE")),
        attempts={"retry_builder_attempts": 2},
    )
    assert render_progress(progress) == (
        "# TASK-01 Progress\n\n"
        "- Status: IN_PROGRESS\n"
        "- Started: 2026-07-24T10:15:30Z\n"
        "- Updated: —\n"
        "- retry_builder_attempts: 2\n"
        "- Files changed:\n"
        "  - `src/a.py` — CREATE\n"
        "  - `b.py` — DELETE\n"
    )


def test_a_bom_crlf_and_lines_without_dashes_read_fine() -> None:
    text = "\ufeff# Progress\r\nStatus: COMPLETED\r\nFiles changed:\r\n- a.py\r\n"
    assert parse_progress(text, FILE) == Progress(
        task="TASK-01", status="COMPLETED", files=(FileEntry("a.py"),)
    )


@pytest.mark.parametrize(
    "text",
    [
        "- Status: COMPLETED\n- Files changed:\n  - `a.py` — MODIFY\n",
        "- **Status**: Completed\n- **Files changed**:\n  - `a.py` — MODIFY\n    - the parser\n",
        "Status: **COMPLETED**\n\nFiles changed: `a.py` (MODIFY)\n",
        "- Status: COMPLETED\n\n## Files Changed\n\n- Modified: `a.py`\n",
        "- Status: COMPLETED\n\n## Files Changed\n\n### Modified\n\n- `a.py`\n",
        "Status: COMPLETED\n\n## Files Changed\n| Path | Action |\n|--|--|\n| `a.py` | MODIFY |\n",
        "> Status: COMPLETED\n\n## 변경 파일\n- `a.py` — 수정\n",
        "- 状態\uff1aCOMPLETED\n- 変更ファイル:\n  - `a.py` — MODIFY\n",
        "- Files changed:\n  - `a.py` — MODIFY\n- Status: COMPLETED\n",
    ],
)
def test_every_form_in_which_builders_write_it_is_read(text: str) -> None:
    assert parse_progress(f"# TASK-01 Progress\n\n{text}", FILE) == DONE


def test_the_list_and_the_section_of_files_are_joined() -> None:
    text = "- Status: COMPLETED\n- Files changed:\n  - a.py\n  - b.py\n"
    text += "\n## Files Changed\n- `b.py`\n- c.py\n"
    assert [it.path for it in parse_progress(text, FILE).files] == ["a.py", "b.py", "c.py"]


def test_the_lines_of_attempts_are_kept() -> None:
    text = "Status: STARTED\nretry_builder_attempts: 2\n- retry_committer_attempts: 1\n"
    assert parse_progress(text, FILE).attempts == {
        "retry_builder_attempts": 2,
        "retry_committer_attempts": 1,
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- Status: DONE\n", "TASK-01_progress.md:1: 'Status: DONE' is none of PENDING, STARTED"),
        ("- Started: —\n", "TASK-01_progress.md:1: no Status"),
        ("- Status: COMPLETED\n- Status: PENDING\n", "md:2: Status is COMPLETED and PENDING"),
        (
            "- Status: PENDING\n- retry_builder_attempts: two\n",
            "md:2: retry_builder_attempts 'two'",
        ),
        (
            "- Status: PENDING\n- Files changed:\n  - ../a.py\n",
            "md:3: '../a.py' leaves the project",
        ),
        ("- Status: PENDING\n- Files changed:\n  - all of them\n", "md:3: 'all of them' names no"),
        ("# TASK-1 Progress\n- Status: PENDING\n", "md:1: 'TASK-1' is not the one spelling"),
    ],
)
def test_what_cannot_be_read_is_refused_with_file_and_line(text: str, told: str) -> None:
    with pytest.raises(WorksFileError) as caught:
        parse_progress(text, FILE)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "- Status: DONE\n", "- Status: COMPLETED\n- Status: PENDING\n", "COMPLETED\n"]
)
def test_the_gate_stays_shut_on_a_status_that_cannot_be_read(text: str) -> None:
    reading = read_progress(f"{text}- Files changed:\n  - a.py\n", FILE)
    assert gate(reading.value) == "Status is not COMPLETED"


def test_a_time_without_a_zone_is_warned_of_and_never_taken_for_utc() -> None:
    reading = read_progress("- Status: PENDING\n- Started: 2026-07-20T12:00:00\n", FILE)
    assert reading.whole().started is None
    assert [str(it) for it in reading.problems] == [
        "TASK-01_progress.md:2: warning: Started '2026-07-20T12:00:00' has no zone: "
        "add it, as in 2026-07-24T10:15:30Z"
    ]


def test_a_time_of_another_zone_is_read_as_utc() -> None:
    progress = parse_progress("Status: PENDING\nUpdated: 2026-07-20T21:00:00+09:00\n", FILE)
    assert progress.updated == datetime(2026, 7, 20, 12, tzinfo=UTC)


def test_the_prefix_of_the_work_is_read_in_the_heading() -> None:
    text = "# WORK-07-TASK-01 Progress\n\n- Status: PENDING\n"
    assert parse_progress(text, "anything.md").task == "TASK-01"


def test_a_file_that_does_not_say_its_task_is_refused() -> None:
    with pytest.raises(WorksFileError, match="says which task this is"):
        parse_progress("- Status: PENDING\n", "progress.md")
