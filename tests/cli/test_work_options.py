"""What `--runtime` takes, and refuses before anything is started."""

import sys
from pathlib import Path

import pytest
import typer

from batonbus.cli.work_options import runtime_specs


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; what is put on the path for its modules is taken off again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    return tmp_path


def test_each_role_has_its_own_runtime() -> None:
    texts = ["builder=command:claude -p", "verifier=command:codex exec -"]
    specs = {"builder": "command:claude -p", "verifier": "command:codex exec -"}
    assert runtime_specs(texts) == specs
    assert runtime_specs(None) == {}


def test_a_functions_module_may_lie_in_the_current_folder(here: Path) -> None:
    (here / "thinking_here.py").write_text("async def build(assignment): ...\n")
    spec = "function:thinking_here:build"
    assert runtime_specs([f"builder={spec}"]) == {"builder": spec}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("builder", "write ROLE=SPEC"),
        ("builder=", "write ROLE=SPEC"),
        ("plumber=command:wc", "'plumber' is no role"),
        ("builder=gpt -p", "is no runtime"),
        ("builder=claude:-p", "is of no known kind"),
        ("builder=command:", "is no runtime"),
        ("builder=script:none.toml", "none.toml"),
        ("builder=function:no_such_module:build", "there is no module no_such_module"),
    ],
)
def test_what_is_no_runtime_is_refused(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        runtime_specs([text])
