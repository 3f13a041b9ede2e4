"""The user's own checkout of the branch: brought along with a commit, file by file, and otherwise
never touched."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from batonbus_agents.git import (
    Change,
    Changes,
    Entry,
    Git,
    RepositoryError,
    put,
    reverse,
    state_folder,
    temporary_index,
)

WRITER_WAIT = 120.0
"""Seconds to wait for another commit of ours."""

INDEX_WAIT = 10.0
"""Seconds to wait for the user's own git to release the index."""

_POLL = 0.02

_Stamp = tuple[int, int, int] | None


@asynccontextmanager
async def writing(lock: Path) -> AsyncGenerator[None]:
    """Be the one writer of a branch; the system releases the lock of a process that is killed.

    Raises RepositoryError after WRITER_WAIT.
    """

    with lock.open("a") as file:

        def take() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not await _comes_true(take, WRITER_WAIT):
            raise RepositoryError(
                f"another process has been committing for {WRITER_WAIT:g} s (it holds {lock}): "
                "end it, and try again"
            )
        yield


@asynccontextmanager
async def locked_checkout(git: Git, git_dir: Path, lock: Path) -> AsyncGenerator["Checkout"]:
    """The checkout in the folder of `git`, while its index is locked as git itself locks it: the
    user cannot commit an old index on a new tip, nor leave the branch.

    `lock` is the file of `writing`, which must be held. The index's lock is a hard link to it; one
    that a killed process left is so known as ours, and taken over. Raises RepositoryError.
    """
    index_lock = git_dir / "index.lock"

    def take() -> bool:
        try:
            os.link(lock, index_lock)
        except FileExistsError:
            return _is_link(lock, index_lock)
        except OSError as error:
            raise RepositoryError(f"the index of {git.folder} cannot be locked: {error}") from error
        return True

    if not await _comes_true(take, INDEX_WAIT):
        raise RepositoryError(
            f"{index_lock} has been there for {INDEX_WAIT:g} s: end the git that runs in "
            f"{git.folder} (an open commit message?), or delete this file if none does"
        )
    try:
        with _aside(state_folder(git.folder)) as folder:
            yield Checkout(git, git_dir, folder)
    finally:
        if _is_link(lock, index_lock):
            index_lock.unlink()


def _is_link(lock: Path, index_lock: Path) -> bool:
    try:
        return index_lock.samefile(lock)
    except FileNotFoundError:
        return False


async def _comes_true(check: Callable[[], bool], time_limit: float) -> bool:
    with anyio.move_on_after(time_limit):
        while not check():  # noqa: ASYNC110 - no event tells of another process's lock
            await anyio.sleep(_POLL)
        return True
    return False


