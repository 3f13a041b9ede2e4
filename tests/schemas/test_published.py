import json
from pathlib import Path

import jsonschema
import pytest

from batonbus_schemas import published
from batonbus_schemas.published import FOLDER, PUBLISHED, find_stale, json_schema, main


def test_the_published_schemas_are_those_of_the_messages():
    assert find_stale(FOLDER) == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_schema_is_a_schema_with_a_name_of_its_own(name: str):
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:batonbus:schema:{name}:1.0"


def test_every_moment_and_id_has_a_format():
    text = (FOLDER / "envelope.schema.json").read_text("utf-8")
    definitions = json.loads(text)["$defs"]
    assert definitions["Envelope"]["properties"]["id"]["format"] == "uuid"
    assert definitions["ContractV1"]["properties"]["timestamp"]["format"] == "date-time"


def test_the_document_of_a_body_is_described_by_the_contract():
    document = json_schema("envelope")["$defs"]["HandoffV1"]["properties"]["document"]
    assert document == {"$ref": "#/$defs/ContractV1"}


def test_a_stale_schema_is_named_then_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(published, "FOLDER", tmp_path)
    assert main([]) == 0
    (tmp_path / "receipt.schema.json").write_text("{}\n")
    (tmp_path / "packet.schema.json").write_text("{}\n")
    capsys.readouterr()
    assert main(["--check"]) == 1
    named = capsys.readouterr().out
    assert "receipt.schema.json" in named
    assert "packet.schema.json" in named
    assert len(named.splitlines()) == 2
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {f"{it}.schema.json" for it in PUBLISHED}


def test_outside_a_source_tree_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(published, "FOLDER", tmp_path / "json")
    with pytest.raises(SystemExit):
        main([])
    assert "run this in a source tree" in capsys.readouterr().err
    assert not (tmp_path / "json").exists()
