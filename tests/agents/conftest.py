"""What the tests of the fleet share. Helpers are imported by name."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from git_project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A user's repository, and a home in which nothing but the user's name is configured."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = A User\n\temail = user@example.org\n")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_DIR", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Project(tmp_path / "project")
