"""The tests of the test command find its modules as it does: in tools/."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

# It imports the operators of mutmut, which only the newest versions have.
collect_ignore = [] if find_spec("mutmut") else ["test_mutation.py"]
