"""The message of a commit, and what may stand in one."""

import pytest
from git_project import TASK, WORK, Project
from hypothesis import given
from hypothesis import strategies as st

from batonbus_agents.commit import (
    SUBJECT_LIMIT,
    BranchConflictError,
    CommitRefusedError,
    NoChangeError,
    commit_message,
)
from batonbus_agents.repository import Repository

pytestmark = pytest.mark.anyio

LABEL = f"{WORK}/{TASK}"
SCISSORS = "# ------------------------ >8 ------------------------"

lines = st.one_of(
    st.text(max_size=100),
    st.sampled_from(
        ["", " ", "---", "Batonbus-Task: WORK-09/TASK-09", "Signed-off-by: A <a@b>", SCISSORS]
    ),
)
messages = st.lists(lines, max_size=6).map("\n".join)


@given(messages)
def test_a_message_is_a_short_subject_and_ends_in_its_one_trailer(message: str) -> None:
    paragraphs = commit_message(message, LABEL).split("\n\n")
    assert 0 < len(paragraphs[0]) <= SUBJECT_LIMIT
    assert "\n" not in paragraphs[0]
    assert paragraphs[-1] == f"Batonbus-Task: {LABEL}\n"


@given(messages)
def test_a_message_holds_nothing_that_git_refuses_or_cuts(message: str) -> None:
    made = commit_message(message, LABEL)
    assert "\0" not in made
    assert "\r" not in made
    assert SCISSORS not in made
    made.encode()


def test_a_long_first_line_is_cut_and_stands_whole_below() -> None:
    subject, below, _ = commit_message("word " * 30, LABEL).split("\n\n")
    assert subject == f"{('word ' * 30)[:71].rstrip()}…"
    assert below == ("word " * 30).rstrip()


def test_a_blank_message_becomes_the_tasks_name() -> None:
    assert commit_message(" \n\t\n", LABEL) == f"{LABEL}\n\nBatonbus-Task: {LABEL}\n"


@pytest.mark.parametrize(
    "message",
    [
        "Do it",
        "Do it\n\nWhy: because",
        "Do it\n\nBatonbus-Task: WORK-09/TASK-09",
        "Do it\n\nSigned-off-by: A <a@b>\nBatonbus-Task: WORK-09/TASK-09\n\n",
        "Batonbus-Task: WORK-09/TASK-09",
        f"Do it\n\n{SCISSORS}\nbelow",
        "Do it\n\n---\n a.txt | 2 +-",
        "Do it\n\nConflicts:\n\ta.txt",
        "Do it\n\n# a comment",
        "Do \0 it\r\n\x1b[31mred",
        "Дело\n\nнаписано",
        "x" * 500,
    ],
)
async def test_git_reads_the_one_trailer_whatever_the_message_ends_in(
    project: Project, message: str
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n"})
    commit = await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], message)
    assert await repository.commits_of(WORK) == {TASK: commit}
    assert await repository.commits_of("WORK-09") == {}
    assert len(project.git("log", "-1", "--format=%s")) <= SUBJECT_LIMIT


async def test_a_commit_holds_the_declared_files_alone(project: Project) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n", "other.txt": "o\n", "lib/b.txt": None})
    assert snapshot.undeclared(["a.txt"]) == ("lib/b.txt", "other.txt")
    commit = await repository.commit_task(WORK, TASK, snapshot, ["a.txt", "none.txt"], "do")
    assert project.changed(commit) == ["a.txt"]
    assert project.show("lib/b.txt") == "b"


async def test_modes_links_bytes_and_deletions_arrive_as_they_are(project: Project) -> None:
    repository = await Repository.open(project.path)
    worktree = await repository.worktree(WORK, TASK)
    (worktree.path / "link").symlink_to("../elsewhere/ü")
    (worktree.path / "run.sh").chmod(0o644)
    (worktree.path / "a.txt").chmod(0o755)
    content = bytes(range(256)) + b"\r\n\r\n"
    project.write({"data.bin": content, "lib/b.txt": None, "empty": ""}, at=worktree.path)
    declared = ["link", "run.sh", "a.txt", "data.bin", "lib/b.txt", "empty"]
    snapshot = await worktree.snapshot(1)
    commit = await repository.commit_task(WORK, TASK, snapshot, declared, "do")
    listed = project.git("ls-tree", "-r", commit).splitlines()
    assert [(line.split(" ")[0], line.split("\t")[1]) for line in listed] == [
        ("100755", "a.txt"),
        ("100644", "data.bin"),
        ("100644", "empty"),
        ("120000", "link"),
        ("100644", "run.sh"),
    ]
    assert (project.path / "data.bin").read_bytes() == content
    assert (project.path / "link").readlink().as_posix() == "../elsewhere/ü"
    assert not (project.path / "lib").exists()
    assert project.status() == ""


