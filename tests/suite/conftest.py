"""The tests of the test command find its modules as it does: in tools/."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))
