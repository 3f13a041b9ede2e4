from pathlib import Path

import pytest

from batonbus_agents.commands import find_commands

UNITTEST = ("python3", "-m", "unittest", "discover", "-s", "tests")
PYTEST = ("python3", "-m", "pytest", "-q")


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_an_empty_folder_has_no_commands(tmp_path: Path) -> None:
    assert find_commands(tmp_path) == {}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"Makefile": "build: a b\n\ttrue\n"}, {"build": ("make", "build")}),
        ({"Makefile": "lint test: deps\n\ttrue\n"}, {"lint": ("make", "lint")}),
        ({"Makefile": "test::\n\ttrue\n"}, {"tests": ("make", "test")}),
        ({"GNUmakefile": "test:\n\ttrue\n"}, {"tests": ("make", "test")}),
        (
            {"package.json": '{"scripts": {"lint": "x"}}'},
            {"lint": ("npm", "run", "--silent", "lint")},
        ),
        ({"tests/test_a.py": ""}, {"tests": UNITTEST}),
        ({"tests/deep/test_a.py": "", "pytest.ini": ""}, {"tests": PYTEST}),
        ({"tests/test_a.py": "", "tests/conftest.py": ""}, {"tests": PYTEST}),
        ({"tests/test_a.py": "", "pyproject.toml": "[tool.pytest.ini_options]"}, {"tests": PYTEST}),
        ({"pyproject.toml": "[tool.ruff]\n"}, {"lint": ("ruff", "check")}),
        ({"ruff.toml": ""}, {"lint": ("ruff", "check")}),
        ({"Cargo.toml": ""}, {"build": ("cargo", "build"), "tests": ("cargo", "test")}),
        ({"go.mod": ""}, {"tests": ("go", "test", "./..."), "lint": ("go", "vet", "./...")}),
    ],
)
def test_a_projects_own_files_say_its_commands(
    tmp_path: Path, files: dict[str, str], expected: dict[str, tuple[str, ...]]
) -> None:
    found = find_commands(write(tmp_path, files))

    assert found.items() >= expected.items()


@pytest.mark.parametrize(
    "files",
    [
        {"Makefile": "build := out\ntesting:\n\ttest: no target\n# lint: neither\n"},
        {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'},
        {"package.json": '{"name": "a"}'},
        {"tests/data.json": "{}"},
        {"pyproject.toml": '[project]\nname = "a"\n'},
    ],
)
def test_what_only_looks_like_a_command_is_none(tmp_path: Path, files: dict[str, str]) -> None:
    assert find_commands(write(tmp_path, files)) == {}


def test_a_makefile_comes_before_what_its_tools_would_say(tmp_path: Path) -> None:
    files = {"Makefile": "test:\n\ttrue\n", "tests/test_a.py": "", "ruff.toml": ""}

    assert find_commands(write(tmp_path, files)) == {
        "tests": ("make", "test"),
        "lint": ("ruff", "check"),
    }


def test_a_broken_package_json_is_not_taken_for_a_project_without_tests(tmp_path: Path) -> None:
    found = find_commands(write(tmp_path, {"package.json": '{"scripts": '}))

    assert found["tests"] == ("npm", "run", "--silent", "test")
