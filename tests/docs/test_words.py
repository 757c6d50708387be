"""What users read is plain English: the phrases below have been there once, and don't come back.

Looked at are the pages, the deployment files, the examples, and all of the package's texts: help,
messages, docstrings and comments. docs/leaks.md and docs/conformance.md are made of other files.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Whole words, in a line or over its end; with what to write in their place.
PHRASES = {
    r"nor was\b[^.]*\bitself": "nor is",
    r"(can|could|to) (not )?be had|can't be had": "(not) available",
    r"that looks for them": "that looks them up",
    r"all (there is to install|the installation there is)": "the whole setup",
    r"it returns third": "an optional third value",
    r"belongs? into": "belongs in",
    r"orderly": "cleanly",
    r"dear(er|est)?": "expensive",
    r"can't be saved": "can't be skipped",
    r"holds the lease for": "the lease expires in",
    r"(is|are|was|were) no (?!longer|older)[\w-]+": "is not a",
    r"mend(s|ed|ing)?": "fix",
    r"set-up": "setup",
}
TEXTS = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *ROOT.glob("docs/**/*.md"),
    *(path for path in ROOT.glob("deploy/**/*.*") if path.suffix != ".json"),
    ROOT / "deploy" / "Dockerfile",
    *ROOT.glob("examples/**/*.py"),
    *ROOT.glob("examples/**/*.md"),
    *ROOT.glob("ttl_odm/**/*.py"),
)


def found(phrase: str, text: str) -> list[str]:
    """The places of a phrase, each with what stands before it."""
    space = r"(?:[ ]|[ ]*\n[ #>*]*)"
    before = r"(?<![\w-])(?P<there>[Tt]here" + space + ")?"
    words = re.compile(rf"{before}({phrase.replace(' ', space)})(?![\w-])")
    return [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {match.group()!r}"
        for match in words.finditer(text)
        if match["there"] is None
    ]


@pytest.mark.parametrize(("phrase", "better"), PHRASES.items(), ids=PHRASES.values())
def test_a_phrase_that_nobody_writes_is_nowhere(phrase: str, better: str) -> None:
    places = [
        f"{path.relative_to(ROOT)}, {place}"
        for path in TEXTS
        for place in found(phrase, path.read_text())
    ]
    assert places == [], f"write: {better}"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0 is no ttl", 1),
        ("what is no\n    date stays", 1),
        ("there is no ttl", 0),
        ("Where there are no rows", 0),
        ("it is no longer there", 0),
        ("it is not a ttl", 0),
    ],
)
def test_the_most_frequent_of_them_is_told_from_what_is_right(text: str, count: int) -> None:
    (phrase,) = (phrase for phrase, better in PHRASES.items() if better == "is not a")
    assert len(found(phrase, text)) == count
