"""Finding a Python agent by its name."""

import inspect
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from batonbus.rules.errors import BatonbusError
from batonbus.run.agent import Agent

ENTRY_POINTS = "batonbus.agents"
"""Under this name installed packages announce their agents."""


class AgentNotFoundError(BatonbusError):
    """There is no agent of this name."""


def find_agent(target: str, folder: Path) -> Agent:
    """The agent at `module:attr`, looked up from `folder`, or the installed one of that name.

    Raises AgentNotFoundError that says what there is, or what is wrong with how an agent is
    written; any other error inside of the module is its own.
    """
    name, colon, attribute = target.partition(":")
    if not colon:
        return _find_installed(target)
    sys.path.insert(0, str(folder))
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        # A module that it imports itself may be missing: that is another error.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise AgentNotFoundError(f"no module {error.name!r} in {folder} or installed") from None
    except (SyntaxError, TypeError, ValueError) as error:
        raise AgentNotFoundError(f"{name} cannot be loaded: {_place(error)}: {error}") from error
    return _as_agent(target, attribute, vars(module))


def _place(error: Exception) -> str:
    """Where in the user's own files it went wrong: the last line that is not of a library."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = [it for it in traceback.extract_tb(error.__traceback__) if not _is_library(it)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else type(error).__name__


def _is_library(frame: traceback.FrameSummary) -> bool:
    ours = Path(__file__).parents[1]
    return Path(frame.filename).is_relative_to(ours) or frame.filename.startswith("<frozen")


def _find_installed(name: str) -> Agent:
    installed = {it.name: it for it in entry_points(group=ENTRY_POINTS)}
    if name not in installed:
        raise AgentNotFoundError(
            f"no agent {name!r} is installed (installed: {', '.join(sorted(installed)) or 'none'}):"
            " name a module's one as MODULE:ATTR"
        )
    return _as_agent(name, name, {name: installed[name].load()})


def _as_agent(target: str, attribute: str, names: Mapping[str, object]) -> Agent:
    found = names.get(attribute)
    if isinstance(found, Agent):
        if not found.accepts:
            raise AgentNotFoundError(
                f"{target} has no handler: decorate one with @{attribute}.handles"
            )
        return found
    agents = ", ".join(name for name, it in names.items() if isinstance(it, Agent)) or "none"
    what = f"is {_describe(found)}, no Agent" if attribute in names else "does not exist"
    raise AgentNotFoundError(f"{target} {what}; agents of that module: {agents}")


def _describe(value: object) -> str:
    kind = "function" if inspect.isroutine(value) else type(value).__name__
    return f"a {kind}"
