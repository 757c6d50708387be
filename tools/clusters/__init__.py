"""docs/clusters.md: what clients of each cluster saw while its members failed.

| module | what it has |
|---|---|
| catalogue | the setups: what each is, and what its engine may lose |
| measure | runs clients against one, through many failovers |
| page | what they saw, and how it reads as Markdown |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from clusters.catalogue import NAMES, NOT_TESTED, SETUPS
from clusters.measure import measure
from clusters.page import Measured, Results, document, load, summary
from environments import ROOT
from measured import dump
from terminal import say

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["NAMES", "SETUPS", "Measured", "load", "page_of", "write"]

_FAILED = 1


def page_of(results: Results) -> str:
    """docs/clusters.md, of what is known."""
    return document(SETUPS, results, NOT_TESTED)


def write(only: Collection[str], failovers: int, seed: int, python: str) -> int:
    """Measure the setups and write the page after each of them.

    Args:
        only: names; empty means all.
        failovers: how many each goes through.
        seed: decides when they happen and what clients do.
        python: the interpreter with everything.

    Returns:
        An exit status: 0 if nothing was wrong on those that are available.
    """
    data, page = (ROOT / "docs" / f"clusters.{kind}" for kind in ("json", "md"))
    results = {name: result for name, result in load(data).items() if name in NAMES}
    failed = False
    for setup in SETUPS:
        if only and setup.name not in only:
            continue
        say(f"\n== {setup.name}, seed {seed}")
        began = time.monotonic()
        result = results[setup.name] = measure(setup, failovers, seed, python)
        if isinstance(result, Measured):
            failed = failed or result.is_wrong
            said = summary([result])
        else:
            said = result.reason
        say(f"{setup.name}: {said} {time.monotonic() - began:.0f} s")
        results = {name: results[name] for name in NAMES if name in results}
        data.write_text(dump(results), encoding="utf-8")
        page.write_text(page_of(results), encoding="utf-8")
    return _FAILED if failed else 0
