"""What the demo's tests share. Helpers are imported by name."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from made_ledger import MadeLedger


@pytest.fixture
def ledger() -> MadeLedger:
    return MadeLedger()
