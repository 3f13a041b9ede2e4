"""What the fault tests share is imported by name: the programs that they start are modules here."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
