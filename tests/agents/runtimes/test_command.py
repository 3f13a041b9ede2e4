"""Commands are real programs, small ones in Bash."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from batonbus import CommandLine, ProgramError
from batonbus.rules.command_lines import Place
from batonbus_agents.runtimes import (
    Assignment,
    CommandRuntime,
    RuntimeAnswerError,
    SessionRuntime,
)

pytestmark = pytest.mark.anyio

Program = Callable[[str], tuple[str, ...]]

GOOD = "<task-result status='PASS'><summary>ok</summary></task-result>"
ONCE = """\
echo run >> runs
cat > "asked.$(wc -l < runs)"
"""


async def test_it_gets_the_text_in_its_folder_and_knows_what_it_is_for(
    assignment: Assignment, program: Program
) -> None:
    command = program(
        "cat > text; pwd > folder; env | grep ^BATONBUS_ | sort > env\n" + f'echo "{GOOD}"'
    )
    assignment = replace(assignment, extra={"BATONBUS_HANDOFF": "an-id"})

    result = await CommandRuntime(command)(assignment)

    assert (result.status, result.task, result.agent) == ("PASS", "TASK-02", "builder")
    assert (assignment.cwd / "text").read_text() == "Do it."
    assert (assignment.cwd / "folder").read_text().strip() == str(assignment.cwd)
    assert (assignment.cwd / "env").read_text().splitlines() == [
        "BATONBUS_ATTEMPT=1",
        "BATONBUS_HANDOFF=an-id",
        "BATONBUS_ROLE=builder",
        "BATONBUS_TASK=TASK-02",
        "BATONBUS_WORK=WORK-07",
    ]


async def test_it_sees_only_the_variables_that_are_named(
    assignment: Assignment, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_ONE", "one")
    monkeypatch.setenv("CANARY_TWO", "two")
    command = program(f'env > env; echo "{GOOD}"')

    await CommandRuntime(command, variables=("CANARY_TWO",))(assignment)

    env = (assignment.cwd / "env").read_text()
    assert "CANARY_ONE" not in env
    assert "CANARY_TWO=two" in env


async def test_an_unreadable_answer_is_asked_for_once_more(
    assignment: Assignment, program: Program
) -> None:
    command = program(f'{ONCE}[ -e asked.2 ] && echo "{GOOD}" || echo "All done."')

    result = await CommandRuntime(command)(assignment)

    assert result.status == "PASS"
    assert (assignment.cwd / "asked.1").read_text() == "Do it."
    assert "Your last answer was:\n\nAll done." in (assignment.cwd / "asked.2").read_text()


async def test_after_two_unreadable_answers_it_stops_and_names_the_agent(
    assignment: Assignment, program: Program
) -> None:
    runtime = CommandRuntime(program(f"{ONCE}echo not json"))

    with pytest.raises(RuntimeAnswerError, match="builder gave no usable answer: no-result") as it:
        await runtime(assignment)

    assert it.value.agent == "builder"
    assert (assignment.cwd / "runs").read_text() == "run\nrun\n"


async def test_a_stump_is_no_pass_and_the_next_request_asks_for_less(
    assignment: Assignment, program: Program
) -> None:
    command = program(f"{ONCE}printf \"<task-result status='PASS'><summary>Wrote the par\"")

    with pytest.raises(RuntimeAnswerError, match="truncated"):
        await CommandRuntime(command)(assignment)

    assert "It was truncated at" in (assignment.cwd / "asked.2").read_text()


async def test_a_program_that_fails_is_not_asked_again(
    assignment: Assignment, program: Program
) -> None:
    command = program(f'{ONCE}echo "{GOOD}"; printf "trace\\nquota exceeded\\n" >&2; exit 3')

    with pytest.raises(RuntimeAnswerError) as it:
        await CommandRuntime(command)(assignment)

    assert str(it.value) == (
        "builder gave no usable answer: bash ended with exit code 3; quota exceeded"
    )
    assert (assignment.cwd / "runs").read_text() == "run\n"


@pytest.mark.parametrize("said", ['echo "bad key $CANARY" >&2; exit 1', 'echo "key $CANARY"'])
async def test_an_error_holds_no_secret_of_the_program(
    assignment: Assignment, program: Program, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("CANARY", "c4n4ry-v4lue")

    with pytest.raises(RuntimeAnswerError) as it:
        await CommandRuntime(program(said), variables=("CANARY",))(assignment)

    assert "c4n4ry" not in f"{it.value} {it.value.reasons}"
    assert "key $CANARY" in str(it.value)


async def test_a_program_that_takes_too_long_is_ended_with_its_children(
    assignment: Assignment, program: Program
) -> None:
    command = program("sleep 60 & echo $! > child; wait")

    with pytest.raises(ProgramError, match=r"did not end within 0\.3 s"):
        await CommandRuntime(command, time_limit=0.3)(assignment)

    child = int((assignment.cwd / "child").read_text())
    assert not is_running(child)


async def test_a_session_is_asked_once_more_in_itself_and_the_next_assignment_in_another(
    assignment: Assignment, program: Program
) -> None:
    for name, answer in (("good", GOOD), ("bad", "All done.")):
        said = json.dumps({"session_id": "s-1", "result": answer})
        (assignment.cwd / name).write_text(said)
    command = program(
        f'{ONCE}echo "$@" > "args.$(wc -l < runs)"; [ -e asked.2 ] && cat good || cat bad'
    )
    row = CommandLine(
        start=command,
        resume=(*command, "{session}"),
        answer=Place(at=("result",)),
        session=Place(at=("session_id",)),
    )
    runtime = SessionRuntime(row)

    for _ in range(2):
        result = await runtime(assignment)
        assert (result.status, result.task, result.agent) == ("PASS", "TASK-02", "builder")

    args = [(assignment.cwd / f"args.{it}").read_text().strip() for it in (1, 2, 3)]
    assert args == ["", "s-1", ""]
    assert "Your last answer could not be read" in (assignment.cwd / "asked.2").read_text()
    assert (assignment.cwd / "asked.3").read_text() == "Do it."


async def test_an_error_of_a_session_is_no_answer_and_holds_no_secret(
    assignment: Assignment, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "c4n4ry-v4lue")
    row = CommandLine(start=program('echo "bad key $CANARY" >&2; exit 3'))

    with pytest.raises(RuntimeAnswerError) as it:
        await SessionRuntime(row, variables=("CANARY",))(assignment)

    assert str(it.value) == (
        "builder gave no usable answer: bash ended with exit code 3: bad key $CANARY"
    )


async def test_a_program_that_is_not_there_cannot_be_started(assignment: Assignment) -> None:
    with pytest.raises(ProgramError, match="no-such-program cannot be started"):
        await CommandRuntime(("no-such-program",))(assignment)


def is_running(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
