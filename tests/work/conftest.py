"""What the tests of running works share: a user's repository, and the bench of the fleet."""

import sys
from pathlib import Path

import pytest

sys.path += [
    str(Path(__file__).parent),
    *(str(Path(__file__).parents[1] / it) for it in ("agents", "faults")),
]

from git_project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A user's repository, and a home in which nothing is configured."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_DIR", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("NAME", "EMAIL"):
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", "user")
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", "user")
    return Project(tmp_path / "project")
