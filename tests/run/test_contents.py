"""What was laid out for one handoff goes with it, and nothing of another's does."""

from pathlib import Path
from uuid import UUID

from batonbus.rules.budget import references_of
from batonbus.run.contents import has_contents, remove_contents, remove_leftovers

ONE = UUID("0190163d-8694-739b-aea5-966c26f8ad91")
SAME_MOMENT = UUID("0190163d-8694-7a41-b1c2-0f3a5d7e9b10")


def lay_out(top: Path, handoff_id: UUID) -> None:
    folder = top / references_of(handoff_id)
    folder.mkdir(parents=True)
    (folder / "brief.md").write_text("long")


def test_ids_of_one_millisecond_have_folders_of_their_own(tmp_path: Path) -> None:
    lay_out(tmp_path, ONE)
    lay_out(tmp_path, SAME_MOMENT)
    remove_contents(tmp_path, ONE)
    assert not has_contents(tmp_path, ONE)
    assert has_contents(tmp_path, SAME_MOMENT)
    assert remove_leftovers(tmp_path, [ONE]) == 0
    assert remove_leftovers(tmp_path, [SAME_MOMENT]) == 1
    assert not has_contents(tmp_path, SAME_MOMENT)
