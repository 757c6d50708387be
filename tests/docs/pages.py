"""A page of the documentation as it is read: its blocks, and the scaffolding that each needs.

What a page's blocks need and its readers don't (tables, a clock that a test moves) is in
`scaffolding/`, in a file with the page's own path. Its headings say before which block something
runs: ``## Before `first line of the block` ``, with a number behind it where several blocks of the
page begin alike, or `## At the end`. A paragraph `Not run: the reason.` leaves that block out. So a
page has no hidden text: what is read in the repository is what the site shows.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sybil import Document, Region
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sybil import Example

ROOT = Path(__file__).parents[2]
_SCAFFOLDING = Path(__file__).parent / "scaffolding"
_HEADING = re.compile(r"^## (?:Before `(.+)`(?: \((\d+)\))?|At the end)$", re.MULTILINE)
_NOT_RUN = re.compile(r"^Not run: (.+)\.$", re.MULTILINE)

AT_THE_END = ("", 1)
"""The key of what runs after a page's last block."""


@dataclass
class Section:
    """What belongs to one block.

    Attributes:
        steps: Blocks to run before it.
        not_run: Why the block itself is left out; empty if it runs.
    """

    steps: list[Example] = field(default_factory=list)
    not_run: str = ""


def blocks(path: Path, evaluator: Callable[[str], Callable[[Example], None]]) -> list[Example]:
    """Read the blocks of a Markdown file, each with the evaluator of its language."""

    def regions(document: Document) -> Iterator[Region]:
        for region in FencedCodeBlockLexer(r".*")(document):
            language = region.lexemes["language"]
            if not language.startswith("{"):  # Sphinx's own, which it checks itself
                source = str(region.lexemes["source"])
                yield Region(region.start, region.end, source, evaluator(language), region.lexemes)

    return [*Document.parse(str(path), regions).examples()]


def keyed(examples: list[Example]) -> Iterator[tuple[tuple[str, int], Example]]:
    """Yield each block of a page with its first line, and which of those that begin so it is."""
    seen: Counter[str] = Counter()
    for example in examples:
        first = str(example.parsed).partition("\n")[0].strip()
        seen[first] += 1
        yield (first, seen[first]), example


def scaffolding(
    page: Path, evaluator: Callable[[str], Callable[[Example], None]]
) -> dict[tuple[str, int], Section]:
    """Read what a page's blocks need, by `keyed`'s keys and `AT_THE_END`.

    Args:
        page: The page; one outside the repository has no scaffolding.
        evaluator: What runs a block of a language.
    """
    path = _SCAFFOLDING / page.relative_to(ROOT) if page.is_relative_to(ROOT) else _SCAFFOLDING
    if not path.is_file():
        return {}
    text = path.read_text()
    steps = blocks(path, evaluator)
    headings = [
        heading
        for heading in _HEADING.finditer(text)
        if not any(step.start <= heading.start() < step.end for step in steps)
    ]
    sections = {}
    for heading, end in zip(
        headings, [*(later.start() for later in headings[1:]), len(text)], strict=True
    ):
        key = (heading[1], int(heading[2] or 1)) if heading[1] else AT_THE_END
        assert key not in sections, f"{path.name}: two sections for {heading[0]}"
        inside = [step for step in steps if heading.start() < step.start < end]
        reason = _NOT_RUN.search(text[heading.end() : end])
        sections[key] = Section(inside, reason[1] if reason else "")
    return sections
