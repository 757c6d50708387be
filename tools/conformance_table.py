"""What was measured of the contract, and how it reads as Markdown: docs/conformance.md.

A run is what `tests.contract.run` prints. Nothing here runs anything; `tools/conformance.py` does.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

Run = dict[str, Any]

RIGHT, WRONG, NOT_APPLICABLE = "right", "wrong", "n/a"
MARKS = {RIGHT: "✓", WRONG: "✗", NOT_APPLICABLE: "n/a"}
VERSIONS = "## Versions\n"
COLUMNS = {
    "SQLAlchemy, SQLite": "SQLite",
    "SQLAlchemy, PostgreSQL": "PostgreSQL",
    "SQLAlchemy, MariaDB": "MariaDB",
    "SQLAlchemy, MySQL": "MySQL",
    "Beanie, MongoDB": "MongoDB",
    "Django, SQLite": "Django, SQLite",
    "Django, PostgreSQL": "Django, PostgreSQL",
    "Django, MariaDB": "Django, MariaDB",
    "Django, MySQL": "Django, MySQL",
}

KINDS = {
    "When a row expires": (
        "The truth table",
        "The instant of expiry",
        "Whose clock",
        "Precision",
    ),
    "What reads and writes see": (
        "Writes start the lifetime again",
        "Expired rows don't exist",
        "Keys of expired rows",
        "What is stored",
        "Removing a ttl",
    ),
    "Deleting": ("Sweeping", "TTL indexes"),
    "Values of a ttl": (
        "Values of the default",
        "Changes of the default",
        "Values of a row's own ttl, checked",
        "Values of a row's own ttl, stored as given",
    ),
    "Policies over existing fields": (
        "`TTL` over fields that exist",
        "`ExpireAfter`: a date and a number of seconds",
        "`ExpireAt`: the instant itself",
        "What can't be declared",
    ),
}
"""Which rules are of one kind."""
ADAPTERS = ("SQLAlchemy", "Beanie", "Django")

PREFACE = """# Conformance

<!-- Written by: python3 tools/conformance.py --write docs/conformance.md. Don't edit: change the \
cases. -->

**{summary}**

Right answers by kind, of those that apply, over all databases of an adapter:

{kinds}
The contract as named cases, each written once (`tests/contract/cases_*.py`) and run on every
backend. A case says where its rule comes from:

{origins}

| column | what is asked |
| --- | --- |
| SQLite | SQLAlchemy through sqlite3, and asynchronously through aiosqlite |
| PostgreSQL | SQLAlchemy through psycopg, psycopg2, pg8000; asynchronously psycopg, asyncpg |
| MariaDB, MySQL | SQLAlchemy through PyMySQL, mysql-connector; asynchronously aiomysql, asyncmy |
| MongoDB | Beanie through PyMongo's asynchronous API; Beanie 1.30 through Motor |
| Django, ... | Django's ORM on that database |

✓: all drivers answer as the case says, with the newest libraries and with the oldest that are
supported. ✗: one doesn't. n/a: it doesn't apply there. Numbers lead to the reasons.

