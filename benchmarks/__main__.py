"""All benchmarks, and one report of them: ``python -m benchmarks``. See README.md.

`python3 tools/dev.py bench` does the same with servers of its own. After each benchmark the report
is written anew, so what was measured is kept whatever happens to the next one. The exit status is 0
whatever the figures are, for a benchmark is not a test; 3 when a server doesn't answer.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Final

from pymongo.errors import ConnectionFailure
from sqlalchemy.exc import OperationalError

from benchmarks.bench import KEYS, SCALES, Bench, tell
from benchmarks.report import NAME, Part, Report

CANNOT_RUN: Final = 3
OUTPUT: Final = Path(__file__).parents[1] / "build" / "bench"

PARTS: Final = (
    *(
        "sql_overhead",
        "counted_rows",
        "stored_defaults",
        "follows",
        "rivals",
        "django_overhead",
        "django_follows",
        "django_tenants",
        "beanie_overhead",
        "beanie_follows",
        "beanie_stored",
        "round_trip",
    ),
    *("sweeping", "sweep_workers", "mongo_sweeping", "indexes", "partitions", "database_sweep"),
    *("replication", "events"),
    *("migrations", "importing", "growth", "process_growth"),
)
"""The benchmarks' modules, in the order of the report."""


def main() -> int:
    """Measure, and write what was found."""
    arguments = _arguments()
    if arguments.rewrite:
        Report.read(arguments.output).write(arguments.output)
        return 0
    size = "smoke" if arguments.smoke else "quick" if arguments.quick else "full"
    bench = Bench.of(SCALES[size], arguments.only, arguments.rivals)
    try:
        versions = bench.versions()
    except (OperationalError, ConnectionFailure) as error:
        tell(f"cannot run: {error}")
        return CANNOT_RUN
    report = Report(Report.read(arguments.output).parts, bench.missing(arguments.only))
    for name in PARTS:
        if name in (arguments.run or PARTS):
            tell(f"{name} ({size})")
            part = _part(name, bench, size, versions)
            if part.findings:  # none: its database isn't there, or isn't wanted
                some = bool(arguments.only)
                report = report.with_part(part, PARTS, of_some_databases=some)
            report.write(arguments.output)
    sys.stdout.write("\n".join(report.goals()) + "\n")
    tell(f"The report: {arguments.output / NAME}.md")
    return 0


def _part(name: str, bench: Bench, size: str, versions: list[str]) -> Part:
    """Run one benchmark."""
    begun, load, begin = datetime.now(timezone.utc), os.getloadavg()[0], perf_counter()
    findings = list(import_module(f"benchmarks.{name}").measure(bench))
    seconds = perf_counter() - begin
    sizes = f"{size}: {bench.scale.text}"
    return Part(name, f"{begun:%Y-%m-%d %H:%M}", seconds, load, sizes, versions, findings)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure what ttl_odm costs, side by side with what one would use instead.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        choices=PARTS,
        help="this benchmark and no other; may be repeated; the others stay in the report",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=KEYS,
        help="on this database and no other; may be repeated",
    )
    parser.add_argument(
        "--rewrite",
        action="store_true",
        help="measure nothing: write the pages and pictures anew from the folder's report.json",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="some minutes: rougher figures")
    sizes.add_argument(
        "--smoke", action="store_true", help="some seconds: that all runs; the figures say nothing"
    )
    parser.add_argument(
        "--rivals", metavar="PYTHON", help="one that has sqlalchemy-easy-softdelete"
    )
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, help="the report's folder (build/bench)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
