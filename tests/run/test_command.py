"""Any program as an agent, and what becomes of its processes."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from batonbus.rules.budget import REFERENCES
from batonbus.run.command import CommandFailedError, command_agent, read_output
from batonbus.run.program import OUTPUT_LIMIT, ProgramError, run_program
from batonbus_schemas import Dispatch, Receipt, TaskResult, decode, encode

pytestmark = pytest.mark.anyio


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


async def run(script: str, *, text: str = "", time_limit: float = 10.0, **options: Any) -> Any:
    """A shell script, with a limit around its limit."""
    with anyio.fail_after(15):
        return await run_program(shell(script), text=text, time_limit=time_limit, **options)


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr("batonbus.run.program.KILL_GRACE", 0.3)
    return 0.3


async def until(fact: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not fact():  # noqa: ASYNC110 - only the system knows
            await anyio.sleep(0.01)


async def until_gone(pid: int) -> None:
    await until(lambda: is_gone(pid))


def is_gone(pid: int) -> bool:
    """A dead child of somebody who does not look after it stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def is_written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


async def test_a_command_gets_the_assignment_and_its_output_is_the_result(open_bus: Any) -> None:
    script = 'echo "$BATONBUS_WORK $BATONBUS_TASK $BATONBUS_ATTEMPT"; grep -c "count the lines"'
    async with open_bus(command_agent("counter", shell(script))) as bus:
        sent = await bus.send("counter", "count the lines", work="w", task="TASK-07")
        result = await sent.result()
    assert result.status == "PASS"
    assert result.context_handoff is not None
    assert result.context_handoff.what == "w TASK-07 1\n1"


async def test_a_command_finds_the_contents_of_its_ref_cache_at_the_paths_that_it_is_told(
    open_bus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    guide = "# The guide\n" + "x" * 2_000
    body = Dispatch(brief="Read.", ref_cache={"guide": guide, "../up": "short"})
    script = "grep '^- .*: /' | sed 's/^.*: //' | while read -r path; do cat \"$path\"; echo; done"
    async with open_bus(command_agent("reader", shell(script))) as bus:
        read = [(await (await bus.send("reader", body)).result()).summary for _ in range(2)]
        xml = command_agent("xml-reader", shell("grep -c xxxx"), text_form="xml")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.run, xml)
            assert (await (await bus.send("xml-reader", body)).result()).summary == "1"
            tasks.cancel_scope.cancel()
        await wait_empty(tmp_path / REFERENCES)
    assert (tmp_path / ".batonbus/.gitignore").read_text() == "*\n"
    assert read == [f"{guide}\nshort"] * 2


