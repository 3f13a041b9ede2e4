"""How a role thinks: a Python function, a command, or a recorded script."""

from batonbus_agents.runtimes.answer import PROTOCOL, RuntimeAnswerError
from batonbus_agents.runtimes.assignment import Assignment, Runtime
from batonbus_agents.runtimes.command import CommandRuntime, SessionRuntime
from batonbus_agents.runtimes.script import ScriptError, ScriptRuntime, read_script
from batonbus_agents.runtimes.spec import RuntimeSpecError, parse_runtime

__all__ = [
    "PROTOCOL",
    "Assignment",
    "CommandRuntime",
    "Runtime",
    "RuntimeAnswerError",
    "RuntimeSpecError",
    "ScriptError",
    "ScriptRuntime",
    "SessionRuntime",
    "parse_runtime",
    "read_script",
]