@contextmanager
def _aside(state: Path) -> Generator[Path]:
    """A folder on the disk of the work tree, so that its files can be moved into place whole. Those
    of killed processes are deleted, not taken: a git that they left may still write there."""
    for left in state.glob("checkout-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="checkout-", dir=state) as folder:
        yield Path(folder)


class Checkout:
    """A checkout with its index locked. `prepare` does all that can fail, `install` is short."""

    def __init__(self, git: Git, git_dir: Path, folder: Path) -> None:
        self.path = git.folder
        self._git = git.given(GIT_DIR=git_dir, GIT_WORK_TREE=git.folder)
        self._with_index = self._git.given(GIT_INDEX_FILE=folder / "index")
        self._index = git_dir / "index"
        self._new_index = folder / "index"
        self._files = folder / "files"
        self._to_place: dict[str, Change] = {}
        self._stamps: dict[str, _Stamp] = {}

    async def prepare(self, changes: Changes) -> tuple[str, ...]:
        """Make ready what `changes` make of the checkout. Answers with the files that the user has
        edited, in the work tree or in the index: they are in neither state; `install` leaves them.
        """
        self._stamps = {path: _stamp(self.path / path) for path in changes}
        as_old, as_new = await self._matching(reverse(changes)), await self._matching(changes)
        entries = await self._entries(changes)
        self._to_place = {path: changes[path] for path in as_old - as_new}
        await self._stage({path: it for path, it in self._to_place.items() if it.new})
        await self._make_index(
            {path: it for path, it in changes.items() if entries.get(path) == it.old}
        )
        kept = changes.keys() - as_old - as_new
        kept |= {path for path, it in changes.items() if entries.get(path) not in it}
        return tuple(sorted(kept | (entries.keys() - changes.keys())))

    async def install(self) -> None:
        """Put the files in place, then the index. Raises RepositoryError."""
        try:
            for path in sorted(self._to_place, key=lambda it: self._to_place[it].new is not None):
                self._place(path)
        except OSError as error:
            raise RepositoryError(
                f"the commit is made, and {self.path} cannot be brought along ({error}): "
                "mend this, and try again"
            ) from error
        await self._with_index.ended("update-index", "-q", "--refresh")
        if self._new_index.exists():
            replacement = self._index.with_name("batonbus.index")
            shutil.copy2(self._new_index, replacement)  # its time is what git judges files by
            replacement.replace(self._index)

    async def _matching(self, changes: Changes) -> set[str]:
        """The paths at which the work tree holds just the new side of `changes`."""
        with temporary_index(self._git) as git:
            await put(git, changes)
            await git.ended("update-index", "-q", "--refresh")
            differing = set((await git("diff-files", "-z", "--name-only")).split("\0"))
        return {
            path
            for path, change in changes.items()
            if (path not in differing if change.new else self._is_free(path, changes))
        }

    async def _entries(self, changes: Changes) -> dict[str, Entry]:
        """What the index has at these paths, and below them."""
        listed = await self._git("ls-files", "--stage", "-z", "--", *changes)
        found: dict[str, Entry] = {}
        for line in listed.split("\0")[:-1]:
            entry, _, path = line.partition("\t")
            mode, oid, stage = entry.split(" ")
            found[path] = Entry(mode, oid) if stage == "0" else Entry("unmerged", oid)
        return found

    async def _stage(self, changes: Changes) -> None:
        """Write the new files aside, as the user's git would write them."""
        with temporary_index(self._git) as git:
            await put(git, changes)
            paths = "".join(f"{path}\0" for path in changes)
            prefix = f"--prefix={self._files}/"
            await git("checkout-index", "-z", "--force", "--stdin", prefix, text=paths)

    async def _make_index(self, changes: Changes) -> None:
        if self._index.exists():
            shutil.copy2(self._index, self._new_index)
            await put(self._with_index, changes)

    def _is_free(self, path: str, changes: Changes) -> bool:
        """Whether nothing stands at `path`, nor in its way, but what `changes` remove."""
        place = self.path / path
        obstacle = self._obstacle(place)
        if obstacle is not None:
            return str(obstacle.relative_to(self.path)) in changes
        if place.is_dir() and not place.is_symlink():
            below = (it for it in place.rglob("*") if it.is_symlink() or not it.is_dir())
            return all(str(it.relative_to(self.path)) in changes for it in below)
        return not os.path.lexists(place)

    def _obstacle(self, place: Path) -> Path | None:
        """The first thing above `place` that is no folder; a link to one would lead elsewhere."""
        above = place.relative_to(self.path).parents
        steps = [self.path / it for it in reversed(above)][1:]
        odd = (it for it in steps if it.is_symlink() or (it.exists() and not it.is_dir()))
        return next(odd, None)

    def _place(self, path: str) -> None:
        place = self.path / path
        if self._obstacle(place) is not None or _stamp(place) != self._stamps[path]:
            return  # the user has edited it just now
        if self._to_place[path].new is None:
            place.unlink(missing_ok=True)
            _remove_empty(place.parent, self.path)
            return
        if place.is_dir() and not place.is_symlink():
            _remove_empty_below(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        (self._files / path).replace(place)


def _stamp(place: Path) -> _Stamp:
    """What changes when a file is written; None where no file is."""
    try:
        found = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _remove_empty(folder: Path, top: Path) -> None:
    while folder != top and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _remove_empty_below(folder: Path) -> None:
    for at, _, _ in os.walk(folder, topdown=False):
        Path(at).rmdir()
