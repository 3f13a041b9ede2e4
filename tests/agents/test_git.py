"""Git as the fleet calls it: whatever a user has configured, the same answers."""

import os
import time
from pathlib import Path

import pytest
from git_project import TASK, WORK, Project

from batonbus_agents import git as module
from batonbus_agents.git import (
    OLD_LOCK,
    Change,
    Git,
    GitError,
    put,
    temporary_index,
    tree_changes,
    update_refs,
)
from batonbus_agents.repository import Repository

pytestmark = pytest.mark.anyio

HOSTILE = r"""
[user]
    name = "Ümlaut \"Q\" User"
    email = user@example.org
    useConfigOnly = true
[add]
    ignoreErrors = true
[advice]
    addEmbeddedRepo = true
[color]
    ui = always
[commit]
    gpgSign = true
    template = /nowhere
[core]
    abbrev = 5
    autocrlf = true
    commentChar = "B"
    editor = false
    fsmonitor = {hooks}/fsmonitor
    hooksPath = {hooks}
    pager = false
    quotepath = on
    safecrlf = true
    splitIndex = true
    untrackedCache = true
[diff]
    external = false
    noprefix = true
    renames = copies
[feature]
    manyFiles = true
[format]
    pretty = raw
[gc]
    auto = 1
[grep]
    patternType = perl
[gpg]
    program = false
[i18n]
    commitEncoding = ISO-8859-1
    logOutputEncoding = ISO-8859-1
[log]
    showSignature = true
[status]
    relativePaths = true
[submodule]
    recurse = true
[tag]
    gpgSign = true
[trailer]
    separators = "=#"
[trailer "sign"]
    key = "Signed-off-by= "
"""


async def test_no_configuration_of_the_user_changes_what_is_committed(
    project: Project, tmp_path: Path
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("fsmonitor", "post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    (tmp_path / "home" / ".gitconfig").write_text(HOSTILE.format(hooks=hooks))
    project.write({".git/info/attributes": "*.auto text=auto\n"})
    repository = await Repository.open(project.path)
    files = {
        "ü.txt": "b\n",
        "crlf.txt": "1\r\n2\r\n",
        "mixed.txt": "1\n2\r\n",
        "mixed.auto": "1\n2\r\n",
    }
    snapshot = await project.build(files)
    commit = await repository.commit_task(WORK, TASK, snapshot, list(files), "Größer # = ja")
    assert await repository.commit_task(WORK, TASK, snapshot, list(files), "again") == commit
    assert await repository.commits_of(WORK) == {TASK: commit}
    assert [project.show(name, commit) for name in files] == [
        "b",
        "1\r\n2\r",
        "1\n2\r",
        "1\n2",
    ]
    raw = project.git("cat-file", "commit", commit).splitlines()
    assert [line.split(" ")[0] for line in raw[:4]] == ["tree", "parent", "author", "committer"]
    assert raw[2].startswith('author Ümlaut "Q" User <user@example.org> ')
    assert raw[4:] == ["", "Größer # = ja", "", f"Batonbus-Task: {WORK}/{TASK}"]
    assert not (tmp_path / "hook-ran").exists()
    assert project.status() == ""


async def test_the_environment_does_not_lead_git_elsewhere(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    assert await Git(project.path)("rev-parse", "--show-toplevel") == str(project.path)


async def test_a_failure_says_which_call_failed_where_and_why(project: Project) -> None:
    with pytest.raises(GitError, match=f"git cat-file failed in {project.path}: .*none") as error:
        await Git(project.path)("cat-file", "blob", "none")
    assert "none" in error.value.detail


async def test_a_git_that_does_not_answer_or_is_not_there_is_an_error(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIME_LIMIT", 0.2)
    with pytest.raises(GitError, match=r"did not end within 0\.2 s"):
        await Git(project.path)("-c", "alias.wait=!sleep 60", "wait")
    monkeypatch.setenv("PATH", str(project.path))
    with pytest.raises(GitError, match="git cannot be started"):
        await Git(project.path)("status")


async def test_trees_are_compared_file_by_file(project: Project) -> None:
    git = Git(project.path)
    project.write({"lib/b.txt": None, "moved/b.txt": "b\n", "a.txt": "new\n"})
    tip = project.commit("second")
    changes = await tree_changes(git, "HEAD^", "HEAD")
    assert sorted(changes) == ["a.txt", "lib/b.txt", "moved/b.txt"]
    assert changes["lib/b.txt"] == Change(changes["moved/b.txt"].new, None)
    assert list(await tree_changes(git, "HEAD^", "HEAD", ["lib", "run.sh"])) == ["lib/b.txt"]
    with temporary_index(git) as own:
        await own("read-tree", "HEAD^")
        await put(own, changes)
        assert await own("write-tree") == project.git("rev-parse", f"{tip}^{{tree}}")


async def test_a_lock_that_a_dead_process_left_long_ago_does_not_block(project: Project) -> None:
    lock = project.path / ".git/refs/heads/main.lock"
    lock.touch()
    old = time.time() - OLD_LOCK - 1
    os.utime(lock, (old, old))
    tip = project.git("rev-parse", "HEAD")
    await update_refs(Git(project.path), f"update refs/heads/main {tip} {tip}")
    assert not lock.exists()


async def test_a_lock_of_a_git_that_may_live_is_left_and_named(project: Project) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    lock = project.path / ".git/refs/heads/main.lock"
    lock.touch()
    with pytest.raises(GitError, match=str(lock)):
        await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    assert lock.exists()
    assert project.status() == ""
    lock.unlink()
    await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    assert project.status() == ""
