"""Reference files for a runtime: written down before it starts, and named to it by their paths.

What a dispatch carries in its ref-cache is used, and its file not opened; a known one that it does
not carry is read from the references folder (seed 002, section 6).
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from batonbus import lay_out_contents
from batonbus_schemas import Dispatch
from batonbus_schemas.xml import resolve_ref

KNOWN = (
    "shared-prompt-sections",
    "file-content-schema",
    "xml-schema",
    "context-policy",
    "work-activity-log",
)


def lay_out_references(body: Dispatch, top: Path, handoff_id: UUID) -> str:
    """Write the references of a handoff's dispatch below the folder `top`, each once by its
    content; returns what a runtime is told of them, blank where there are none."""
    return lay_out_contents(dict(_contents(body)), top, handoff_id)


def _contents(body: Dispatch) -> Iterator[tuple[str, str]]:
    for key in dict.fromkeys((*body.ref_cache, *KNOWN)):
        try:
            yield key, resolve_ref(key, body.ref_cache, body.references_dir, _read)
        except (ValueError, OSError):
            continue  # it is no must: whoever looks for it finds that it is not there


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
