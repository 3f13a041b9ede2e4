from pathlib import Path

import pytest

from batonbus_agents.works.validation import FolderReport, validate_folder

PLAN = "# {work}: t\n\n## Tasks\n\n### TASK-00: a\n- **Depends on**: (none)\n"


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root.joinpath(*name.split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(work=path.parent.name))
    return root


def refusals(report: FolderReport) -> list[str]:
    return [str(it) for it in report.problems if not it.warning]


def test_one_work_is_read_with_the_status_of_its_tasks(tmp_path: Path) -> None:
    progress = "# TASK-00 Progress\n- Status: STARTED\n"
    tree(tmp_path, **{"WORK-07/PLAN.md": PLAN, "WORK-07/TASK-00_progress.md": progress})
    report = validate_folder(tmp_path / "WORK-07")
    assert not report.refused
    assert [(it.id, it.status) for it in report.works[0].tasks] == [("TASK-00", "STARTED")]


def test_the_folder_may_be_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree(tmp_path, **{"WORK-07/PLAN.md": PLAN}) / "WORK-07")
    report = validate_folder(Path("."))
    assert ([it.id for it in report.works], refusals(report)) == (["WORK-07"], [])


def test_every_work_below_a_folder_is_read_in_either_layout(tmp_path: Path) -> None:
    tree(
        tmp_path,
        **{
            "works/WORK-07/PLAN.md": PLAN,
            "works/WORK-07/TASK-00_result.md": "# TASK-00 Result\n",
            "works/_COMPLETED/WORK-03/PLAN.md": PLAN,
            "tasks/multi-tasks/WORK-01/PLAN.md": PLAN,
            "tasks/multi-tasks/WORK-01/WORK-01-TASK-00-result.md": "# WORK-01-TASK-00 Result\n",
            ".cache/WORK-09/PLAN.md": "not looked at",
        },
    )
    report = validate_folder(tmp_path)
    assert refusals(report) == []
    assert [(it.id, [task.status for task in it.tasks]) for it in report.works] == [
        ("WORK-01", ["DONE"]),
        ("WORK-07", ["DONE"]),
        ("WORK-03", []),
    ]


def test_one_id_in_two_places_is_refused_naming_both(tmp_path: Path) -> None:
    tree(tmp_path, **{"tasks/WORK-01/PLAN.md": PLAN, "works/WORK-01/PLAN.md": PLAN})
    assert refusals(validate_folder(tmp_path)) == [
        "works/WORK-01:1: has the id of tasks/WORK-01: give each work its id"
    ]


def test_a_work_without_a_plan_is_refused_and_read_all_the_same(tmp_path: Path) -> None:
    tree(tmp_path, **{"WORK-53/TASK-01_result.md": "# TASK-01 Result\n"})
    report = validate_folder(tmp_path)
    assert refusals(report) == ["WORK-53/PLAN.md:1: is not there: a work needs its plan"]
    assert report.works[0].task("TASK-01").status == "DONE"


def test_a_folder_with_another_spelling_of_a_work_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, **{"work-7/PLAN.md": PLAN.replace("{work}", "WORK-07")})
    found = refusals(validate_folder(tmp_path))
    assert (
        "work-7:1: the folder's name: 'work-7' is no work id: write WORK-NN, such as WORK-01"
        in found
    )


def test_rows_and_folders_that_do_not_match_are_told(tmp_path: Path) -> None:
    listed = (
        "LAST_WORK_ID: WORK-02\n\n| WORK | Title | Status |\n|---|---|---|\n"
        "| WORK-01 | a | IN_PROGRESS |\n| WORK-50 | b | IN_PROGRESS |\n"
    )
    tree(tmp_path, **{"WORK-LIST.md": listed, "WORK-01/PLAN.md": PLAN, "WORK-04/PLAN.md": PLAN})
    report = validate_folder(tmp_path)
    assert [str(it) for it in report.problems if it.file == "WORK-LIST.md"] == [
        "WORK-LIST.md:1: warning: LAST_WORK_ID is WORK-02, and the next free id is WORK-51",
        "WORK-LIST.md:1: warning: WORK-04 has a folder and no row",
        "WORK-LIST.md:1: WORK-50 has a row and no folder",
    ]


def test_a_folder_without_works_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refusals(validate_folder(tmp_path / "empty")) == ["empty:1: holds no folder WORK-NN"]
    with pytest.raises(NotADirectoryError):
        validate_folder(tmp_path / "nowhere")


def test_nothing_is_written(tmp_path: Path) -> None:
    tree(tmp_path, **{"WORK-07/PLAN.md": PLAN, "WORK-LIST.md": "LAST_WORK_ID: WORK-07\n"})
    before = {it: it.stat().st_mtime_ns for it in tmp_path.rglob("*")}
    validate_folder(tmp_path)
    assert {it: it.stat().st_mtime_ns for it in tmp_path.rglob("*")} == before
