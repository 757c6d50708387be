"""Writes what happens in a run to a file, for `tools/dev.py test`, which follows several runs.

One JSON object a line, as soon as there is something to tell, so that a run that crashes has told
all but its end:

| key | value |
|---|---|
| `tests` | how many tests are to run |
| `left_out` | how many are not, by reason |
| `begun` | the test that begins |
| `ended`, `seconds` | a test, and how long it took with its fixtures |
| `outcome`, `reason` | `passed`, `failed`, `skipped` or `xfailed`, and why it was skipped |
| `broken` | a file that could not be collected |
| `status` | pytest's exit status: the run is over |
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LEFT_OUT: Final = pytest.StashKey[dict[pytest.Item, str]]()
"""Why each item was deselected, as far as this folder's conftest did it."""
NOT_CHOSEN: Final = "not chosen"


class Recorder:
    """A plugin of pytest that writes the file."""

    def __init__(self, file: Path, stash: pytest.Stash) -> None:
        self._file = file.open("a", encoding="utf-8")
        self._stash = stash
        self._left_out: Counter[str] = Counter()
        self._seconds = 0.0
        self._outcome = "passed"
        self._reason: str | None = None

    def _write(self, **told: Any) -> None:
        self._file.write(f"{json.dumps(told)}\n")
        self._file.flush()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        reasons = self._stash.get(LEFT_OUT, {})
        self._left_out.update(reasons.get(item, NOT_CHOSEN) for item in items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(broken=report.nodeid)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(tests=len(session.items), left_out=self._left_out)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._seconds, self._outcome, self._reason = 0.0, "passed", None
        self._write(begun=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.failed:
            self._outcome = "failed"
        elif report.skipped:
            self._outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            where = report.longrepr
            self._reason = where[2] if isinstance(where, tuple) else None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        told = {"ended": nodeid, "outcome": self._outcome, "seconds": round(self._seconds, 3)}
        self._write(**told, **({"reason": self._reason} if self._reason else {}))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write(status=int(exitstatus))

    def pytest_unconfigure(self) -> None:
        self._file.close()
