"""A user's repository under test, and git as the user calls it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from batonbus_agents.repository import Repository
from batonbus_agents.worktree import Snapshot

PATH = os.environ["PATH"]
GIT = shutil.which("git") or "git"
WORK, TASK = "WORK-01", "TASK-01"


class Project:
    """A repository on the branch main with one commit: a.txt, lib/b.txt, run.sh (executable)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "--template=", "-b", "main")
        self.write({"a.txt": "a\n", "lib/b.txt": "b\n", "run.sh": "#!/bin/sh\n"})
        (path / "run.sh").chmod(0o755)
        self.commit("first")

    def git(
        self, *arguments: str, text: str = "", cwd: Path | None = None, check: bool = True
    ) -> str:
        """What git prints, as bytes that need not be UTF-8, without the last line's end."""
        ended = subprocess.run(
            [GIT, *arguments],
            cwd=cwd or self.path,
            check=check,
            input=text.encode(),
            capture_output=True,
            timeout=30,
        )
        return ended.stdout.decode(errors="surrogateescape").removesuffix("\n")

    def write(self, files: dict[str, str | bytes | None], *, at: Path | None = None) -> None:
        """Write files (None: delete) in the project, or in another work tree."""
        for name, content in files.items():
            place = (at or self.path) / name
            if content is None:
                place.unlink()
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, message: str) -> str:
        """Commit all, as the user; the hash."""
        self.git("add", "--all")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def status(self) -> str:
        """Empty where nothing differs from the tip."""
        return self.git("status", "--porcelain")

    def show(self, name: str, at: str = "HEAD") -> str:
        """A file's content in a commit."""
        return self.git("cat-file", "blob", f"{at}:{name}")

    def changed(self, commit: str = "HEAD") -> list[str]:
        """The files that a commit changes."""
        listed = self.git("diff-tree", "-r", "-z", "--name-only", "--no-commit-id", commit)
        return listed.split("\0")[:-1]

    def log(self) -> list[str]:
        """The subjects of the branch, oldest first; a merge would stand here twice."""
        return self.git("log", "--reverse", "--format=%s", "main").splitlines()

    async def build(
        self, files: dict[str, Any], task: str = TASK, attempt: int = 1, work: str = WORK
    ) -> Snapshot:
        """What a builder that writes these files leaves."""
        repository = await Repository.open(self.path)
        worktree = await repository.worktree(work, task)
        self.write(files, at=worktree.path)
        return await worktree.snapshot(attempt)


def step_in(folder: Path, calls: str, script: str) -> str:
    """A PATH on which `git` runs a shell script before each call that the pattern fits."""
    folder.mkdir(exist_ok=True)
    program = folder / "git"
    program.write_text(f'#!/bin/sh\ncase "$*" in {calls})\n{script}\n;; esac\nexec {GIT} "$@"\n')
    program.chmod(0o755)
    return f"{folder}:{PATH}"
