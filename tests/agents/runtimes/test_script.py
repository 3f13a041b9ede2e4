"""Scripts are played on real folders, with real git."""

import subprocess
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from batonbus_agents.runtimes import Assignment, ScriptError, read_script
from batonbus_schemas import FileChange

pytestmark = pytest.mark.anyio

NEW = """\
diff --git a/a.txt b/a.txt
new file mode 100644
--- /dev/null
+++ b/a.txt
@@ -0,0 +1,2 @@
+one
+two
"""
MENDED = """\
diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,2 +1,2 @@
 one
-two
+TWO
"""


def write(folder: Path, *steps: str) -> Path:
    path = folder / "script.toml"
    path.write_text(
        "\n".join(f'[[step]]\nrole = "builder"\ntask = "TASK-02"\n{it}' for it in steps)
    )
    return path


def step(attempt: int, patch: str = "", *more: str) -> str:
    return "\n".join(
        [f'attempt = {attempt}\nwhat = "Attempt {attempt}."', f"patch = '''\n{patch}'''", *more]
    )


@pytest.fixture
def work(assignment: Assignment, tmp_path: Path) -> Assignment:
    """The assignment in an empty repository."""
    folder = tmp_path / "tree"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return replace(assignment, cwd=folder)


async def test_a_step_patches_runs_and_answers(work: Assignment, tmp_path: Path) -> None:
    script = write(
        tmp_path,
        step(1, NEW, 'commands = ["cp a.txt b.txt"]', 'status = "FAIL"', 'why = "So."')
        + '\ncaution = "Mind."\nincomplete = "Half."\nsummary = "In short."',
    )

    result = await read_script(script)(work)

    assert (work.cwd / "b.txt").read_text() == "one\ntwo\n"
    assert (result.status, result.summary) == ("FAIL", "In short.")
    assert (result.work, result.task, result.agent) == ("WORK-07", "TASK-02", "builder")
    assert result.files_changed == (FileChange(action="created", path="a.txt"),)
    handoff = result.context_handoff
    assert handoff is not None
    assert (handoff.what, handoff.why) == ("Attempt 1.", "So.")
    assert (handoff.caution, handoff.incomplete) == ("Mind.", "Half.")


async def test_a_patch_may_stand_in_a_file_beside_the_script(
    work: Assignment, tmp_path: Path
) -> None:
    (tmp_path / "new.patch").write_text(NEW)
    script = write(tmp_path, 'what = "Done."\npatch = "new.patch"')

    await read_script(script)(work)

    assert (work.cwd / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("before", [[], [1], [1, 1], [1, 2], [2], [2, 2]])
async def test_the_second_attempt_ends_the_same_from_wherever_the_tree_is(
    work: Assignment, tmp_path: Path, before: list[int]
) -> None:
    runtime = read_script(write(tmp_path, step(2, MENDED), step(1, NEW)))
    for attempt in before:
        await runtime(replace(work, attempt=attempt))

    result = await runtime(replace(work, attempt=2))

    assert (work.cwd / "a.txt").read_text() == "one\nTWO\n"
    assert result.summary == "Attempt 2."
    assert result.files_changed == (FileChange(action="created", path="a.txt"),)


async def test_a_folder_inside_of_a_repository_is_patched_too(
    work: Assignment, tmp_path: Path
) -> None:
    drafts = work.cwd / "drafts" / "WORK-07"
    drafts.mkdir(parents=True)
    await read_script(write(tmp_path, step(1, NEW)))(replace(work, cwd=drafts))
    assert (drafts / "a.txt").read_text() == "one\ntwo\n"
    assert not (work.cwd / "a.txt").exists()


async def test_an_attempt_that_was_not_recorded_is_the_last_one_before(
    work: Assignment, tmp_path: Path
) -> None:
    runtime = read_script(write(tmp_path, step(1, NEW), step(2, MENDED), step(5)))

    assert (await runtime(replace(work, attempt=3))).summary == "Attempt 2."


@pytest.mark.parametrize(
    "other", [{"role": "verifier"}, {"task": "TASK-03"}, {"task": ""}, {"attempt": 1}]
)
async def test_a_step_that_is_not_there_is_an_error_that_says_what_there_is(
    work: Assignment, tmp_path: Path, other: dict[str, object]
) -> None:
    runtime = read_script(write(tmp_path, step(2)))

    with pytest.raises(ScriptError, match=r"script.toml has no step for .*builder TASK-02 #2"):
        await runtime(replace(work, **other))


async def test_a_step_for_a_whole_work_names_no_task(work: Assignment, tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text('[[step]]\nrole = "planner"\nwhat = "Planned."')
    assignment = replace(work, role="planner", task="")

    result = await read_script(tmp_path / "script.toml")(assignment)

    assert (result.summary, result.task) == ("Planned.", None)


async def test_a_patch_that_does_not_fit_changes_nothing_and_is_an_error(
    work: Assignment, tmp_path: Path
) -> None:
    (work.cwd / "a.txt").write_text("another thing\n")

    with pytest.raises(ScriptError, match=r"does not fit the files in .*a\.txt"):
        await read_script(write(tmp_path, step(1, MENDED)))(work)

    assert (work.cwd / "a.txt").read_text() == "another thing\n"


async def test_a_command_that_fails_is_an_error_with_what_it_said(
    work: Assignment, tmp_path: Path
) -> None:
    script = write(tmp_path, step(1, "", 'commands = ["ls nowhere", "touch later"]'))

    with pytest.raises(ScriptError, match=r"ls nowhere ended with exit code .*nowhere"):
        await read_script(script)(work)

    assert not (work.cwd / "later").exists()


async def test_the_patch_is_in_while_the_delay_lasts(work: Assignment, tmp_path: Path) -> None:
    runtime = read_script(write(tmp_path, step(1, NEW, "delay = 60")))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime, work)
            while not (work.cwd / "a.txt").exists():
                await checkpoint()
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[step]", "line 1"),
        ("", "missing required field `step`"),
        ('[[step]]\nrole = "builder"', "missing required field `what`"),
        ('[[step]]\nrole = "builder"\nwhat = " "', "what"),
        ('[[step]]\nrole = "builder"\nwhat = "a"\nattempt = 0', "attempt"),
        ('[[step]]\nrole = "builder"\nwhat = "a"\nstatus = "DONE"', "DONE"),
        ('[[step]]\nrole = "builder"\nwhat = "a"\nwait = 1', "unknown field `wait`"),
        ('[[step]]\nrole = "builder"\nwhat = "a"\npatch = "no.patch"', "no.patch"),
        ('[[step]]\nrole = "builder"\nwhat = "a"\npatch = "a\\nb"', "git diff"),
        ('[[step]]\nrole = "a"\nwhat = "a"\n' * 2, "more than one step for a #1"),
    ],
)
def test_a_script_that_cannot_be_read_says_why(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "script.toml").write_text(text)

    with pytest.raises(ScriptError) as it:
        read_script(tmp_path / "script.toml")

    assert problem in str(it.value)
    assert "script.toml" in str(it.value)
