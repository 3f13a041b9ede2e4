"""Sessions with stand-ins for the programs: they print what those document, or something broken."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from stand_ins import CLAUDE, COMPACTED, LOST, Play, claude, claude_failed, lines, session_of

from batonbus.rules.command_lines import CommandLineError
from batonbus.run.program import CommandFailedError, ProgramError
from batonbus.run.session import find_command_line
from batonbus_schemas import ContextUsage

pytestmark = pytest.mark.anyio


def measured(percent: float) -> ContextUsage:
    return ContextUsage(source="measured", percent=percent)


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The events of the log, with their fields."""
    return [it.msg for it in caplog.records if isinstance(it.msg, dict)]


async def test_the_first_call_is_fresh_and_later_ones_go_on_with_it(play: Play) -> None:
    program = play("claude", claude("One."), claude("Two.", session="s-2", tokens=90_000))
    session = session_of("claude --model opus")
    first, second = await session.run("do one"), await session.run("do two")
    assert (first.text, first.usage) == ("One.", measured(25.0))
    assert (second.text, second.usage, session.usage) == ("Two.", measured(45.0), measured(45.0))
    assert program.words(1) == [*CLAUDE, "--model", "opus"]
    assert program.words(2) == [*CLAUDE, "--resume", "s-1", "--model", "opus"]
    assert (program.asked(1), program.asked(2)) == ("do one", "do two")
    # A turn may give the session a new id: the last one counts.
    assert session.id == "s-2"


async def test_a_session_that_is_not_known_any_more_is_replaced_in_the_same_call(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    for lost in (claude_failed(LOST), ("", 1, LOST)):
        program = play("claude", claude("One."), lost, claude("Two.", session="s-2"))
        (program.folder / "count").unlink(missing_ok=True)
        session = session_of("claude")
        await session.run("do one")
        caplog.clear()
        assert (await session.run("do two")).text == "Two."
        assert [it["event"] for it in logged(caplog)] == ["session.lost"]
        assert (program.words(3), program.asked(3)) == (CLAUDE, "do two")
        assert session.id == "s-2"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (claude_failed("Prompt is too long"), "Prompt is too long"),
        (claude_failed("rate limited")[0], "ended with exit code 0: rate limited"),
        (("", 7, "no login\n"), "claude ended with exit code 7: no login"),
        (("Please log in.\n", 7, ""), "claude ended with exit code 7: Please log in."),
        (claude("Two.")[:-20], "claude ended with exit code 0 and gave no answer"),
        ("", "claude ended with exit code 0 and gave no answer"),
    ],
)
async def test_after_an_error_the_next_call_begins_fresh(
    play: Play, answer: Any, said: str
) -> None:
    program = play("claude", claude("One."), answer, claude("Two.", session="s-2"))
    session = session_of("claude")
    await session.run("do one")
    with pytest.raises(CommandFailedError, match=said):
        await session.run("do two")
    assert (session.id, session.usage) == (None, ContextUsage())
    assert (await session.run("do two again")).text == "Two."
    assert program.words(3) == CLAUDE


async def test_a_lost_session_is_no_excuse_for_a_fresh_one(play: Play) -> None:
    program = play("claude", ("", 1, LOST))
    with pytest.raises(CommandFailedError, match="No conversation found"):
        await session_of("claude").run("do one")
    assert program.calls == 1


async def test_a_call_that_is_cancelled_or_takes_too_long_ends_its_session(
    play: Play, tmp_path: Path
) -> None:
    play("claude", claude("One."))
    session = session_of("claude", time_limit=0.3)
    await session.run("do one")
    (tmp_path / "claude").write_text("#!/bin/sh\nexec sleep 60\n")
    assert session.id == "s-1"
    with pytest.raises(ProgramError, match="did not end within"):
        await session.run("do two")
    assert session.id is None
    session.id = "s-1"
    with anyio.move_on_after(0.1) as scope:
        await session.run("do three")
    assert scope.cancelled_caught
    assert session.id is None


async def test_the_smallest_window_that_was_ever_said_counts(play: Play) -> None:
    sizes = (372_000, 150_000, 372_000)
    play("claude", *(claude("x", tokens=75_000, window=it) for it in sizes))
    session = session_of("claude")
    percents = [(await session.run("x")).usage.percent for _ in sizes]
    assert percents == [20.2, 50.0, 50.0]


