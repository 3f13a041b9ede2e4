"""Files that are read while they are written."""

from pathlib import Path
from uuid import uuid4


def write_whole(path: Path, content: bytes) -> None:
    """Put a file in place: whoever sees it sees all of it. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
