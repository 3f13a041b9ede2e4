"""The `git` program: its environment, its trees and refs, and what can go wrong with them.

A user's configuration, and the system's, keep their say on what the project's files are (ignore
rules, attributes, filters such as LFS), on who the author is and which folders are trusted, and on
nothing else: whatever could change an answer or run a program besides is set in each call.
"""

import re
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from batonbus import BatonbusError, Ended, ProgramError, run_program

TIME_LIMIT = 120.0
"""Seconds that one call of git may take."""

REF_LOCK_WAIT = 3.0
"""Seconds that git waits for a ref that another git has locked."""

OLD_LOCK = 600.0
"""Seconds after which a ref's lock is a dead process's: a living one holds it for milliseconds."""

STATE_FOLDER = ".batonbus"

_SETTINGS = (
    "add.ignoreErrors=false",
    "commit.gpgSign=false",
    "core.commentChar=#",
    f"core.filesRefLockTimeout={REF_LOCK_WAIT * 1000:.0f}",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    f"core.packedRefsTimeout={REF_LOCK_WAIT * 1000:.0f}",
    "core.quotepath=off",
    "core.safecrlf=false",
    "core.splitIndex=false",
    "gc.auto=0",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "submodule.recurse=false",
    "trailer.separators=:",
)
_VARIABLES = {
    "GIT_EDITOR": "false",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_USERS_CONFIGURATION = ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME")
_LOCKED = re.compile(r"Unable to create '(?P<file>.+\.lock)': File exists")


class RepositoryError(BatonbusError):
    """Something that the repository, as it stands, does not allow."""


class GitError(RepositoryError):
    """A call of git failed; `detail` is what git said."""

    def __init__(self, command: str, folder: Path, detail: str) -> None:
        self.detail = detail.strip() or "it said nothing"
        super().__init__(f"git {command} failed in {folder}: {self.detail}")


@dataclass(frozen=True, slots=True)
class Git:
    """Calls git in one folder; `settings` (key=value) and `variables` add to the pinned ones."""

    folder: Path
    settings: tuple[str, ...] = ()
    variables: Mapping[str, str] | None = None

    def given(self, *settings: str, **variables: str | Path) -> "Git":
        """The same with more settings and environment variables."""
        more = {name: str(value) for name, value in variables.items()}
        return replace(
            self,
            settings=(*self.settings, *settings),
            variables={**(self.variables or {}), **more},
        )

    def at(self, folder: Path) -> "Git":
        """The same in another folder."""
        return replace(self, folder=folder)

    async def __call__(self, *arguments: str, text: str = "") -> str:
        """What git prints, without the last line's end. Raises GitError for any exit code but 0."""
        ended = await self.ended(*arguments, text=text)
        if ended.code:
            raise GitError(arguments[0], self.folder, ended.stderr)
        return ended.stdout.removesuffix("\n")

    async def ended(self, *arguments: str, text: str = "") -> Ended:
        """How git ended, for calls whose exit code is an answer. Raises GitError where it could not
        be started, took longer than TIME_LIMIT, or printed more than a megabyte."""
        settings = [it for setting in (*_SETTINGS, *self.settings) for it in ("-c", setting)]
        try:
            return await run_program(
                ["git", *settings, *arguments],
                text=text,
                cwd=self.folder,
                time_limit=TIME_LIMIT,
                variables=_USERS_CONFIGURATION,
                extra={**_VARIABLES, **(self.variables or {})},
                bound=False,  # killed halfway, it would leave its own locks for ever
            )
        except ProgramError as error:
            raise GitError(arguments[0], self.folder, str(error)) from error


class Entry(NamedTuple):
    """A file in a tree: git's mode (`100644`, `120000` …) and the id of its content."""

    mode: str
    oid: str


class Change(NamedTuple):
    """A file in two trees; None where it is not there."""

    old: Entry | None
    new: Entry | None


Changes = Mapping[str, Change]


async def tree_changes(
    git: Git, old: str, new: str, paths: Iterable[str] = ()
) -> dict[str, Change]:
    """What differs between two trees, by path, a rename as two files. Raises GitError, and
    RepositoryError for a name that no message could hold."""
    options = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev")
    fields = (await git("diff-tree", *options, old, new, "--", *paths)).split("\0")
    found = {path: _change(raw) for raw, path in zip(fields[:-1:2], fields[1::2], strict=True)}
    for path in found:
        if "\ufffd" in path:
            raise RepositoryError(f"the name of {path!r} is not UTF-8: rename the file")
    return found


def _change(raw: str) -> Change:
    """A raw line: `:mode mode oid oid letter`; mode 0 is a file that is not there."""
    old_mode, new_mode, old, new, _ = raw.removeprefix(":").split(" ")
    before, after = Entry(old_mode, old), Entry(new_mode, new)
    return Change(before if int(old_mode) else None, after if int(new_mode) else None)


def reverse(changes: Changes) -> dict[str, Change]:
    """The same changes, undone."""
    return {path: Change(change.new, change.old) for path, change in changes.items()}


async def put(git: Git, changes: Changes) -> None:
    """Write the new side of changes into the index of `git`, which GIT_INDEX_FILE names."""
    gone = [
        f"0 {change.old.oid}\t{path}\0"
        for path, change in changes.items()
        if change.old and not change.new
    ]
    there = [
        f"{change.new.mode} {change.new.oid}\t{path}\0"
        for path, change in changes.items()
        if change.new
    ]
    await git("update-index", "-z", "--index-info", text="".join(gone + there))


@contextmanager
def temporary_index(git: Git) -> Generator[Git]:
    """`git` with an empty index of its own."""
    with tempfile.TemporaryDirectory(prefix="batonbus-") as folder:
        yield git.given(GIT_INDEX_FILE=Path(folder, "index"))


async def find_commit(git: Git, name: str) -> str | None:
    """The full id of a commit, or None where the name means none."""
    ended = await git.ended("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return ended.stdout.strip() or None


async def update_refs(git: Git, *commands: str, reason: str = "") -> None:
    """Run commands of `update-ref --stdin` as one transaction. Raises GitError.

    Git waits REF_LOCK_WAIT for a lock. One that is older than OLD_LOCK was left by a process that
    was killed, and is removed.
    """
    call = ("update-ref", *(("-m", reason) if reason else ()), "--stdin")
    text = "".join(f"{command}\n" for command in commands)
    try:
        await git(*call, text=text)
    except GitError as error:
        locked = _LOCKED.search(error.detail)
        if locked is None or not _remove_old(Path(locked["file"])):
            raise
        await git(*call, text=text)


def _remove_old(lock: Path) -> bool:
    try:
        if time.time() - lock.stat().st_mtime < OLD_LOCK:
            return False
        lock.unlink()
    except FileNotFoundError:
        pass  # its owner lives, and has just ended
    return True


def state_folder(top: Path) -> Path:
    """Our own folder in a work tree, which the user's `git status` does not show."""
    folder = top / STATE_FOLDER
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    return folder
