"""docs/clusters.md: what clients of each cluster saw while its members failed.

| module | what it has |
|---|---|
| catalogue | the setups: what each is, and what its engine may lose |
| measure | runs clients against one, through many failovers |
| page | what they saw, and how it reads as Markdown |
"""

from __future__ import annotations

import fcntl
import re
from typing import TYPE_CHECKING

from clusters.catalogue import NAMES, NOT_TESTED, SETUPS
from clusters.measure import measure
from clusters.page import ROUND, Measured, Results, document, load, summary
from environments import ROOT
from measured import Absent, dump
from terminal import say

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from clusters.catalogue import Setup

__all__ = ["NAMES", "SETUPS", "Measured", "load", "page_of", "quality_of", "write"]

_FAILED = 1
_DATA, _PAGE, _QUALITY = (
    ROOT / "docs" / name for name in ("clusters.json", "clusters.md", "quality.md")
)
_PARTIAL = ROOT / "build" / "clusters.json"
"""What is known of setups that are being measured, or whose run was interrupted."""

_SUMMARY = re.compile(r"(?<=<!-- Written by: python3 tools/dev\.py clusters\. -->\n).*")
"""What docs/quality.md has of docs/clusters.md: a line."""


def page_of(results: Results) -> str:
    """docs/clusters.md, of what is known."""
    return document(SETUPS, results, NOT_TESTED)


def quality_of(results: Results, page: str) -> str:
    """docs/quality.md, with the summary of what is known."""
    line = summary(result for result in results.values() if isinstance(result, Measured))
    return _SUMMARY.sub(line, page)


def write(
    only: Collection[str], failovers: int, seed: int, python: str, *, resume: bool = False
) -> int:
    """Measure the setups, each in rounds, and write the pages after each setup.

    Several processes may do so at the same time, for different setups. What an interrupted run has
    seen is in build/clusters.json.

    Args:
        only: names; empty means all.
        failovers: how many each goes through.
        seed: of the first round; it decides when failovers happen and what clients do.
        python: the interpreter with everything.
        resume: whether the failovers of an interrupted run count, or those that the page has.

    Returns:
        An exit status: 0 if all setups were measured, and nothing was wrong.
    """
    failed = False
    for setup in SETUPS:
        if only and setup.name not in only:
            continue
        say(f"\n== {setup.name}")
        kept = {**load(_DATA), **load(_PARTIAL)}.get(setup.name) if resume else None
        known = kept if isinstance(kept, Measured) else None
        for result in _rounds(setup, failovers, seed, python, known):
            if isinstance(result, Measured):
                failed = failed or result.is_wrong
                said = summary([result])
            else:
                failed, said = True, result.reason
            say(f"{setup.name}: {said}")
            _keep(setup.name, result, failovers)
    return _FAILED if failed else 0


def _rounds(
    setup: Setup, failovers: int, seed: int, python: str, known: Measured | None
) -> Iterator[Measured | Absent]:
    """Measure a setup round by round, and yield all that is known of it after each."""
    while known is None or known.number < failovers:
        missing = failovers - (known.number if known else 0)
        number = max(known.seeds) + 1 if known else seed
        seen = measure(setup, min(missing, ROUND), number, python)
        if isinstance(seen, Absent):
            yield seen
            return
        known = known.joined(seen) if known and known.is_of_the_same(seen) else seen
        yield known


def _keep(name: str, result: Measured | Absent, failovers: int) -> None:
    """Note what is known of a setup; once that is everything, write the pages.

    That a setup is absent replaces nothing.
    """
    with _DATA.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        partial, results = load(_PARTIAL), load(_DATA)
        if isinstance(result, Measured) and result.number < failovers:
            _note({**partial, name: result})
            return
        if isinstance(result, Measured) or name not in results:
            results[name] = result
        results = {name: results[name] for name in NAMES if name in results}
        _DATA.write_text(dump(results), encoding="utf-8")
        _PAGE.write_text(page_of(results), encoding="utf-8")
        quality = _QUALITY.read_text(encoding="utf-8")
        _QUALITY.write_text(quality_of(results, quality), encoding="utf-8")
        if isinstance(result, Measured):
            _note({other: partial[other] for other in partial if other != name})


def _note(partial: Results) -> None:
    _PARTIAL.parent.mkdir(exist_ok=True)
    _PARTIAL.write_text(dump(partial), encoding="utf-8")
