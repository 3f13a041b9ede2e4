"""From the words of a command line or a setting to a runtime."""

import inspect
import shlex
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import cast

from batonbus import BatonbusError, CommandLineError, find_command_line
from batonbus_agents.runtimes.assignment import Runtime
from batonbus_agents.runtimes.command import CommandRuntime, SessionRuntime
from batonbus_agents.runtimes.script import read_script

FORMS = (
    "command:COMMAND LINE, script:FILE, function:MODULE:ATTR, an agent such as claude or codex "
    "with its options, or FILE.toml"
)


class RuntimeSpecError(BatonbusError, ValueError):
    """A text names no runtime."""


def parse_runtime(
    spec: str, *, time_limit: float = 3600.0, variables: Sequence[str] = ()
) -> Runtime:
    """The runtime that `command:COMMAND LINE`, `script:FILE` or `function:MODULE:ATTR` names, or
    an agent's name with its options, such as `claude --model opus`, or the TOML file of one.

    A command line is split as a shell would, and run by none. A program gets `time_limit` seconds,
    and a command sees our environment variables that `variables` names; a function limits itself.
    Raises RuntimeSpecError where the text names none, ScriptError for a script that cannot be read.
    """
    first = spec.split(maxsplit=1)
    if first and ":" not in first[0]:
        return _session(spec, time_limit, tuple(variables))
    kind, _, rest = spec.partition(":")
    if not rest.strip():
        raise RuntimeSpecError(f"{spec!r} is no runtime: write {FORMS}")
    match kind:
        case "command":
            return CommandRuntime(_words(spec, rest), time_limit, tuple(variables))
        case "script":
            return read_script(Path(rest), time_limit=time_limit)
        case "function":
            return _function(spec, rest)
        case _:
            raise RuntimeSpecError(f"{spec!r} is of no known kind: write {FORMS}")


def _session(spec: str, time_limit: float, variables: tuple[str, ...]) -> Runtime:
    try:
        return SessionRuntime(find_command_line(spec), time_limit, variables)
    except CommandLineError as error:
        raise RuntimeSpecError(f"{spec!r} is no runtime: {error}; or write {FORMS}") from None


def _words(spec: str, line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise RuntimeSpecError(f"{spec!r}: {error}") from None


def _function(spec: str, target: str) -> Runtime:
    """The function; an error inside of its module is its own."""
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_module(module), attribute or "?", None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise RuntimeSpecError(f"{spec!r}: there is no module {error.name}") from None
    if not _is_async(found):
        raise RuntimeSpecError(f"{spec!r}: {module} has no async function {attribute!r}")
    return cast("Runtime", found)


def _is_async(value: object) -> bool:
    """Whether calling it gives an awaitable: an async function, or an object with such a call."""
    call = getattr(type(value), "__call__", None)  # noqa: B004 - its code, not whether it is there
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)
