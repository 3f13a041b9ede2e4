"""What lies beside an assignment as files, for programs, whose text names them by their paths: the
contents of a ref-cache, and what was taken out of the text. It goes when its handoff has ended."""

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

from batonbus.logs import log
from batonbus.rules.budget import REFERENCES, folder_of, references_of
from batonbus.run.files import write_whole

DRAFTS = Path(REFERENCES).with_name("drafts")
"""Folder in which a fleet may keep what it writes for one handoff, in a folder with its id."""


def lay_out_contents(contents: Mapping[str, str], top: Path, handoff_id: UUID) -> str:
    """Write contents below the folder `top`, for one handoff, each once by what it says, whoever
    writes it at the same time; git does not show them. Returns what a program is told of them by
    key, blank where there are none. Raises OSError."""
    folder = top / references_of(handoff_id)
    lines = [f"- {key}: {_write(key, text, folder)}" for key, text in contents.items()]
    if not lines:
        return ""
    hide_from_git(top / Path(REFERENCES).parts[0])
    return "\n".join(["", "## References, to be read where they lie", "", *lines, ""])


def _write(key: str, text: str, folder: Path) -> Path:
    content = text.encode(errors="replace")
    digest = hashlib.sha256(content).hexdigest()[:32]
    name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in key)[:64]
    path = folder / f"{name}-{digest}.md"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    return path


def hide_from_git(folder: Path) -> None:
    """What the runtime writes below a folder is nobody's change. Raises OSError."""
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")


def has_contents(top: Path, handoff_id: UUID) -> bool:
    """Whether something was laid out below `top` for this handoff."""
    try:
        return (top / references_of(handoff_id)).exists()
    except OSError:  # of somebody else, then
        return False


def remove_contents(top: Path, handoff_id: UUID) -> None:
    """Remove what was laid out below `top` for a handoff that has ended: no program reads it any
    more whose answer counts."""
    _remove([top / references_of(handoff_id)])


def remove_leftovers(top: Path, ended: Iterable[UUID]) -> int:
    """Remove what handoffs that ended long ago have left below `top`: where their agents died, and
    the drafts. Returns how many folders there were."""
    ids = set(ended)
    hashes, names = set(map(folder_of, ids)), set(map(str, ids))
    found = [it for it in _folders(top / REFERENCES) if it.name in hashes]
    found += [it for it in _folders(top / DRAFTS) if it.name in names]
    _remove(found)
    return len(found)


def _folders(home: Path) -> list[Path]:
    try:
        return list(home.iterdir()) if home.is_dir() else []
    except OSError as error:
        log.warning("references.not_removed", folder=str(home), error=str(error))
        return []


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass  # it had none
        except OSError as error:
            log.warning("references.not_removed", folder=str(folder), error=str(error))
