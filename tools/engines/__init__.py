"""docs/engines.md: the tests' verdicts on each engine and version that is available.

| module | what it has |
|---|---|
| catalogue | the engines: what each is, where it comes from, which tests it is asked |
| measure | runs the tests on one |
| page | what was measured, and how it reads as Markdown |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engines.catalogue import ENGINES, NAMES, NOT_AVAILABLE
from engines.measure import measure
from engines.page import Measured, Results, document, load, summary
from environments import ROOT
from measured import dump
from terminal import say

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["ENGINES", "NAMES", "Measured", "load", "page_of", "write"]

_FAILED = 1


def page_of(results: Results) -> str:
    """docs/engines.md, of what is known."""
    return document(ENGINES, results, NOT_AVAILABLE)


def write(only: Collection[str], python: str) -> int:
    """Measure the engines and write the page after each of them.

    Args:
        only: names; empty means all.
        python: the interpreter with everything.

    Returns:
        An exit status: 0 if all that were available came out right.
    """
    data, page = (ROOT / "docs" / f"engines.{kind}" for kind in ("json", "md"))
    results = {name: result for name, result in load(data).items() if name in NAMES}
    failed = False
    for engine in ENGINES:
        if only and engine.name not in only:
            continue
        say(f"\n== {engine.name}")
        began = time.monotonic()
        result = results[engine.name] = measure(engine, python)
        if isinstance(result, Measured):
            failed = failed or result.count("wrong") > 0
            said = summary([result])
        else:
            said = result.reason
        say(f"{engine.name}: {said} {time.monotonic() - began:.0f} s")
        results = {name: results[name] for name in NAMES if name in results}
        data.write_text(dump(results), encoding="utf-8")
        page.write_text(page_of(results), encoding="utf-8")
    return _FAILED if failed else 0
