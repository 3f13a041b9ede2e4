"""A task's own work tree, and what each attempt left in it."""

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
from msgspec import Struct

from batonbus_agents.git import (
    Change,
    Changes,
    Git,
    GitError,
    RepositoryError,
    find_commit,
    temporary_index,
    tree_changes,
    update_refs,
)
from batonbus_schemas import FileChange

_OWN_SETTINGS = ("core.autocrlf=false", "core.eol=lf", "core.sparseCheckout=false")
"""Bytes go in and out as they are, and all of them."""

_WORKS = "works/"
_REFS = "refs/batonbus/"


class Snapshot(Struct, frozen=True):
    """What an attempt left: a commit whose parent is the task's base, and what changed since the
    base. `changes` leaves out `works/`, whose files are not the task's work."""

    commit: str
    changes: tuple[FileChange, ...]

    def undeclared(self, declared: Collection[str]) -> tuple[str, ...]:
        """The changed paths that the task did not declare."""
        return tuple(it.path for it in self.changes if it.path not in declared)


@dataclass(frozen=True, slots=True)
class Worktree:
    """A detached work tree at the task's `base`; `label` is `<work>/<task>`.

    Git is told where its folder is and never looks for it: without that, a builder that deletes
    the `.git` file would turn the next call against the repository around the work tree.
    """

    path: Path
    label: str
    base: str
    git_dir: Path
    git: Git

    async def restore(self, attempt: int) -> None:
        """Make the tree what `attempt` left (0: the base), whatever stands there now. Ignored files
        such as caches stay, files that are right already are not written again.

        Raises RepositoryError where that attempt left nothing.
        """
        await self._restore(await self._commit(attempt))

    async def restore_latest(self) -> None:
        """Make the tree what the latest attempt left; the base where there was none."""
        await self._restore(await self._commit(await self._latest()))

    async def snapshot(self, attempt: int) -> Snapshot:
        """Record the tree as what `attempt` (from 1) left; it is the latest from now on."""
        if attempt < 1:
            raise ValueError(f"attempts count from 1, and this is {attempt}")
        later = [it for it in await self._attempts() if it > attempt]
        with temporary_index(self.git) as git:
            await git("read-tree", self.base)
            await git("add", "--all")
            tree = await git("write-tree")
        commit = await self.git("commit-tree", tree, "-p", self.base, "-m", self._ref(attempt))
        await update_refs(
            self.git,
            f"update {self._ref(attempt)} {commit}",
            *(f"delete {self._ref(it)}" for it in later),
        )
        return await self._read(commit)

    async def changed(self) -> tuple[str, ...]:
        """The files that differ from the base by `git status`, but for the works' own."""
        asked = ("--porcelain", "-z", "--no-renames", "--untracked-files=all")
        listed = await self.git("status", *asked, "--ignore-submodules=dirty")
        paths = {it[3:] for it in listed.split("\0") if it}
        return tuple(sorted(it for it in paths if not it.startswith(_WORKS)))

    async def find_snapshot(self, attempt: int) -> Snapshot | None:
        """What `attempt` left, if it ended."""
        commit = await find_commit(self.git, self._ref(attempt))
        return await self._read(commit) if commit else None

    async def find_latest(self) -> Snapshot | None:
        """What the latest attempt left, if one ended."""
        return await self.find_snapshot(await self._latest())

    async def _restore(self, commit: str) -> None:
        # Who worked here was killed: its index may be locked, half written, or flagged to lie.
        for left in ("index", "index.lock", "HEAD.lock"):
            (self.git_dir / left).unlink(missing_ok=True)
        await self.git("update-ref", "--no-deref", "HEAD", self.base)
        await self.git("read-tree", commit)
        await self.git.ended("update-index", "-q", "--refresh")  # 1: some files differ
        await self.git("checkout-index", "--all", "--force", "--index")
        await self.git("clean", "-ffdq")

    async def _commit(self, attempt: int) -> str:
        if attempt == 0:
            return self.base
        commit = await find_commit(self.git, self._ref(attempt))
        if commit is None:
            raise RepositoryError(
                f"attempt {attempt} of {self.label} left nothing: restore an earlier one"
            )
        return commit

    async def _read(self, commit: str) -> Snapshot:
        changes = await tree_changes(self.git, self.base, commit)
        return Snapshot(commit=commit, changes=file_changes(changes))

    async def _latest(self) -> int:
        return max(await self._attempts(), default=0)

    async def _attempts(self) -> list[int]:
        prefix = self._ref("")
        refs = await self.git("for-each-ref", "--format=%(refname)", f"{prefix}*")
        return [int(ref.removeprefix(prefix)) for ref in refs.split()]

    def _ref(self, attempt: int | str) -> str:
        return task_ref(self.label, f"attempt-{attempt}")


