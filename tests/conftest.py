"""What every test shares."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """A command that runs inside of the test process configures logging for all tests after it."""
    root, ours = logging.getLogger(), logging.getLogger("batonbus")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
