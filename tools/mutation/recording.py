"""Which test runs which lines of the library."""

from __future__ import annotations

import pickle
import sys
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mutation.mutants import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import CodeType

_LIBRARY = f"{ROOT / 'ttl_odm'}/"


@dataclass
class Recording:
    """What a run of all tests has shown.

    Attributes:
        tests: The names of the tests that passed.
        seconds: How long each of them took.
        lines: By module (relative to the repository) and line, which tests run the line, by their
            places in `tests`.
    """

    tests: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lines: dict[str, dict[int, array[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: array("I")))
    )

    def add(self, test: str, seconds: float, lines: set[tuple[str, int]]) -> None:
        """Add a test that passed."""
        number = len(self.tests)
        self.tests.append(test)
        self.seconds.append(seconds)
        for file, line in lines:
            self.lines[file.removeprefix(f"{ROOT}/")][line].append(number)

    def running(self, path: str, line: int) -> list[str]:
        """Return the tests that run a line, in the order in which to try them.

        The quickest of each file comes first, then the second of each: tests of one file often
        notice the same mistakes.
        """
        by_file: dict[str, list[int]] = defaultdict(list)
        for number in self.lines.get(path, {}).get(line, ()):
            by_file[self.tests[number].partition("::")[0]].append(number)
        ranked = [
            (rank, self.seconds[number], number)
            for numbers in by_file.values()
            for rank, number in enumerate(sorted(numbers, key=self.seconds.__getitem__))
        ]
        return [self.tests[number] for _, _, number in sorted(ranked)]

    def save(self, file: Path) -> None:
        """Write it to a file, which is never half written."""
        plain = {path: dict(lines) for path, lines in self.lines.items()}
        new = file.with_suffix(".new")
        new.write_bytes(pickle.dumps((self.tests, self.seconds, plain)))
        new.replace(file)


def load(file: Path) -> Recording:
    """Read what `Recording.save` has written, if anything."""
    recording = Recording()
    if file.exists():
        tests, seconds, lines = pickle.loads(file.read_bytes())  # noqa: S301 - our own file
        recording.tests, recording.seconds = tests, seconds
        for path, numbers in lines.items():
            recording.lines[path].update(numbers)
    return recording


def lines_run() -> Iterator[set[tuple[str, int]]]:
    """Record lines for ever: each `next` gives those that ran since the one before."""
    monitoring: Any = vars(sys)["monitoring"]  # from Python 3.12 on
    tool, lines = monitoring.COVERAGE_ID, set[tuple[str, int]]()

    def note(code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(_LIBRARY):
            lines.add((code.co_filename, line))
        return monitoring.DISABLE

    monitoring.use_tool_id(tool, "ttl_odm mutation")
    monitoring.register_callback(tool, monitoring.events.LINE, note)
    monitoring.set_events(tool, monitoring.events.LINE)
    ran: set[tuple[str, int]] = set()
    while True:
        yield ran
        ran = set(lines)
        lines.clear()
        monitoring.restart_events()