@pytest.mark.parametrize(
    "name",
    [
        "with space.txt",
        "ünïcode/日本.txt",
        "quo\"te's.txt",
        "-dash",
        "--all",
        "a b/-c/[d].txt",
        ":(x)y",
    ],
)
async def test_a_file_of_any_sensible_name_is_committed(project: Project, name: str) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({name: "x\n"})
    assert [it.path for it in snapshot.changes] == [name]
    commit = await repository.commit_task(WORK, TASK, snapshot, [name], f"add {name}")
    assert project.changed(commit) == [name]
    assert (project.path / name).read_text() == "x\n"
    assert project.status() == ""


@pytest.mark.parametrize("name", ["a\nb", "../a.txt", "/etc/passwd", "lib/", "*.txt", "", "a\\b"])
async def test_a_name_that_means_no_one_file_of_the_project_is_refused(
    project: Project, name: str
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "new\n", "a\nb": "x\n"})
    with pytest.raises(CommitRefusedError) as refused:
        await repository.commit_task(WORK, TASK, snapshot, ["a.txt", name], "do")
    assert refused.value.files == (name,)
    assert project.log() == ["first"]


async def test_a_task_that_changed_none_of_its_files_is_refused(project: Project) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"other.txt": "o\n"})
    with pytest.raises(NoChangeError, match=r"a\.txt: WORK-01/TASK-01 did not change this"):
        await repository.commit_task(WORK, TASK, snapshot, ["a.txt"], "do")
    with pytest.raises(NoChangeError, match="no file declared"):
        await repository.commit_task(WORK, TASK, snapshot, [], "do")


async def test_a_file_that_the_branch_has_changed_meanwhile_is_a_conflict(
    project: Project,
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"a.txt": "the task's\n", "lib/b.txt": "new\n"})
    theirs = {"a.txt": "theirs\n", "run.sh": "theirs\n"}
    project.write(theirs)
    tip = project.commit("theirs")
    with pytest.raises(BranchConflictError, match=r"a\.txt: changed on the branch") as refused:
        await repository.commit_task(WORK, TASK, snapshot, ["a.txt", "lib/b.txt"], "do")
    assert refused.value.files == ("a.txt",)
    assert await repository.tip() == tip
    assert project.status() == ""


async def test_a_declared_file_that_only_the_branch_changed_is_left_as_it_is(
    project: Project,
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({"lib/b.txt": "new\n"})
    project.write({"a.txt": "theirs\n"})
    project.commit("theirs")
    commit = await repository.commit_task(WORK, TASK, snapshot, ["a.txt", "lib/b.txt"], "do")
    assert project.changed(commit) == ["lib/b.txt"]
    assert project.show("a.txt") == "theirs"


async def test_the_same_change_made_on_the_branch_is_no_conflict(project: Project) -> None:
    repository = await Repository.open(project.path)
    files = {"a.txt": "same\n", "lib/b.txt": "new\n"}
    snapshot = await project.build(files)
    project.write({"a.txt": "same\n"})
    project.commit("theirs")
    commit = await repository.commit_task(WORK, TASK, snapshot, list(files), "do")
    assert project.changed(commit) == ["lib/b.txt"]
    project.git("revert", "--no-edit", commit)
    again = await project.build(files, task="TASK-02")
    project.git("revert", "--no-edit", "HEAD")
    with pytest.raises(NoChangeError, match="the branch has this so already"):
        await repository.commit_task(WORK, "TASK-02", again, list(files), "do")


@pytest.mark.parametrize(
    ("theirs", "ours"), [("new", "new/file.txt"), ("new/file.txt", "new")], ids=["file", "folder"]
)
async def test_a_file_in_the_place_of_a_folder_on_the_branch_is_a_conflict(
    project: Project, theirs: str, ours: str
) -> None:
    repository = await Repository.open(project.path)
    snapshot = await project.build({ours: "ours\n"})
    project.write({theirs: "theirs\n"})
    tip = project.commit("theirs")
    with pytest.raises(BranchConflictError) as refused:
        await repository.commit_task(WORK, TASK, snapshot, [ours], "do")
    assert refused.value.files == (theirs,)
    assert await repository.tip() == tip


async def test_a_repository_inside_the_task_is_not_committed_as_a_file(project: Project) -> None:
    repository = await Repository.open(project.path)
    worktree = await repository.worktree(WORK, TASK)
    inner = Project(worktree.path / "inner")
    snapshot = await worktree.snapshot(1)
    assert [it.path for it in snapshot.changes] == ["inner"]
    with pytest.raises(CommitRefusedError, match="a repository of its own"):
        await repository.commit_task(WORK, TASK, snapshot, ["inner"], "do")
    assert inner.status() == ""
