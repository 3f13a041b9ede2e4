"""The user's repository: where tasks get their work trees, and where each becomes one commit."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from batonbus_agents.checkout import Checkout, locked_checkout, writing
from batonbus_agents.commit import (
    TRAILER,
    CommitRefusedError,
    LocalEditsError,
    Order,
    commit_message,
)
from batonbus_agents.git import (
    STATE_FOLDER,
    Git,
    GitError,
    RepositoryError,
    find_commit,
    state_folder,
    tree_changes,
    update_refs,
)
from batonbus_agents.worktree import (
    Snapshot,
    Worktree,
    delete_refs,
    delete_worktree,
    list_tasks,
    open_worktree,
    task_ref,
)

__all__ = ["CommitRefusedError", "Repository"]

_BUILDS = 10
_AUTHOR = {"user.name": "Batonbus", "user.email": "batonbus@localhost"}
_ASKED = r"^(user\.name|user\.email|core\.sparsecheckout)$"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository with `branch` checked out in the work tree at `path`, its top level."""

    path: Path
    branch: str
    common_dir: Path
    git: Git

    @classmethod
    async def open(cls, path: Path) -> "Repository":
        """The repository around `path`. Raises RepositoryError where there is none, where HEAD is
        detached, where the branch has no commit, and for a sparse checkout."""
        git = await _find_top(path)
        head = await git.ended("symbolic-ref", "--quiet", "HEAD")
        if head.code:
            raise RepositoryError(
                f"{git.folder} is on no branch (its HEAD is detached): "
                "check out the branch that the work shall land on"
            )
        ref = head.stdout.strip()
        if await find_commit(git, ref) is None:
            raise RepositoryError(
                f"{git.folder} has no commit yet: make a first one, for tasks start from it"
            )
        common = git.folder / await git("rev-parse", "--git-common-dir")
        git = await _as_author(git)
        return cls(git.folder, ref.removeprefix("refs/heads/"), common.resolve(), git)

    @property
    def ref(self) -> str:
        """The branch's full name."""
        return f"refs/heads/{self.branch}"

    async def tip(self) -> str:
        """The branch's newest commit."""
        return await self.git("rev-parse", "--verify", self.ref)

    async def commits_of(self, work: str) -> dict[str, str]:
        """The commit of each task of `work` that is on the branch; the oldest of several."""
        return await self._commits_of(work, await self.tip())

    async def worktree(self, work: str, task: str) -> Worktree:
        """The task's own work tree; made, and at the task's base, where it is not there or broken.

        The base is the branch's tip at the first call. Raises RepositoryError.
        """
        label = _label(work, task)
        path = state_folder(self.path) / "worktrees" / work / task
        return await open_worktree(self.git, path, label, self.ref)

    async def unsaved(self, work: str, task: str, attempt: int) -> tuple[str, ...] | None:
        """The files of the task's work tree that differ from its base and are not what `attempt`
        left; None where the tree or that attempt is gone. Raises GitError."""
        label, path = _label(work, task), self.path / STATE_FOLDER / "worktrees" / work / task
        if not await anyio.Path(path).is_dir():
            return None
        worktree = await open_worktree(self.git, path, label, self.ref)
        snapshot = await worktree.find_snapshot(attempt)
        if snapshot is None:
            return None
        saved = {it.path for it in snapshot.changes}
        return tuple(it for it in await worktree.changed() if it not in saved)

    async def remove_worktree(self, work: str, task: str) -> None:
        """Delete the task's work tree, its base and its snapshots: the task would start anew."""
        label = _label(work, task)
        await delete_worktree(self.git, self.path / STATE_FOLDER / "worktrees" / work / task)
        await delete_refs(self.git, label)

    async def clean(self, work: str) -> None:
        """Delete all that tasks of a finished work have left, but their commits."""
        for task in await list_tasks(self.git, work):
            await self.remove_worktree(work, task)

    async def commit_task(
        self, work: str, task: str, snapshot: Snapshot, declared: Sequence[str], message: str
    ) -> str:
        """One commit on the branch, with the declared files as the snapshot has them; its hash.

        Killed at any instant and called again, it ends with the same one commit, and with the
        user's checkout brought along. Raises CommitRefusedError, before anything is changed;
        RepositoryError and GitError.
        """
        order = Order(_label(work, task), tuple(declared), snapshot, message)
        lock = self.common_dir / "batonbus.lock"
        async with writing(lock), self._checkout(lock) as checkout:
            for _ in range(_BUILDS):
                tip = await self.tip()
                commit = (await self._commits_of(work, tip)).get(task)
                if commit is not None:
                    await self._bring_along(checkout, commit, tip, order.label)
                    return commit
                commit = await self._commit(order, tip, checkout)
                if commit is not None:
                    return commit
        raise RepositoryError(
            f"{self.branch} moved {_BUILDS} times while {order.label} was committed: "
            "stop what moves it, and try again"
        )

    async def _commits_of(self, work: str, tip: str) -> dict[str, str]:
        prefix = f"{_checked(work)}/"
        trailers = f"%(trailers:key={TRAILER},valueonly,unfold,separator=%x09)"
        listed = await self.git(
            "rev-list",
            "--fixed-strings",
            f"--grep={TRAILER}: {prefix}",
            f"--format=%H%x09{trailers}",
            tip,
        )
        found: dict[str, str] = {}
        for line in listed.splitlines():
            commit, *labels = line.split("\t")
            tasks = [it.removeprefix(prefix) for it in labels if it.startswith(prefix)]
            found.update(dict.fromkeys(tasks, commit))
        return found

    @asynccontextmanager
    async def _checkout(self, lock: Path) -> AsyncGenerator[Checkout | None]:
        """The work tree in which the branch is checked out, locked; None where it is in none."""
        while place := await self._checked_out():
            git = self.git.at(Path(place))
            git_dir = Path(await git("rev-parse", "--absolute-git-dir"))
            async with locked_checkout(git, git_dir, lock) as checkout:
                if await self._checked_out() == place:
                    yield checkout
                    return
        yield None

    async def _checked_out(self) -> str:
        place = await self.git("for-each-ref", "--format=%(worktreepath)", self.ref)
        return place if place and await anyio.Path(place).is_dir() else ""

    async def _commit(self, order: Order, tip: str, checkout: Checkout | None) -> str | None:
        """The commit; None where the branch has moved on from `tip` meanwhile."""
        tree, changes = await order.build(self.git, tip)
        edited = await checkout.prepare(changes) if checkout else ()
        if checkout and edited:
            raise LocalEditsError(
                edited,
                f"{order.label} changes this, and so did you, in {checkout.path}: "
                "commit or undo your edits first",
            )
        message = commit_message(order.message, order.label)
        commit = await self.git("commit-tree", tree, "-p", tip, "-F", "-", text=message)
        # To the end: a commit without its checkout would look like edits of the user.
        with anyio.CancelScope(shield=True):
            if await self._advance(tip, commit, order.label):
                if checkout:
                    await checkout.install()
                await self._note_brought(order.label, commit)
                return commit
        return None

    async def _advance(self, tip: str, commit: str, label: str) -> bool:
        """Move the branch; False where it is not at `tip` any more."""
        command = f"update {self.ref} {commit} {tip}"
        try:
            await update_refs(self.git, command, reason=f"batonbus: {label}")
        except GitError:
            if await self.tip() == tip:
                raise
            return False
        return True

    async def _bring_along(
        self, checkout: Checkout | None, commit: str, tip: str, label: str
    ) -> None:
        """Bring the checkout to `tip` in the files of `commit`, which was killed before it could.

        Once this is noted, an old version in the checkout is the user's will."""
        if await find_commit(self.git, task_ref(label, "commit")) == commit:
            return
        parent = await find_commit(self.git, f"{commit}^")
        if checkout and parent:
            files = await tree_changes(self.git, parent, commit)
            if changes := await tree_changes(self.git, parent, tip, files):
                await checkout.prepare(changes)
                await checkout.install()
        await self._note_brought(label, commit)

    async def _note_brought(self, label: str, commit: str) -> None:
        await update_refs(self.git, f"update {task_ref(label, 'commit')} {commit}")


