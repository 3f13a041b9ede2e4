"""The model is a program of its own, in several files."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
