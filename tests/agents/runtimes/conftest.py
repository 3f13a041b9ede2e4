from collections.abc import Callable
from pathlib import Path

import pytest

from batonbus_agents.runtimes import Assignment


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    return Assignment(
        role="builder", work="WORK-07", task="TASK-02", attempt=1, text="Do it.", cwd=tmp_path
    )


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], tuple[str, ...]]:
    """Writes a Bash program, and gives the command that runs it."""

    def write(text: str) -> tuple[str, ...]:
        path = tmp_path / "program"
        path.write_text(text)
        return ("bash", str(path))

    return write