def task_ref(label: str, name: str) -> str:
    """A ref of ours: `base`, `attempt-<n>`, or `commit`, set when the checkout has the commit."""
    return f"{_REFS}{label}/{name}"


def file_changes(changes: Changes) -> tuple[FileChange, ...]:
    """Changes as results tell them, without those of the works' own files."""
    return tuple(
        FileChange(action=_action(change), path=path)
        for path, change in sorted(changes.items())
        if not path.startswith(_WORKS)
    )


def _action(change: Change) -> Literal["created", "modified", "deleted"]:
    if change.old is None:
        return "created"
    return "modified" if change.new else "deleted"


async def open_worktree(git: Git, path: Path, label: str, branch_ref: str) -> Worktree:
    """The task's work tree at `path`, made where it is missing, half made or broken; then it holds
    the base. The base is the branch's tip at the first call, for ever.

    Raises GitError.
    """
    git = git.given(*_OWN_SETTINGS)
    base = await _base(git, label, branch_ref)
    git_dir = await _find_git_dir(git, path)
    if git_dir is None:
        await delete_worktree(git, path)
        # Twice: an earlier one may be registered here still, and locked since it was half made.
        await git("worktree", "add", "--force", "--force", "--detach", str(path), base)
        git_dir = await _find_git_dir(git, path)
        assert git_dir is not None
    own = git.at(path).given(GIT_DIR=git_dir, GIT_WORK_TREE=path)
    return Worktree(path=path, label=label, base=base, git_dir=git_dir, git=own)


async def _base(git: Git, label: str, branch_ref: str) -> str:
    ref = task_ref(label, "base")
    if base := await find_commit(git, ref):
        return base
    tip = await git("rev-parse", "--verify", branch_ref)
    try:
        await update_refs(git, f"create {ref} {tip}")
    except GitError:
        if base := await find_commit(git, ref):
            return base  # another was first
        raise
    return tip


async def _find_git_dir(git: Git, path: Path) -> Path | None:
    """Where git keeps the state of the whole work tree at `path`; None where there is no such."""
    if not await anyio.Path(path).is_dir():
        return None
    common = git.folder / await git("rev-parse", "--git-common-dir")
    asked = ("rev-parse", "--show-toplevel", "--git-common-dir", "--absolute-git-dir")
    ended = await git.at(path).ended(*asked)
    if ended.code:
        return None
    top, its_common, git_dir = (path / line for line in ended.stdout.splitlines())
    return git_dir if _is_whole(path, top, common, its_common, git_dir) else None


def _is_whole(path: Path, top: Path, common: Path, its_common: Path, git_dir: Path) -> bool:
    """Git found `path` itself, of our repository, and has not left its lock of a half-made one."""
    ours = top == path.parent.resolve() / path.name and its_common.resolve() == common.resolve()
    return ours and not (git_dir / "locked").exists()


async def delete_worktree(git: Git, path: Path) -> None:
    """Delete the work tree at `path`, whole, broken or missing. Raises RepositoryError."""
    try:
        await anyio.to_thread.run_sync(_delete_folder, path)
    except OSError as error:
        raise RepositoryError(f"{path} cannot be deleted ({error}): delete it by hand") from error
    ended = await git.ended("worktree", "remove", "--force", "--force", str(path))
    if ended.code and "is not a working tree" not in ended.stderr:
        raise GitError("worktree remove", path, ended.stderr)


def _delete_folder(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


async def list_tasks(git: Git, work: str) -> list[str]:
    """The tasks of a work that have a base."""
    refs = await git("for-each-ref", "--format=%(refname)", task_ref(f"{work}/*", "base"))
    return [ref.split("/")[-2] for ref in refs.split()]


async def delete_refs(git: Git, label: str) -> None:
    """Forget the base and the attempts of a task, but not that the checkout has its commit: who
    takes it back afterwards means it. Raises GitError."""
    refs = await git("for-each-ref", "--format=%(refname)", task_ref(label, ""))
    kept = task_ref(label, "commit")
    await update_refs(git, *(f"delete {ref}" for ref in refs.splitlines() if ref != kept))
