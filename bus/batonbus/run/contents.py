"""The contents of a ref-cache as files: for programs, whose text names them by their paths."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path


def lay_out_contents(contents: Mapping[str, str], folder: Path) -> str:
    """Write contents below `folder`, each once by what it says, whoever writes it at the same time;
    returns what a program is told of them by key, blank where there are none. Raises OSError."""
    lines = [f"- {key}: {_write(key, text, folder)}" for key, text in contents.items()]
    if not lines:
        return ""
    return "\n".join(["", "## References, to be read where they lie", "", *lines, ""])


def _write(key: str, text: str, folder: Path) -> Path:
    content = text.encode(errors="replace")
    digest = hashlib.sha256(content).hexdigest()[:32]
    name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in key)[:64]
    path = folder / f"{name}-{digest}.md"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Whoever sees the file sees all of it.
        fresh = folder / f".{path.name}.{os.getpid()}"
        fresh.write_bytes(content)
        fresh.replace(path)
    return path


def hide_from_git(folder: Path) -> None:
    """What the runtime writes below a folder is nobody's change. Raises OSError."""
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
