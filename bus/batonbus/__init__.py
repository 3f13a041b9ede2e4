"""A durable bus on NATS JetStream by which fleets of AI agents hand work to each other."""

from batonbus.rules.chain import IllegalStepError
from batonbus.rules.errors import (
    BatonbusError,
    Bounced,
    BusUnavailableError,
    ConflictError,
    MessageTooLargeError,
    NoAnswerError,
    Refuse,
    TryAgain,
)
from batonbus.rules.settings import Settings
from batonbus.run.agent import Agent
from batonbus.run.bus import Bus
from batonbus.run.context import Context
from batonbus.run.program import Ended, ProgramError, run_program
from batonbus.run.sent import Sent, gather
from batonbus.testing import TestBus

__all__ = [
    "Agent",
    "BatonbusError",
    "Bounced",
    "Bus",
    "BusUnavailableError",
    "ConflictError",
    "Context",
    "Ended",
    "IllegalStepError",
    "MessageTooLargeError",
    "NoAnswerError",
    "ProgramError",
    "Refuse",
    "Sent",
    "Settings",
    "TestBus",
    "TryAgain",
    "gather",
    "run_program",
]
