"""What becomes of one task: the tree and the message of its commit, or the reason why not."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from batonbus_agents.git import (
    Changes,
    Git,
    RepositoryError,
    put,
    temporary_index,
    tree_changes,
)
from batonbus_agents.works.files import declared_path_problem
from batonbus_agents.worktree import Snapshot

TRAILER = "Batonbus-Task"

SUBJECT_LIMIT = 72
"""Characters of a commit message's first line."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_GITLINK = "160000"


class CommitRefusedError(RepositoryError):
    """A task cannot be committed as it stands; `files` are those that it is about."""

    def __init__(self, files: Sequence[str], reason: str) -> None:
        self.files = tuple(files)
        super().__init__(f"{', '.join(files)}: {reason}")


class BranchConflictError(CommitRefusedError):
    """A declared file was changed on the branch since the task's base."""


class LocalEditsError(CommitRefusedError):
    """The user has edits of their own in a declared file."""


class NoChangeError(CommitRefusedError):
    """No declared file differs from what the branch has."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be committed: `label` is `<work>/<task>`."""

    label: str
    declared: tuple[str, ...]
    snapshot: Snapshot
    message: str

    async def build(self, git: Git, tip: str) -> tuple[str, Changes]:
        """The tree of the commit on `tip`, and what it changes there: declared files alone.

        Raises CommitRefusedError.
        """
        wanted = await self._wanted(git)
        since = await tree_changes(git, f"{self.snapshot.commit}^", tip, wanted)
        moved = [it for it in since if it not in wanted or since[it].new != wanted[it].new]
        if moved:
            raise BranchConflictError(
                moved, f"changed on the branch since {self.label} began: build it again from there"
            )
        with temporary_index(git) as own:
            await own("read-tree", tip)
            await put(own, wanted)
            tree = await own("write-tree")
        changes = await tree_changes(git, tip, tree)
        # An index drops what stands in the way of a new file: a folder's files, or a file.
        if dropped := sorted(changes.keys() - wanted.keys()):
            raise BranchConflictError(
                dropped, f"{self.label} has something else in this place and does not declare it"
            )
        if not changes:
            raise NoChangeError(self.declared, "the branch has this so already")
        return tree, changes

    async def _wanted(self, git: Git) -> Changes:
        """What the task has changed in its declared files."""
        for path in self.declared:
            if problem := declared_path_problem(path):
                raise CommitRefusedError([path], problem)
        commit = self.snapshot.commit
        changes = await tree_changes(git, f"{commit}^", commit)
        wanted = {path: changes[path] for path in self.declared if path in changes}
        if not wanted:
            files = self.declared or ("no file declared",)
            raise NoChangeError(files, f"{self.label} did not change this")
        for path, change in wanted.items():
            if change.new and change.new.mode == _GITLINK:
                raise CommitRefusedError(
                    [path], "is a repository of its own: delete its .git, and declare its files"
                )
        return wanted


def commit_message(message: str, label: str) -> str:
    """A message whose one trailer is `Batonbus-Task: label`, whatever the text ends in.

    The first line is cut to SUBJECT_LIMIT, and then stands whole below; a blank message becomes the
    label. What ends a message for git (a scissors line) is disarmed.
    """
    clean = (_CONTROL.sub(" ", line).rstrip() for line in message.splitlines())
    text = "\n".join(clean).strip().replace("- >8 -", "- > 8 -") or label
    subject, _, body = text.partition("\n")
    if len(subject) > SUBJECT_LIMIT:
        subject, body = f"{subject[: SUBJECT_LIMIT - 1].rstrip()}…", text
    # A paragraph of its own: no line above can join it.
    parts = (subject, body.strip("\n"), f"{TRAILER}: {label}")
    return "\n\n".join(part for part in parts if part) + "\n"
