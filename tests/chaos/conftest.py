"""The harness stands on what the fault tests share; both are imported by name."""

import sys
from pathlib import Path

HERE = Path(__file__).parent

sys.path += [str(HERE), str(HERE.parent / "faults")]
