"""All that `batonbus` gives to those who build on it."""

from batonbus.rules.chain import IllegalStepError
from batonbus.rules.command_lines import CommandLine, CommandLineError
from batonbus.rules.compaction import (
    CheckpointRequest,
    Entry,
    Evidence,
    Handled,
    ResetDone,
    ResetRequest,
)
from batonbus.rules.errors import (
    BatonbusError,
    Bounced,
    BusUnavailableError,
    CompactionError,
    ConflictError,
    ContextFullError,
    MessageTooLargeError,
    NoAnswerError,
    ObjectError,
    ReferenceTooLargeError,
    Refuse,
    ReroutedError,
    TryAgain,
)
from batonbus.rules.settings import Settings
from batonbus.run.agent import Agent
from batonbus.run.bus import Bus
from batonbus.run.contents import lay_out_contents
from batonbus.run.context import Context
from batonbus.run.copies import copied_passages
from batonbus.run.program import CommandFailedError, Ended, ProgramError, run_program
from batonbus.run.sent import Sent, gather
from batonbus.run.session import Session, find_command_line
from batonbus.testing import TestBus

__all__ = [
    "Agent",
    "BatonbusError",
    "Bounced",
    "Bus",
    "BusUnavailableError",
    "CheckpointRequest",
    "CommandFailedError",
    "CommandLine",
    "CommandLineError",
    "CompactionError",
    "ConflictError",
    "Context",
    "ContextFullError",
    "Ended",
    "Entry",
    "Evidence",
    "Handled",
    "IllegalStepError",
    "MessageTooLargeError",
    "NoAnswerError",
    "ObjectError",
    "ProgramError",
    "ReferenceTooLargeError",
    "Refuse",
    "ReroutedError",
    "ResetDone",
    "ResetRequest",
    "Sent",
    "Session",
    "Settings",
    "TestBus",
    "TryAgain",
    "copied_passages",
    "find_command_line",
    "gather",
    "lay_out_contents",
    "run_program",
]
