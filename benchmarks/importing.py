"""What ``import ttl_odm`` takes, in new processes, and what it brings along."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from benchmarks.findings import Finding
from benchmarks.goals import FOREIGN, IMPORT
from benchmarks.harness import Estimate, estimate
from benchmarks.report import PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.bench import Bench

SECTION: Final = "`import ttl_odm`"
_PROCESSES: Final = 10
"""For each round."""

_CODE: Final = """
import json, sys, time
before = set(sys.modules)
begin = time.perf_counter()
import ttl_odm
took = time.perf_counter() - begin
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([took, len(roots - {"ttl_odm"} - sys.stdlib_module_names)]))
"""


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure; no database takes part.

    Args:
        bench: what there is.
    """
    found = [[_import() for _ in range(_PROCESSES)] for _ in range(bench.scale.sittings)]
    rounds = [[{"import": took * 1e3} for took, _ in sitting] for sitting in found]
    taken = estimate(rounds, lambda each: each["import"])
    foreign = Estimate.exactly(max(number for sitting in found for _, number in sitting))
    yield Finding(SECTION, "time", PYTHON, "ms", taken, goal=IMPORT)
    what = "modules from outside the standard library"
    yield Finding(SECTION, what, PYTHON, "modules", foreign, goal=FOREIGN)


def _import() -> tuple[float, int]:
    """Import it in a new process: the seconds, and how many other packages came along."""
    command = [sys.executable, "-c", _CODE]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    took, foreign = json.loads(out)
    return took, foreign
