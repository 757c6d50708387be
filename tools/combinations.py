"""docs/combinations.md: what goes together, as `ttl_odm.combinations` has it.

`python tools/combinations.py` writes it. A test sees that it is current.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ttl_odm.combinations import (  # noqa: E402 (once it is found)
    CAPABILITIES,
    DATABASES,
    combinations_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ttl_odm.combinations import Adapter, Combination

PAGE: Final = ROOT / "docs" / "combinations.md"

NAMES: Final[dict[str, str]] = {
    "sqlalchemy": "SQLAlchemy",
    "django": "Django",
    "beanie": "Beanie",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "mariadb": "MariaDB",
    "mysql": "MySQL",
    "mongodb": "MongoDB",
}

MARKS: Final = {"works": "✓", "conditional": "if", "rejected": "✗"}

PREFACE: Final = """# What goes together

<!-- Written by: python tools/combinations.py. The data is in ttl_odm/combinations.py. -->

A table or collection can have several capabilities beside its lifetime. This page says of each pair
whether the two go together, for each adapter. The error messages have their reasons from the same
data, and the tests try each pair on a real database: they declare, write, read, expire and sweep.

| mark | meaning |
| :-: | --- |
| ✓ | they go together |
| if | they do under a condition, or with an effect that is described below the table |
| ✗ | they are rejected, with a message that says what to write instead |

A capability that an adapter or a database doesn't have is not in its table. On SQLite, which has no
partitions, a model that declares them gets an ordinary table.
"""

EXAMPLE: Final = {
    "declared": "Stored(3600)",
    "model": "Cart",
    "parent": "carts",
    "root": "Cart",
    "tables": "items",
}
"""What stands for the names in a message."""

SUBJECTS: Final = {
    ("sqlalchemy", "follows", "database_sweep"): "the table ",
    ("sqlalchemy", "partitions", "database_sweep"): "sweep='database' ",
    ("sqlalchemy", "database_sweep", "hooks"): "sweep='database' ",
    ("sqlalchemy", "database_sweep", "orm"): "sweep='database' ",
    ("beanie", "follows", "view"): "a view ",
}
"""What the sentence of a message begins with, where its reason is the rest of it."""

CODE: Final = re.compile(r"(?:\w+\.)?__ttl\w*__(?: = (?:'\w+'|\w+\(\w+\)))?|\w+='\w+'|\w+\(\d+\)")
"""Parts of a message that are code."""


def page() -> str:
    """Return the page."""
    return "\n".join([PREFACE, *(section(adapter) for adapter in DATABASES)])


def section(adapter: Adapter) -> str:
    """Return what the page says of an adapter."""
    names = [name for name in CAPABILITIES if CAPABILITIES[name].databases_on(adapter)]
    lines = [
        line
        for row, first in enumerate(names)
        for second in names[row + 1 :]
        for line in combinations_of(adapter, first, second)
    ]
    title = NAMES[adapter]
    parts = [f"## {title}\n", *table(declared(adapter, names)), ""]
    parts += [*table(matrix(adapter, names)), ""]
    conditions = [line for line in lines if line.outcome == "conditional"]
    if conditions:
        parts += [f"### Conditions on {title}\n", *table(conditional(conditions)), ""]
    parts += [f"### Rejected on {title}\n"]
    parts += [*table(rejected(line for line in lines if line.outcome == "rejected")), ""]
    return "\n".join(parts)


def declared(adapter: Adapter, names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of capabilities."""
    yield "capability", "declared by", "databases"
    for name in names:
        capability = CAPABILITIES[name]
        databases = capability.databases_on(adapter)
        where = "all" if databases == DATABASES[adapter] else places(databases)
        link = f"[{capability.name}]({capability.page_on(adapter)}.md)"
        yield link, capability.declared[adapter], where


def matrix(adapter: Adapter, names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of pairs, with each pair once."""
    yield "", *(CAPABILITIES[name].name for name in names[1:])
    for row, first in enumerate(names[:-1]):
        cells = [mark(combinations_of(adapter, first, second)) for second in names[row + 1 :]]
        yield CAPABILITIES[first].name, *[""] * row, *cells


def mark(lines: Iterable[Combination]) -> str:
    """Return the mark of a pair: the worst, if databases differ."""
    outcomes = [line.outcome for line in lines]
    return MARKS[max(outcomes, key=[*MARKS].index)]


def conditional(lines: Iterable[Combination]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of conditions."""
    yield "pair", "condition or effect"
    for line in lines:
        where = f"{places(line.databases)}: " if line.databases else ""
        yield pair(line), where + line.condition


def rejected(lines: Iterable[Combination]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of rejections."""
    yield "pair", "why", "instead"
    for line in lines:
        names = {**EXAMPLE, "name": CAPABILITIES[line.second].attribute or "__ttl_purge__"}
        subject = SUBJECTS.get((line.adapter, line.first, line.second), "")
        advice = f" {line.advice}" if line.advice else ""
        yield (
            pair(line),
            sentence(subject + line.reason_for(**names)),
            sentence(line.instead_for(**names)) + advice,
        )


def pair(line: Combination) -> str:
    """Return the names of both capabilities."""
    return f"{CAPABILITIES[line.first].name}, {CAPABILITIES[line.second].name}"


def places(databases: Sequence[str]) -> str:
    """Return the names of databases."""
    return ", ".join(NAMES[database] for database in databases)


def sentence(text: str) -> str:
    """Return part of a message as a sentence of Markdown."""
    marked = CODE.sub(lambda found: f"`{found[0]}`", text)
    return f"{marked[0].upper()}{marked[1:]}."


def table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, whose first row is its head."""
    for number, row in enumerate(rows):
        yield f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |")
        if number == 0:
            yield f"|{' --- |' * len(row)}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