What a case sets up, it sets up past the library: rows are written and read by other means, and for
the very instant of expiry the *database's* clock is stopped (on MongoDB: `$$NOW` is given with each
command), so that a wrong library can't agree with itself. "Every way to read" and "every way to
write" are lists in `tests/contract/on_*.py`; [where expired rows leak](leaks.md) has hundreds more.
Each run of the tests runs all cases and compares this document with them
(`tests/contract/test_contract.py`).
"""


def document(runs: list[Run]) -> str:
    """Write the document of one or more runs of the same cases."""
    first = runs[0]
    verdicts = _together(runs)
    parts = [
        PREFACE.format(
            summary=summary(runs),
            kinds=_kinds_table(first, verdicts),
            origins="".join(f"- [{origin['name']}]\n" for origin in first["origins"]),
        ).replace("\n\n\n", "\n\n"),
        "\n## By rule\n\nCases that are right; where some are wrong, of how many (`7 / 9`):\n\n",
        _summary_table(first, verdicts),
    ]
    for rule, says in first["rules"].items():
        parts.append(f"\n## {rule}\n\n{says}\n\n")
        parts.append(_rule_table(first, rule, verdicts))
    parts.append("\n")
    parts += [f"[{origin['name']}]: {origin['url']}\n" for origin in first["origins"]]
    parts.append(f"\n{VERSIONS}\n")
    parts += [f"- {_versions(run)}\n" for run in runs if "versions" in run]
    return "".join(parts)


def summary(runs: list[Run]) -> str:
    """How many verdicts there are of each kind, in a line."""
    counts = Counter(verdict for by in _together(runs).values() for verdict in by.values())
    return (
        f"{len(runs[0]['cases'])} cases on {len(COLUMNS)} backends: {counts[RIGHT]} right, "
        f"{counts[WRONG]} wrong, {counts[NOT_APPLICABLE]} not applicable."
    )


def without_versions(text: str) -> str:
    """The document without its last section, which is another one on each machine."""
    return text.partition(VERSIONS)[0]


def _together(runs: list[Run]) -> dict[str, dict[str, str]]:
    """One verdict of all runs for each case and column: wrong, if it is wrong in any."""
    found: dict[str, dict[str, str]] = {}
    for case, columns in runs[0]["verdicts"].items():
        found[case] = {
            column: WRONG if WRONG in {run["verdicts"][case][column] for run in runs} else verdict
            for column, verdict in columns.items()
        }
    return found


def _kinds_table(run: Run, verdicts: dict[str, dict[str, str]]) -> str:
    if left_out := set(run["rules"]) ^ {rule for rules in KINDS.values() for rule in rules}:
        raise ValueError(f"of no kind, or without cases: {', '.join(sorted(left_out))}")
    rows = []
    for kind, rules in KINDS.items():
        cases = [case["name"] for case in run["cases"] if case["rule"] in rules]
        cells = []
        for adapter in ADAPTERS:
            columns = [column for column in COLUMNS if column.startswith(adapter)]
            counts = Counter(verdicts[case][column] for case in cases for column in columns)
            asked = counts[RIGHT] + counts[WRONG]
            cells.append(f"{counts[RIGHT]} / {asked}" if asked else MARKS[NOT_APPLICABLE])
        rows.append([kind, str(len(cases)), *cells])
    return _table(["kind", "cases", *ADAPTERS], rows)


def _summary_table(run: Run, verdicts: dict[str, dict[str, str]]) -> str:
    rows = []
    for rule in run["rules"]:
        cases = [case["name"] for case in run["cases"] if case["rule"] == rule]
        counts = [_count([verdicts[case][column] for case in cases]) for column in COLUMNS]
        rows.append([rule, str(len(cases)), *counts])
    total = [_count([by[column] for by in verdicts.values()]) for column in COLUMNS]
    rows.append(["**all**", str(len(run["cases"])), *total])
    return _table(["rule", "cases", *COLUMNS.values()], rows)


def _count(verdicts: list[str]) -> str:
    counts = Counter(verdicts)
    if counts[WRONG]:
        return f"{counts[RIGHT]} / {counts[RIGHT] + counts[WRONG]}"
    return str(counts[RIGHT] or MARKS[NOT_APPLICABLE])


def _rule_table(run: Run, rule: str, verdicts: dict[str, dict[str, str]]) -> str:
    reasons: list[str] = []
    rows = []
    for case in run["cases"]:
        if case["rule"] != rule:
            continue
        cells = []
        for column in COLUMNS:
            reason = case["reasons"].get(column)
            if reason and reason not in reasons:
                reasons.append(reason)
            verdict = verdicts[case["name"]][column]
            mark = MARKS[verdict]
            cells.append(f"{mark} ({reasons.index(reason) + 1})" if reason else mark)
        rows.append([case["name"], f"[{case['origin']}]", *cells])
    listed = "".join(f"{number}. {reason}\n" for number, reason in enumerate(reasons, 1))
    table = _table(["case", "origin", *COLUMNS.values()], rows)
    return table + (f"\nWhy not:\n\n{listed}" if listed else "")


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {version}" for name, version in run["versions"].items())


def _table(head: list[str], rows: list[list[str]]) -> str:
    sides = ["---", "---", *[":-:"] * (len(head) - 2)]
    lines = [head, sides, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
