"""What a sender pastes into an assignment though it stands in a file that it names there: only the
sender has the files."""

from pathlib import Path

from batonbus.rules.pastes import find_copies, named_files
from batonbus_schemas import Body, Violation

READ_LIMIT = 262_144
"""Bytes of a file that are compared."""


def copied_passages(body: Body, folder: Path) -> list[Violation]:
    """Where a dispatch pastes 400 characters or more of a file that it refers to and that exists
    below `folder` (seed 001, dispatch payload): what should only be referred to."""
    files: dict[str, str] = {}
    for name in named_files(body):
        try:
            with (folder / name).open("rb") as file:
                files[name] = file.read(READ_LIMIT).decode(errors="replace")
        except (OSError, ValueError):
            continue  # it may lie where the receiver works
    return find_copies(body, files)
