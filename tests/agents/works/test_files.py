import pytest

from batonbus_agents.works.files import (
    FileEntry,
    declared_path_problem,
    parse_file_entries,
    path_problem,
    render_file_entry,
)


@pytest.mark.parametrize(
    "path",
    [
        "a.py",
        "src/a.py",
        ".github/ci.yml",
        "app/[id]/page.tsx",
        "a b/c.py",
        "문서/가.md",
        "..a",
        "a..b",
    ],
)
def test_a_relative_posix_path_is_safe(path: str) -> None:
    assert path_problem(path) is None
    assert declared_path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/etc/passwd", "absolute"),
        ("~/a.py", "absolute"),
        ("C:/a.py", "absolute"),
        ("../a.py", "leaves the project"),
        ("src/../../a.py", "leaves the project"),
        ("..", "leaves the project"),
        ("src\\a.py", "backslash"),
        ("./a.py", "without ."),
        ("src//a.py", "without ."),
        ("src/a.py ", "blanks around it"),
        ("", "is blank"),
        ("(none)", "no file"),
        ("a\nb", "unprintable"),
        ("a\0b", "unprintable"),
        ("a`b", "backtick"),
    ],
)
def test_any_other_path_is_refused_with_its_reason(path: str, told: str) -> None:
    problem = path_problem(path)
    assert problem is not None
    assert told in problem


def test_a_task_declares_files_and_neither_folders_nor_patterns() -> None:
    assert "folder" in (declared_path_problem("src/") or "")
    assert "pattern" in (declared_path_problem("src/*.py") or "")
    assert path_problem("src/") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`a.py` — MODIFY", [FileEntry("a.py", "MODIFY")]),
        ("`a.py` — CREATE — the parser", [FileEntry("a.py", "CREATE", "the parser")]),
        ("`a.py` — MODIFY (the parser)", [FileEntry("a.py", "MODIFY", "the parser")]),
        ("`a.py` (DELETE)", [FileEntry("a.py", "DELETE")]),
        ("`a.py` \uff08삭제: 빈 폴더\uff09", [FileEntry("a.py", "DELETE", "빈 폴더")]),
        ("`a.py`", [FileEntry("a.py")]),
        ("a.py", [FileEntry("a.py")]),
        ("a.py - MODIFY", [FileEntry("a.py", "MODIFY")]),
        ("`my file.py` — 수정", [FileEntry("my file.py", "MODIFY")]),
        (
            "a/b.json (moved: b.json → a/b.json)",
            [FileEntry("a/b.json", None, "moved: b.json → a/b.json")],
        ),
        ("Created: `a.html`", [FileEntry("a.html", "CREATE")]),
        ("`a` (CREATE), `b` (MODIFY)", [FileEntry("a", "CREATE"), FileEntry("b", "MODIFY")]),
        ("a.py, b.py", [FileEntry("a.py"), FileEntry("b.py")]),
        ("`a` — reads b, `c` and d", [FileEntry("a", None, "reads b, `c` and d")]),
        ("(none)", []),
        ("없음", []),
        ("なし", []),
        ("—", []),
    ],
)
def test_the_forms_in_which_files_are_listed_are_read(text: str, expected: list[FileEntry]) -> None:
    assert parse_file_entries(text) == expected


@pytest.mark.parametrize(
    "text", ["all agent files (READ)", "Notes: none yet", "see the table below"]
)
def test_a_sentence_is_no_file(text: str) -> None:
    with pytest.raises(ValueError, match="names no file"):
        parse_file_entries(text)


def test_an_unsafe_path_is_not_written() -> None:
    with pytest.raises(ValueError, match="leaves the project"):
        render_file_entry(FileEntry("../a.py", "MODIFY"))
