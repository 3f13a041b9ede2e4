"""By which commands a project is built, linted and tested, as its own files say."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

Command = tuple[str, ...]

_TARGETS: Mapping[str, str] = {"build": "build", "lint": "lint", "tests": "test"}
"""What a target of make, or a script of npm, is called."""

_BY_FILE: Mapping[str, Mapping[str, Command]] = {
    "ruff.toml": {"lint": ("ruff", "check")},
    ".ruff.toml": {"lint": ("ruff", "check")},
    "Cargo.toml": {"build": ("cargo", "build"), "tests": ("cargo", "test")},
    "go.mod": {
        "build": ("go", "build", "./..."),
        "lint": ("go", "vet", "./..."),
        "tests": ("go", "test", "./..."),
    },
}
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_TARGET_LINE = re.compile(r"^([^\s:#=][^:#=\n]*?)\s*::?(?!=)", re.MULTILINE)
_NPM_PLACEHOLDER = "no test specified"
"""What `npm init` writes where there are no tests."""

_PYTEST_FILES = ("pytest.ini", "conftest.py", "tests/conftest.py")
_PYTHON_SETTINGS = ("pyproject.toml", "setup.cfg", "tox.ini")


class _Package(Struct):
    """The part of a package.json that is asked for."""

    scripts: dict[str, str] = {}


def find_commands(project: Path) -> dict[str, Command]:
    """The commands for `build`, `lint` and `tests`, each where the project has one.

    Asked in this order: Makefile, package.json, Python's settings and tests folder, and the files
    that other tools are known by.
    """
    sources: tuple[Callable[[Path], Mapping[str, Command]], ...]
    sources = (_from_make, _from_npm, _from_python, _from_files)
    found: dict[str, Command] = {}
    for source in sources:
        found = {**source(project), **found}
    return found


def _from_make(project: Path) -> Mapping[str, Command]:
    text = next((it for name in _MAKEFILES if (it := _text(project / name))), "")
    targets = {name for line in _TARGET_LINE.findall(text) for name in line.split()}
    return {key: ("make", name) for key, name in _TARGETS.items() if name in targets}


def _from_npm(project: Path) -> Mapping[str, Command]:
    text = _text(project / "package.json")
    try:
        scripts = msgspec.json.decode(text, type=_Package).scripts if text else {}
    except msgspec.MsgspecError:
        scripts = dict.fromkeys(_TARGETS.values(), "")  # npm itself says what is wrong with it
    return {
        key: ("npm", "run", "--silent", name)
        for key, name in _TARGETS.items()
        if name in scripts and _NPM_PLACEHOLDER not in scripts[name]
    }


def _from_python(project: Path) -> Mapping[str, Command]:
    settings = "\n".join(_text(project / name) for name in _PYTHON_SETTINGS)
    found: dict[str, Command] = {}
    if "[tool.ruff" in settings:
        found["lint"] = ("ruff", "check")
    if any((project / "tests").rglob("test*.py")):
        pytest = "pytest" in settings or any((project / it).is_file() for it in _PYTEST_FILES)
        found["tests"] = (
            ("python3", "-m", "pytest", "-q")
            if pytest
            else ("python3", "-m", "unittest", "discover", "-s", "tests")
        )
    return found


def _from_files(project: Path) -> Mapping[str, Command]:
    found: dict[str, Command] = {}
    for name, commands in _BY_FILE.items():
        if (project / name).is_file():
            found = {**commands, **found}
    return found


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""
