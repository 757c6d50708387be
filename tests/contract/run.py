"""Run all cases on all backends and print the verdicts: `python -m tests.contract.run`.

tools/conformance.py makes docs/conformance.md of the JSON. `foretold` is the same without a run:
what the document has to say if no case surprises, which is what the tests see to.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import traceback
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from tests.backends import DATABASES, database_of
from tests.contract.backends import (
    BEANIE,
    DJANGO,
    DJANGO_STORED,
    SQLALCHEMY,
    SQLALCHEMY_ASYNC,
    SQLALCHEMY_STORED,
    SQLALCHEMY_VIEWS,
    Subjects,
    names,
)
from tests.contract.case import ORIGINS, Case
from tests.contract.cases import CASES, RULES
from tests.contract.raw_tables import NAMES

ADAPTERS = {
    SQLALCHEMY: "SQLAlchemy",
    SQLALCHEMY_ASYNC: "SQLAlchemy",
    SQLALCHEMY_STORED: "SQLAlchemy",
    SQLALCHEMY_VIEWS: "SQLAlchemy",
    BEANIE: "Beanie",
    DJANGO: "Django",
    DJANGO_STORED: "Django",
}
SERVERS = {**NAMES, "mongodb": "MongoDB"}
LIBRARIES = (
    *("sqlalchemy", "psycopg", "psycopg2-binary", "pg8000", "asyncpg"),
    *("aiosqlite", "pymysql", "mysqlclient", "mysql-connector-python", "mariadb"),
    *("aiomysql", "asyncmy"),
    *("beanie", "pymongo", "motor", "django"),
)
RIGHT, WRONG, NOT_APPLICABLE = "right", "wrong", "n/a"


def column_of(name: str) -> str:
    """The column of a subject's name in the document."""
    adapter, _, backend = name.partition(":")
    return f"{ADAPTERS[adapter]}, {SERVERS[database_of(backend)]}"


def of(adapter: str) -> pytest.MarkDecorator:
    """The cases that can be asked there; that the others can't, the document says with reasons."""
    asked = [case for case in CASES.values() if not case.reason_not_on(ADAPTERS[adapter])]
    return pytest.mark.parametrize("case", asked, ids=str)


def check(subjects: Subjects, adapter: str, backend: str, case: Case) -> None:
    reason = case.reason_not_on(column_of(f"{adapter}:{backend}"))
    if reason is not None:
        pytest.skip(reason)
    subject = subjects[f"{adapter}:{backend}"]
    subject.clear()
    case.check(subject)


def foretold() -> dict[str, Any]:
    """What a run gives that finds no surprise, but for the versions."""
    verdicts: dict[str, dict[str, str]] = {}
    for case in CASES.values():
        verdicts[case.name] = {
            column_of(name): _foretold(case, column_of(name)) for name in names(DATABASES)
        }
    return {
        "origins": [origin._asdict() for origin in ORIGINS],
        "rules": dict(RULES),
        "cases": [_described(case) for case in CASES.values()],
        "verdicts": verdicts,
    }


def _foretold(case: Case, column: str) -> str:
    return NOT_APPLICABLE if case.reason_not_on(column) else RIGHT


def _described(case: Case) -> dict[str, Any]:
    columns = map(column_of, names(DATABASES))
    reasons = {column: case.reason_not_on(column) for column in columns}
    return {
        "name": case.name,
        "rule": case.rule.name,
        "origin": case.origin.name,
        "reasons": {column: reason for column, reason in reasons.items() if reason},
    }


def measured(folder: Path) -> dict[str, Any]:
    """Run everything."""
    answer = foretold()
    servers, drivers = {}, {}
    subjects = Subjects(folder)
    try:
        for name in names(DATABASES):
            subject, column = subjects[name], column_of(name)
            servers[subject.database] = subject.server()
            if subject.driver not in drivers.setdefault(column, []):
                drivers[column].append(subject.driver)
            for case in CASES.values():
                if case.reason_not_on(column):
                    continue
                subject.clear()
                try:
                    case.check(subject)
                except (Exception, pytest.fail.Exception):  # noqa: BLE001 (it is a verdict)
                    answer["verdicts"][case.name][column] = WRONG
                    sys.stderr.write(f"{name}: {case.name}:\n{traceback.format_exc()}\n")
    finally:
        subjects.close()
    return {**answer, "drivers": drivers, "versions": _versions(servers)}


def _versions(servers: dict[str, str]) -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return {**found, **servers}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        sys.stdout.write(json.dumps(measured(Path(made))))
