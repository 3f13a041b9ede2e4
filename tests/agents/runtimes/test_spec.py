import sys
from pathlib import Path

import pytest

from batonbus_agents.runtimes import (
    Assignment,
    CommandRuntime,
    RuntimeSpecError,
    ScriptError,
    ScriptRuntime,
    SessionRuntime,
    parse_runtime,
)

MODULE = """\
from batonbus_schemas import TaskResult

async def think(assignment):
    return TaskResult.passed(f"{assignment.role} thought.")

class Thinker:
    async def __call__(self, assignment):
        return await think(assignment)

thinker = Thinker()

def plain(assignment):
    return None
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_thinking.py").write_text(MODULE)
    (tmp_path / "broken_thinking.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "some_thinking"


def test_a_command_line_is_split_as_a_shell_would() -> None:
    runtime = parse_runtime("command:claude -p 'be brief'", time_limit=60, variables=["KEY"])

    assert runtime == CommandRuntime(("claude", "-p", "be brief"), 60, ("KEY",))


def test_an_agents_name_with_its_options_is_a_session() -> None:
    runtime = parse_runtime("claude --allowedTools 'Bash(git:*)'", time_limit=60, variables=["KEY"])

    assert isinstance(runtime, SessionRuntime)
    assert (runtime.time_limit, runtime.variables) == (60, ("KEY",))
    assert runtime.line.start[-2:] == ("--allowedTools", "Bash(git:*)")


def test_a_command_line_of_ones_own_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('start = ["mine", "--json"]\nanswer = { at = ["text"] }')

    runtime = parse_runtime(f"{tmp_path}/mine.toml --fast")

    assert isinstance(runtime, SessionRuntime)
    assert runtime.line.start == ("mine", "--json", "--fast")


def test_a_script_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[[step]]\nrole = "builder"\nwhat = "Done."')

    runtime = parse_runtime(f"script:{tmp_path / 'a.toml'}", time_limit=60)

    assert isinstance(runtime, ScriptRuntime)
    assert (runtime.name, runtime.time_limit) == ("a.toml", 60)


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"a\.toml"):
        parse_runtime(f"script:{tmp_path / 'a.toml'}")


@pytest.mark.anyio
@pytest.mark.parametrize("attribute", ["think", "thinker"])
async def test_an_async_function_is_a_runtime_as_it_is(
    module: str, attribute: str, assignment: Assignment
) -> None:
    runtime = parse_runtime(f"function:{module}:{attribute}")

    assert (await runtime(assignment)).summary == "builder thought."
    assert runtime is getattr(sys.modules[module], attribute)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("", "is no runtime: write command:"),
        ("gpt -p", "'gpt' is no known program: use claude, codex, gemini, hermes, openclaw"),
        ("claude 'it", "No closing quotation"),
        ("./nowhere.toml", "nowhere.toml cannot be read: No such file"),
        ("command:", "is no runtime"),
        ("command:  ", "is no runtime"),
        ("command:say 'it", "No closing quotation"),
        ("model:opus", "is of no known kind: write command:"),
        ("function:some_thinking", "no async function ''"),
        ("function:some_thinking:plain", "no async function 'plain'"),
        ("function:some_thinking:Thinker", "no async function 'Thinker'"),
        ("function:some_thinking:missing", "no async function 'missing'"),
        ("function:no_such_module:think", "there is no module no_such_module"),
    ],
)
def test_what_names_no_runtime_is_refused(module: str, spec: str, problem: str) -> None:
    with pytest.raises(RuntimeSpecError) as it:
        parse_runtime(spec)

    assert repr(spec) in str(it.value)
    assert problem in str(it.value)


def test_an_error_inside_of_a_module_is_its_own(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        parse_runtime("function:broken_thinking:think")
