"""The recorded project: how it is made anew, and where its script is."""

import os
import shutil
import subprocess
from pathlib import Path

WORK = "WORK-01"
"""The id of its one work."""

SLOW_TASK = "TASK-06"
"""Its builder takes long enough to be killed in the middle."""

SCRIPT = Path(__file__).with_name("script.toml")
"""What its builders did: for the runtime `script:FILE`."""

_TREE = Path(__file__).with_name("tree")
_KEPT_SUFFIX = ".txt"
"""Python files are kept with it, so that no tool takes them for this package's own."""

_AUTHOR = {"NAME": "batonbus", "EMAIL": "batonbus@localhost", "DATE": "2026-01-06T08:00:00Z"}


def make_project(folder: Path) -> Path:
    """Make the project in a new or empty folder: a git repository with one commit on `main`, the
    same to the bit each time. Returns the folder's absolute path.

    Raises FileExistsError where something is in the folder.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name a new folder")
    for kept in sorted(path for path in _TREE.rglob("*") if path.is_file()):
        name = kept.relative_to(_TREE).as_posix().removesuffix(_KEPT_SUFFIX)
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, target)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "config", "core.autocrlf", "false")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "A station's log, and the work that it asks for")
    return folder.absolute()


def _git(folder: Path, *arguments: str) -> None:
    """Run git without the user's settings: they would be in the commit's hash."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_NOSYSTEM": "1"}
    env["GIT_CONFIG_GLOBAL"] = os.devnull
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_{key}": value for key, value in _AUTHOR.items()}
    subprocess.run(("git", *arguments), cwd=folder, env=env, check=True)
