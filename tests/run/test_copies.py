"""What a sender finds in its own files before it sends."""

from pathlib import Path

from batonbus.run.copies import READ_LIMIT, copied_passages
from batonbus_schemas import Dispatch

HISTORY = "".join(f"{number}: what happened then.\n" for number in range(60))


def test_what_stands_in_a_file_that_is_referred_to_is_found(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(HISTORY)
    (found,) = copied_passages(Dispatch(brief=HISTORY, refs=("notes.md",)), tmp_path)
    assert "notes.md" in found.problem
    assert copied_passages(Dispatch(brief=HISTORY), tmp_path) == []
    assert copied_passages(Dispatch(brief="See the notes.", refs=("notes.md",)), tmp_path) == []


def test_what_is_no_readable_file_here_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_text("x" * READ_LIMIT + HISTORY)
    body = Dispatch(brief=HISTORY, refs=("missing.md", "folder", "large", "a\0b"))
    assert copied_passages(body, tmp_path) == []