async def test_an_unknown_window_is_said_loudly_and_not_guessed(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    play("claude", claude("x").replace('"modelUsage": {"opus"', '"modelUsage": {"alias"'))
    assert (await session_of("claude").run("x")).usage == ContextUsage()
    assert [(it["event"], it["model"], it["window"]) for it in logged(caplog)] == [
        ("usage.unknown", "opus", None)
    ]


async def test_clear_begins_a_fresh_session(play: Play) -> None:
    program = play("claude", claude("One."), claude("Two."))
    session = session_of("claude")
    await session.run("do one")
    assert await session.reset("clear") == "clear"
    assert (session.id, session.usage) == (None, ContextUsage())
    await session.run("do two")
    assert (program.words(2), program.asked(2)) == (CLAUDE, "do two")


async def test_compact_is_the_programs_own_where_it_has_one(play: Play, tmp_path: Path) -> None:
    compacted = lines(COMPACTED) + claude("", session="s-2").splitlines()[-1]
    program = play("claude", claude("One.", tokens=160_000), compacted, claude("Two."))
    session = session_of("claude")
    await session.run("do one", cwd=tmp_path)
    assert await session.reset("compact") == "compact"
    assert session.usage == ContextUsage(source="estimated", percent=20.0)
    assert (program.words(2), program.asked(2)) == ([*CLAUDE, "--resume", "s-1"], "/compact")
    await session.run("do two")
    assert program.words(3) == [*CLAUDE, "--resume", "s-2"]
    assert program.asked(3) == "do two"


@pytest.mark.parametrize(
    "answer",
    [claude("Not enough messages to compact."), claude_failed("overloaded"), ("", 1, LOST)],
)
async def test_a_compaction_that_failed_is_a_clear(
    play: Play, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    program = play("claude", claude("One."), answer, claude("Two."))
    session = session_of("claude")
    await session.run("do one")
    assert await session.reset("compact") == "clear"
    assert [it["event"] for it in logged(caplog)] == ["session.not_compacted"]
    assert (session.id, session.usage) == (None, ContextUsage())
    await session.run("do two")
    assert (program.words(3), program.asked(3)) == (CLAUDE, "do two")


async def test_nothing_is_asked_to_compact_where_no_session_is(play: Play) -> None:
    program = play("claude", claude("One."))
    session = session_of("claude")
    assert await session.reset("compact") == "clear"
    await session.run("do one")
    assert program.calls == 1


CODEX = lines(
    {"type": "thread.started", "thread_id": "t-1"},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}},
    {"type": "turn.completed", "usage": {"input_tokens": 900_000, "output_tokens": 1}},
)


async def test_codex_is_measured_by_its_own_record(play: Play, tmp_path: Path) -> None:
    program = play("codex", CODEX, CODEX)
    session = session_of("codex --sandbox workspace-write")
    assert (await session.run("do one")).usage == ContextUsage()
    folder = tmp_path / "home/.codex/sessions/2026/01/02"
    folder.mkdir(parents=True)
    info = {"last_token_usage": {"total_tokens": 64_600}, "model_context_window": 258_400}
    counted = {"type": "event_msg", "payload": {"type": "token_count", "info": info}}
    (folder / "rollout-2026-01-02T03-04-05-t-1.jsonl").write_text(lines(counted))
    (folder / "rollout-2026-01-02T03-04-06-t-2.jsonl").write_text("{}")
    assert (await session.run("do two")).usage == measured(25.0)
    options = ["exec", "--sandbox", "workspace-write", "--json"]
    assert program.words(1) == [*options, "-"]
    assert program.words(2) == [*options, "resume", "t-1", "-"]
    assert program.asked(2) == "do two"


async def test_codex_that_lost_its_session_begins_another(play: Play) -> None:
    lost = "Error: thread/resume: thread/resume failed: no rollout found for thread id t-1"
    failed = lines({"type": "turn.failed", "error": {"message": "disconnected"}})
    program = play("codex", CODEX, ("", 1, lost), CODEX, (failed, 1, ""))
    session = session_of("codex")
    for _ in range(2):
        assert (await session.run("x")).text == "Done."
    assert program.calls == 3
    assert await session.reset("compact") == "clear"
    with pytest.raises(CommandFailedError, match="codex ended with exit code 1: disconnected"):
        await session.run("x")


