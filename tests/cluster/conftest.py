"""What the cluster tests share: three servers, a fleet at work, and the ledger's checker."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "faults")]

from nodes import Cluster, running_cluster  # noqa: E402 - found by the path above


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Cluster]:
    """A cluster of its own for each test: it breaks what it was given."""
    async with running_cluster(tmp_path) as running:
        yield running