async def test_what_lies_beside_a_handoff_stays_while_its_program_may_read_it(
    open_bus: Any, bounce: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last attempt, or a cancellation, nobody does."""
    monkeypatch.chdir(tmp_path)
    body = Dispatch(brief="Read.", ref_cache={"guide": "short"})
    script = "ls .batonbus/references/*/guide-*.md >> seen; exit 3"
    async with open_bus(command_agent("broken", shell(script))) as bus:
        await bounce(await bus.send("broken", body))
        await wait_empty(tmp_path / REFERENCES)
    first, *others = (tmp_path / "seen").read_text().splitlines()
    assert others == [first, first]
    script = "echo >> started; sleep 60"
    async with open_bus(command_agent("slow", shell(script))) as bus:
        sent = await bus.send("slow", body)
        while not is_written(tmp_path / "started"):  # noqa: ASYNC110 - a program's file
            await anyio.sleep(0.01)
        assert is_anything_in(tmp_path / REFERENCES)
        await sent.cancel("not wanted")
        await wait_empty(tmp_path / REFERENCES)


def is_anything_in(folder: Path) -> bool:
    return any(folder.iterdir())


async def wait_empty(folder: Path) -> None:
    while is_anything_in(folder):  # noqa: ASYNC110 - an agent tells nobody of its folders
        await anyio.sleep(0.01)


async def test_a_command_may_print_a_result_of_its_own(open_bus: Any) -> None:
    failed = TaskResult.failed(what="two tests fail", caution="flaky")
    script = f"cat <<'END'\n{encode(failed).decode()}\nEND"
    async with open_bus(command_agent("tester", shell(script))) as bus:
        assert await (await bus.send("tester", "x")).result() == failed


async def test_an_exit_code_is_a_failed_attempt_with_the_end_of_stderr(
    open_bus: Any, bounce: Any, read_events: Any
) -> None:
    script = "echo only-words; seq 1 500 >&2; echo 'no such model' >&2; exit 3"
    async with open_bus(command_agent("broken", shell(script))) as bus:
        sent = await bus.send("broken", "x")
        assert (await bounce(sent)).receipt.state == "dead"
        events = await read_events(bus, sent.handoff_id)
    reasons = [decode(it.payload, Receipt).reason for it in events if it.event.kind == "failed"]
    assert len(reasons) == 3
    assert reasons[0].startswith("CommandFailedError: sh ended with exit code 3: ")
    assert reasons[0].endswith("500\nno such model")
    assert len(reasons[0]) < 600


async def test_a_cancelled_handoff_ends_the_commands_whole_group(
    open_bus: Any, bounce: Any, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! $$ > {pids}; wait"
    async with open_bus(command_agent("sleeper", shell(script))) as bus:
        sent = await bus.send("sleeper", "x")
        await until(lambda: is_written(pids))
        child, parent = map(int, pids.read_text().split())
        await sent.cancel("enough")
        await until_gone(child)
        await until_gone(parent)
        assert (await bounce(sent)).receipt.state == "cancelled"


async def test_nothing_of_the_group_is_left_when_the_program_has_ended(short_grace: float) -> None:
    """It does not wait long either for what it left behind, though that holds its outputs open."""
    began = time.monotonic()
    ended = await run("sleep 1000 & echo $!; echo done")
    assert time.monotonic() - began < 5
    pid, said = ended.stdout.split()
    assert (ended.code, said) == (0, "done")
    await until_gone(int(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="setsid is a program of Linux")
async def test_what_has_left_the_group_is_not_waited_for(short_grace: float) -> None:
    began = time.monotonic()
    ended = await run("setsid sleep 15 & echo $!; echo done")
    assert short_grace <= time.monotonic() - began < 5
    assert ended.stdout.endswith("done\n")
    # It also survives its parent's time limit, which ends on time all the same.
    began = time.monotonic()
    with pytest.raises(ProgramError, match=r"did not end within 0\.2 s"):
        await run("setsid sleep 15 & sleep 1000", time_limit=0.2)
    assert time.monotonic() - began < 5


async def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(ProgramError, match=r"sh did not end within 0.5 s: allow it more"):
        await run(f"sleep 1000 & echo $! $$ > {pids}; wait", time_limit=0.5)
    for pid in pids.read_text().split():
        await until_gone(int(pid))


async def test_what_a_program_left_behind_may_write_to_its_end() -> None:
    ended = await run("(sleep 0.2; echo late) & echo early")
    assert ended.stdout == "early\nlate\n"


async def test_a_program_that_will_not_end_is_killed(short_grace: float) -> None:
    with pytest.raises(ProgramError, match="did not end"):
        await run("trap '' TERM; while :; do sleep 0.1; done", time_limit=0.3)


async def test_a_program_may_tidy_up_when_it_is_told_to_end(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="did not end"):
        await run(
            f"trap 'echo tidied > {tmp_path}/said; exit' TERM; while :; do sleep 0.05; done",
            time_limit=0.3,
        )
    assert (tmp_path / "said").read_text() == "tidied\n"


async def test_a_program_that_prints_too_much_is_stopped() -> None:
    for where in ("", ">&2"):
        with pytest.raises(ProgramError, match=r"printed more than 1,000,000 bytes: write files"):
            await run(f"yes {where}")
    ended = await run(f"head -c {OUTPUT_LIMIT} /dev/zero | tr '\\0' x")
    assert len(ended.stdout) == OUTPUT_LIMIT


async def test_both_outputs_are_read_at_once() -> None:
    ended = await run("for i in $(seq 1 2000); do echo out$i; echo err$i >&2; done", text="y" * 200)
    assert ended.stdout.splitlines()[-1] == "out2000"
    assert ended.stderr.splitlines()[-1] == "err2000"


async def test_a_program_need_not_read_what_it_is_given() -> None:
    assert (await run("echo done", text="x" * 5_000_000)).stdout == "done\n"
    assert (await run("exec <&-; echo done", text="x" * 5_000_000)).stdout == "done\n"
    assert (await run("wc -c", text="x" * 5_000_000)).stdout.strip() == "5000000"


async def test_bytes_that_are_no_text_are_read_as_well() -> None:
    ended = await run(r"printf 'a\377\376\000b'; printf '\351' >&2")
    assert ended.stdout == "a��\x00b"
    assert ended.stderr == "�"
    assert encode(read_output(ended.stdout, "sh"))


async def test_a_program_sees_a_scrubbed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "secret-1")
    monkeypatch.setenv("OPENED_TOKEN", "secret-2")
    ended = await run("env", variables=["OPENED_TOKEN", "NOT_SET"], extra={"MINE": "1"})
    seen = dict(line.split("=", 1) for line in ended.stdout.splitlines() if "=" in line)
    assert "CANARY_TOKEN" not in seen
    assert "secret-1" not in ended.stdout
    assert (seen["OPENED_TOKEN"], seen["MINE"]) == ("secret-2", "1")
    assert seen["PATH"] == os.environ["PATH"]
    assert "NOT_SET" not in seen


async def test_a_program_that_cannot_be_started_is_said_so(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for command, said in (("no-such-program", "No such file"), (str(plain), "Permission denied")):
        with pytest.raises(ProgramError, match=f"{command} cannot be started: {said}"):
            await run_program([command], time_limit=5)


async def test_a_signal_that_ends_a_program_is_its_exit_code() -> None:
    assert (await run("kill -KILL $$")).code == -9


async def test_no_file_stays_open_behind_a_program() -> None:
    await run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await run("cat", text="x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_output_that_is_no_result_is_the_text_of_one() -> None:
    for text in ("fine", "{not json", '{"a": 1}', "[1]", '{"tests": {"status": 3}}', "a < b"):
        result = read_output(f"\n{text}\n\n", "tool")
        assert result == TaskResult.passed(what=text)


def test_a_result_as_json_or_xml_is_read_as_such() -> None:
    failed = TaskResult.failed(what="no", why="because")
    assert read_output(encode(failed).decode(), "tool") == failed
    plain = json.dumps({"status": "FAIL", "summary": "no"})
    assert read_output(plain, "tool") == TaskResult(status="FAIL", summary="no")
    xml = '<task-result status="FAIL"><summary>no</summary></task-result>'
    assert read_output(f"Here it is:\n```xml\n{xml}\n```", "tool").status == "FAIL"


@pytest.mark.parametrize(
    "text",
    [
        '{"status": "FAIL", "sumary": "a typing error"}',
        '{"kind": "task-result", "status": "fail"}',
        '<task-result status="FAIL"><summary>cut off',
        "<task-result><summary>no status</summary></task-result>",
        "",
        " \n",
    ],
)
def test_a_result_that_cannot_be_read_never_passes(text: str) -> None:
    with pytest.raises(CommandFailedError, match=r"^tool "):
        read_output(text, "tool")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of the death")
async def test_a_program_ends_with_us_when_we_are_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = f"echo $$ > {pid_file}.new && mv {pid_file}.new {pid_file} && exec sleep 60"
    code = (
        "import anyio; from functools import partial; from batonbus import run_program;"
        f"anyio.run(partial(run_program, ['sh', '-c', {program!r}], time_limit=60))"
    )
    parent = await anyio.open_process([sys.executable, "-c", code])
    await until(lambda: is_written(pid_file))
    parent.kill()
    await parent.aclose()
    await until_gone(int(pid_file.read_text()))
