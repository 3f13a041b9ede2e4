"""The floors: who may import whom, what a rule may not touch, where no module may stand."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import batonbus

ROOT = Path(__file__).parents[1]

# The longest name that fits decides; what is not named stands on the floor of its package.
FLOORS = {
    "batonbus_schemas": 0,
    "batonbus.rules": 1,
    "batonbus.logs": 2,
    "batonbus.secrecy": 2,
    "batonbus.wire": 2,
    "batonbus.run": 3,
    "batonbus.testing": 3,
    "batonbus": 4,
    "batonbus_agents": 4,
}
IMPURE = {"anyio", "asyncio", "logging", "os", "random", "secrets", "structlog", "time"}
IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "open", "print"}
ASYNC = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def violations(module: str, source: str) -> list[str]:
    """Every way in which a module breaks the floors, with its line."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        for package, name in imports(node):
            imported = f"{package}.{name}".rstrip(".")
            if floor(imported) > floor(module):
                found.append(f"{node.lineno}: upward import of {imported}")
            if is_in(imported, "nats") and not is_in(module, "batonbus.wire"):
                found.append(f"{node.lineno}: nats outside of wire")
            if is_in(module, "batonbus_agents") and not is_public(package, name):
                found.append(f"{node.lineno}: {imported} is not public")
            if is_in(module, "batonbus.rules") and imported.split(".")[0] in IMPURE:
                found.append(f"{node.lineno}: a rule imports {imported}")
        if is_in(module, "batonbus.rules") and (isinstance(node, ASYNC) or called(node)):
            found.append(f"{node.lineno}: a rule waits, looks at a clock, or does I/O")
    return found


def imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        # A relative one has no floor that could be read here: it is not used in this project.
        package = node.module if node.module and not node.level else "batonbus.relative"
        yield from ((package, alias.name) for alias in node.names)


def called(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in IMPURE_CALLS


def is_in(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def floor(name: str) -> int:
    fitting = [package for package in FLOORS if is_in(name, package)]
    return FLOORS[max(fitting, key=len)] if fitting else -1


def is_public(package: str, name: str) -> bool:
    """The messages are everybody's; of the bus, only what it says itself that it offers."""
    return not is_in(package, "batonbus") or (package == "batonbus" and name in batonbus.__all__)


def modules() -> Iterator[tuple[str, Path]]:
    for root in ("schemas", "bus", "agents"):
        for path in sorted((ROOT / root).rglob("*.py")):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            yield ".".join(it for it in parts if it != "__init__"), path


def test_every_module_keeps_the_floors() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{violation}"
        for module, path in modules()
        for violation in violations(module, path.read_text())
    ]
    assert found == []


def test_every_floor_has_modules() -> None:
    assert {floor(module) for module, _ in modules()} == {0, 1, 2, 3, 4}


def test_no_module_stands_directly_in_a_source_root() -> None:
    # Such a folder would become a package named `agents` or `bus`, and collide with another's.
    assert [it for root in ("schemas", "bus", "agents") for it in (ROOT / root).glob("*.py")] == []


@pytest.mark.parametrize(
    ("module", "source", "problem"),
    [
        ("batonbus_schemas.text", "from batonbus.rules import chain", "upward import"),
        ("batonbus_schemas.text", "import batonbus.rules.chain", "upward import"),
        ("batonbus.rules.chain", "from batonbus.logs import log", "upward import"),
        ("batonbus.rules.chain", "from batonbus import Agent", "upward import"),
        ("batonbus.rules.chain", "from . import receipts", "upward import"),
        ("batonbus.wire.feed", "def f():\n    from batonbus.run.core import Core", "upward import"),
        ("batonbus.run.core", "from batonbus.cli import main", "upward import"),
        ("batonbus.run.core", "import nats.aio.client", "nats outside of wire"),
        ("batonbus.bench", "from nats.errors import Error", "nats outside of wire"),
        ("batonbus_agents.works.work", "from batonbus.rules.chain import Chain", "not public"),
        ("batonbus_agents.works.work", "import batonbus.wire.ledger", "not public"),
        ("batonbus_agents.works.work", "from batonbus import rules", "not public"),
        ("batonbus.rules.gate", "async def wait(): ...", "a rule waits"),
        ("batonbus.rules.gate", "import time", "a rule imports time"),
        ("batonbus.rules.gate", "from random import choice", "a rule imports random"),
        ("batonbus.rules.gate", "import datetime\ndatetime.datetime.now()", "looks at a clock"),
        ("batonbus.rules.gate", "open('policy.toml')", "does I/O"),
    ],
)
def test_a_module_that_breaks_the_floors_is_named(module: str, source: str, problem: str) -> None:
    assert problem in "; ".join(violations(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("batonbus.rules.chain", "from batonbus_schemas import Presence"),
        ("batonbus.rules.chain", "from datetime import datetime"),
        ("batonbus.wire.ledger", "from batonbus.rules.chain import fold\nimport nats"),
        ("batonbus.run.core", "from batonbus.logs import log"),
        ("batonbus_agents.works.work", "from batonbus import Agent\nimport batonbus_agents.works"),
        ("batonbus_agents.works.work", "from batonbus_schemas import TaskResult"),
    ],
)
def test_a_module_that_keeps_the_floors_is_passed(module: str, source: str) -> None:
    assert violations(module, source) == []
