"""Reference files: from the cache, else from their folder, and named to the runtime by path."""

import re
from pathlib import Path
from uuid import UUID

from batonbus.rules.budget import references_of
from batonbus_agents.references import lay_out_references
from batonbus_schemas import Dispatch

ID = UUID(int=1)


def paths(text: str) -> dict[str, Path]:
    return {key: Path(path) for key, path in re.findall(r"^- (.+?): (/.+)$", text, re.MULTILINE)}


def test_without_references_nothing_is_said(tmp_path: Path) -> None:
    assert lay_out_references(Dispatch(brief="x"), tmp_path / "refs", ID) == ""
    assert not (tmp_path / "refs").exists()


def test_what_the_cache_has_is_used_and_the_file_is_not_opened(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "xml-schema.md").write_text("from disk")
    body = Dispatch(
        brief="x", references_dir=str(folder), ref_cache={"xml-schema": "cached", "own": "mine"}
    )
    found = paths(lay_out_references(body, tmp_path / "refs", ID))
    assert {key: path.read_text() for key, path in found.items()} == {
        "xml-schema": "cached",
        "own": "mine",
    }


def test_a_known_key_that_is_missing_is_read_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "context-policy.md").write_text("policy")
    body = Dispatch(brief="x", references_dir=str(tmp_path))
    found = paths(lay_out_references(body, tmp_path / "refs", ID))
    assert {key: path.read_text() for key, path in found.items()} == {"context-policy": "policy"}


def test_the_same_content_is_written_once(tmp_path: Path) -> None:
    body = Dispatch(brief="x", ref_cache={"own": "mine"})
    assert lay_out_references(body, tmp_path, ID) == lay_out_references(body, tmp_path, ID)
    assert len(list(tmp_path.rglob("*.md"))) == 1


def test_a_key_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "refs"
    body = Dispatch(brief="x", ref_cache={"../../evil": "x"})
    found = paths(lay_out_references(body, folder, ID))
    assert [path.parent for path in found.values()] == [folder / references_of(ID)]
