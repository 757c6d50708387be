"""What ``import ttl_odm`` takes, in new processes, and what it brings along.

Beside it stands what the same modules of the standard library take by themselves. All are compiled
before, as they are wherever Python may write bytecode.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from tempfile import TemporaryDirectory
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

STANDARD: Final = "time of the standard library's modules that it needs"

_CODE: Final = """
import json, sys, time
before, names = set(sys.modules), sys.argv[1:]
begin = time.perf_counter()
for name in names:
    __import__(name)
took = time.perf_counter() - begin
print(json.dumps([took, sorted(set(sys.modules) - before)]))
"""
_OURS: Final = "ttl_odm"


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure; no database takes part.

    Args:
        bench: what there is.
    """
    with TemporaryDirectory() as compiled:
        yield from _findings(bench, compiled)


def _findings(bench: Bench, compiled: str) -> Iterator[Finding]:
    new = _import([_OURS], compiled)[1]
    roots = {name: name.partition(".")[0] for name in new}
    standard = [name for name, root in roots.items() if root in sys.stdlib_module_names]
    foreign = {*roots.values()} - {_OURS} - sys.stdlib_module_names
    asked = {_OURS: [_OURS], STANDARD: standard}
    found = [
        [
            {what: _import(names, compiled)[0] * 1e3 for what, names in asked.items()}
            for _ in range(_PROCESSES)
        ]
        for _ in range(bench.scale.sittings)
    ]
    ours = estimate(found, lambda each: each[_OURS])
    rival = estimate(found, lambda each: each[STANDARD])
    yield Finding(SECTION, "time", PYTHON, "ms", ours, goal=IMPORT)
    yield Finding(SECTION, STANDARD, PYTHON, "ms", rival)
    what = "modules from outside the standard library"
    amount = Estimate.exactly(len(foreign))
    yield Finding(SECTION, what, PYTHON, "modules", amount, goal=FOREIGN)


def _import(names: list[str], compiled: str) -> tuple[float, list[str]]:
    """Import modules in a new process: the seconds, and all modules that this has brought."""
    command = [sys.executable, "-c", _CODE, *names]
    unset = {"PYTHONDONTWRITEBYTECODE"}
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env["PYTHONPYCACHEPREFIX"] = compiled
    out = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=True, env=env
    ).stdout
    took, new = json.loads(out)
    return took, new
