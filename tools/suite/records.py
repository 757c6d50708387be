"""What a lot has told of its tests so far: the reader of what tests/recorder.py writes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Record:
    """The results of one run of pytest.

    Attributes:
        tests: How many tests it runs; None before they are collected.
        outcomes: How many have passed, failed and so on.
        failures: The IDs of the tests that have failed, and the files that can't be collected.
        left_out: How many tests don't run, by reason.
        skips: How many were skipped, by reason.
        running: The ID of the test that has begun and not ended.
        status: pytest's exit status; None before its end.
    """

    tests: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    running: str | None = None
    status: int | None = None

    @property
    def done(self) -> int:
        """How many tests have ended."""
        return self.outcomes.total()

    @property
    def part(self) -> float:
        """Which part of the tests has ended, from 0 to 1."""
        return self.done / self.tests if self.tests else 0.0

    def take(self, line: str) -> None:
        """Take one line of the file into account."""
        told: dict[str, Any] = json.loads(line)
        if "begun" in told:
            self.running = told["begun"]
        elif "ended" in told:
            self.running = None
            self.outcomes[told["outcome"]] += 1
            if told["outcome"] == "failed":
                self.failures.append(told["ended"])
            elif told["outcome"] == "skipped":
                self.skips[told.get("reason", "")] += 1
        elif "tests" in told:
            self.tests = told["tests"]
            self.left_out.update(told["left_out"])
        elif "broken" in told:
            self.failures.append(told["broken"])
        elif "status" in told:
            self.status = told["status"]


class Follower:
    """Reads a record while it is being written.

    Attributes:
        record: What has been read.
    """

    def __init__(self, path: Path) -> None:
        self.record = Record()
        self._path = path
        self._file: IO[str] | None = None
        self._rest = ""

    def read(self) -> bool:
        """Read what is new; tell whether there was anything."""
        if self._file is None:
            if not self._path.exists():
                return False
            self._file = self._path.open(encoding="utf-8")
        text = self._file.read()
        *lines, self._rest = f"{self._rest}{text}".split("\n")
        for line in lines:
            self.record.take(line)
        return bool(text)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
