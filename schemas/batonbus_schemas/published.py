"""The JSON Schemas of the messages (draft 2020-12), for other languages: `schemas/json/`.

`python -m batonbus_schemas.published` writes them in a source tree; `--check` only compares, names
the files that are stale, and exits with 1 if there are any.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from batonbus_schemas.bodies import CompactionHandoff, Dispatch, Question, TaskResult
from batonbus_schemas.context import ContextHandoff, WindowEntry
from batonbus_schemas.contract import ContractV1, HandoffV1
from batonbus_schemas.envelope import Delivery, Envelope, Settlement
from batonbus_schemas.receipts import AgentCard, Checkpoint, Presence, Receipt, ResetJournal

FOLDER = Path(__file__).parents[1] / "json"

PUBLISHED: dict[str, type[msgspec.Struct]] = {
    "envelope": Envelope,
    "delivery": Delivery,
    "settlement": Settlement,
    "handoff-v1": ContractV1,
    "dispatch": Dispatch,
    "task-result": TaskResult,
    "question": Question,
    "compaction-handoff": CompactionHandoff,
    "context-handoff": ContextHandoff,
    "window-entry": WindowEntry,
    "receipt": Receipt,
    "agent-card": AgentCard,
    "presence": Presence,
    "checkpoint": Checkpoint,
    "reset-journal": ResetJournal,
}


def json_schema(name: str) -> dict[str, Any]:
    """The schema of a published message, by its name in `PUBLISHED`."""
    type_ = PUBLISHED[name]
    (root,), parts = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    if HandoffV1.__name__ in parts:
        _, contract = msgspec.json.schema_components([ContractV1], ref_template="#/$defs/{name}")
        parts |= contract
        document = {"$ref": f"#/$defs/{ContractV1.__name__}"}
        parts[HandoffV1.__name__]["properties"]["document"] = document
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:batonbus:schema:{name}:1.0",
        **root,
        "$defs": dict(sorted(parts.items())),
    }


def find_stale(folder: Path) -> list[Path]:
    """The files of `folder` that differ from what the messages say now, or should not be there."""
    texts = _texts(folder)
    left_over = {path for path in folder.glob("*.json") if path not in texts}
    stale = {
        path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text
    }
    return sorted(stale | left_over)


def write_schemas(folder: Path) -> None:
    """Bring `folder` up to date."""
    texts = _texts(folder)
    for path in find_stale(folder):
        if path in texts:
            path.write_text(texts[path], "utf-8")
        else:
            path.unlink()


def _texts(folder: Path) -> dict[Path, str]:
    return {folder / f"{name}.schema.json": _text(json_schema(name)) for name in PUBLISHED}


def _text(schema: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the JSON Schemas of the messages.")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if stale")
    options = parser.parse_args(arguments)
    if not FOLDER.is_dir():
        parser.error(f"{FOLDER} is no folder: run this in a source tree")
    stale = find_stale(FOLDER)
    if options.check:
        for path in stale:
            sys.stdout.write(f"stale: {path.name}; run python -m batonbus_schemas.published\n")
        return 1 if stale else 0
    write_schemas(FOLDER)
    sys.stdout.write(f"{len(stale)} of {len(PUBLISHED)} schemas written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