def _label(work: str, task: str) -> str:
    return f"{_checked(work)}/{_checked(task)}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise RepositoryError(
            f"{name!r} cannot name a work or a task: use 1 to 64 letters, digits, - and _"
        )
    return name


async def _find_top(path: Path) -> Git:
    if not await anyio.Path(path).is_dir():
        raise RepositoryError(f"{path} is no folder: name the repository's")
    found = await Git(path).ended("rev-parse", "--show-toplevel")
    if found.code:
        raise RepositoryError(
            f"{path} is in no git work tree ({found.stderr.strip()}): "
            "name one, or run `git init` and make a first commit"
        )
    return Git(Path(found.stdout.removesuffix("\n")))


async def _as_author(git: Git) -> Git:
    """Git with the user's own name, or ours. Raises RepositoryError for a sparse checkout."""
    listed = (await git.ended("config", "--null", "--get-regexp", _ASKED)).stdout
    found = dict(line.split("\n", 1) for line in listed.split("\0") if "\n" in line)
    if found.get("core.sparsecheckout", "").lower() in {"true", "1", "yes", "on"}:
        raise RepositoryError(
            f"{git.folder} is a sparse checkout, in which commits cannot be brought along: "
            "run `git sparse-checkout disable` first"
        )
    name, email = (found.get(key) or default for key, default in _AUTHOR.items())
    return git.given(
        GIT_AUTHOR_NAME=name,
        GIT_AUTHOR_EMAIL=email,
        GIT_COMMITTER_NAME=name,
        GIT_COMMITTER_EMAIL=email,
    )