async def test_gemini_goes_on_and_has_no_usage(play: Play) -> None:
    said = json.dumps({"session_id": "g-1", "response": "Done.", "stats": {}}, indent=2)
    lost = ("", 42, 'Error resuming session: Invalid session identifier "g-1".')
    program = play("gemini", said, lost, said)
    session = session_of("gemini")
    for _ in range(2):
        answer = await session.run("x")
        assert (answer.text, answer.usage) == ("Done.", ContextUsage())
    assert program.words(2) == ["--output-format", "json", "--resume", "g-1"]
    assert program.words(3) == ["--output-format", "json"]


async def test_openclaw_is_given_an_id_and_keeps_it(play: Play) -> None:
    said = json.dumps({"payloads": [{"text": "Done."}], "meta": {}})
    program = play("openclaw", said, said, said)
    session = session_of("openclaw --local")
    for text in ("one", "two"):
        assert (await session.run(text)).text == "Done."
    await session.reset("clear")
    await session.run("three")
    ids = [program.words(call)[2] for call in (1, 2, 3)]
    assert ids[0] == ids[1] != ids[2]
    assert program.words(2) == [
        *("agent", "--session-id", ids[0], "--message", "two", "--json", "--local")
    ]
    assert program.asked(2) == ""


async def test_hermes_begins_a_session_each_time(play: Play) -> None:
    program = play("hermes", "Done.\n", "Done again.\n")
    session = session_of("hermes --yolo")
    assert (await session.run("one")).text == "Done.\n"
    assert session.id is None
    assert (await session.run("$(two)")).text == "Done again.\n"
    assert program.words(2) == ["-z", "$(two)", "--yolo"]


async def test_a_row_of_ones_own_is_a_file(play: Play, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        """
        start = ["mine"]
        resume = ["mine", "--resume", "{session}"]
        answer = { at = ["text"] }
        session = { at = ["id"] }
        tokens = { at = ["used"] }
        model = { at = ["model"] }
        windows = { small = 1000 }
        """
    )
    said = [
        json.dumps({"text": "x", "id": "m-1", "used": 300, "model": it}) for it in ("small", "?")
    ]
    program = play("mine", *said)
    session = session_of(f"{tmp_path}/mine.toml --fast")
    assert (await session.run("x")).usage == measured(30.0)
    assert (await session.run("x")).usage == ContextUsage()
    assert program.words(2) == ["--resume", "m-1", "--fast"]


async def test_a_session_sees_a_scrubbed_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hermes").write_text("#!/bin/sh\nenv; pwd\n")
    (tmp_path / "hermes").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CANARY", "hidden")
    monkeypatch.setenv("OPENED", "shown")
    session = session_of("hermes", variables=["OPENED"])
    said = (await session.run("x", cwd=tmp_path, extra={"MINE": "1"})).text.splitlines()
    assert {"OPENED=shown", "MINE=1", str(tmp_path)} <= set(said)
    assert "CANARY=hidden" not in said


async def test_a_session_may_print_more_than_a_command(tmp_path: Path, play: Play) -> None:
    noise = lines({"type": "user", "message": "x" * 1_500_000})
    play("claude", noise + claude("Done."))
    assert (await session_of("claude").run("x")).text == "Done."


async def test_calls_wait_for_each_other(play: Play) -> None:
    program = play("claude", claude("One."), claude("Two."))
    session = session_of("claude")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run, "x")
        tasks.start_soon(session.run, "x")
    assert program.words(2) == [*CLAUDE, "--resume", "s-1"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "'' is no known program: use claude, codex, gemini, hermes, openclaw, or"),
        ("/bin/claude", "'/bin/claude' is no known program"),
        ("claude 'it", "No closing quotation"),
        ("nowhere.toml", "nowhere.toml cannot be read: No such file"),
    ],
)
def test_what_names_no_program_is_refused(spec: str, said: str) -> None:
    with pytest.raises(CommandLineError, match=said):
        find_command_line(spec)


def test_a_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("start = 3")
    with pytest.raises(CommandLineError, match=r"a\.toml: \$\.start"):
        find_command_line(str(tmp_path / "a.toml"))
    (tmp_path / "a.toml").write_bytes(b"\xff")
    with pytest.raises(CommandLineError, match=r"a\.toml is no text in UTF-8"):
        find_command_line(str(tmp_path / "a.toml"))
