"""A plugin of pytest that counts for docs/engines.md: `-p tests.engines.verdicts --verdicts FILE`.

Only tests that talk to a database are run. For each suite (a folder of tests) the file gets how
many cases are right, wrong, and can't be asked, with the reasons; which drivers took part; and what
the server and the libraries say of their versions.
"""

from __future__ import annotations

import json
import platform
import sqlite3
from collections import Counter
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.backends import SQLITE, VARIABLES, database_of, fresh, server_url, sync_backends

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

RIGHT, WRONG, NOT_ASKED = "right", "wrong", "not asked"
IMPOSSIBLE = "impossible"
"""The property of a test that found a question to be impossible; its value is the reason."""

_OF_SQLITE = {"backend": "sqlite3", "async_backend": "aiosqlite"}
"""The fixtures with a database, and what reaches SQLite by them."""

_LIBRARIES = ("sqlalchemy", "alembic", "django", "beanie")
_DISTRIBUTIONS = {
    "psycopg2": "psycopg2-binary",
    "mysqldb": "mysqlclient",
    "mysqlconnector": "mysql-connector-python",
    "mariadbconnector": "mariadb",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --verdicts."""
    parser.addoption("--verdicts", type=Path, required=True, help="the file to write")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.pluginmanager.register(_Counter(config.getoption("--verdicts")))


class _Counter:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._verdicts: dict[str, str] = {}
        self._reasons: dict[str, Counter[str]] = {}
        self._databases: set[str] = set()
        self._drivers: dict[str, None] = {}

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what no engine has a say in, and remember what talks to which."""
        needed = {item: set(_databases(item)) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not needed[item]])
        items[:] = [item for item in items if needed[item]]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """By now `--only` has left the other databases out."""
        for item in session.items:
            self._databases |= set(_databases(item))
            self._drivers |= dict.fromkeys(_drivers(item))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the worst of a test's phases."""
        before = self._verdicts.get(report.nodeid, RIGHT)
        properties = dict(report.user_properties)
        verdict, reason = RIGHT, ""
        if report.failed:
            verdict = WRONG
        elif report.skipped:
            verdict, reason = NOT_ASKED, str(report.longrepr[-1]).removeprefix("Skipped: ")  # type: ignore[index]
        elif report.when == "call" and IMPOSSIBLE in properties:
            verdict, reason = NOT_ASKED, str(properties[IMPOSSIBLE])
        if reason:
            self._reasons.setdefault(_suite(report.nodeid), Counter())[reason] += 1
        self._verdicts[report.nodeid] = max(verdict, before, key=_SEVERITY.index)

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        suites: dict[str, Counter[str]] = {}
        for name, verdict in self._verdicts.items():
            suites.setdefault(_suite(name), Counter())[verdict] += 1
        answer = {
            "suites": suites,
            "reasons": self._reasons,
            "drivers": [_with_version(name) for name in self._drivers],
            "server": "".join(server_version(name) for name in sorted(self._databases)),
            "libraries": [f"Python {platform.python_version()}", *map(_with_version, _LIBRARIES)],
        }
        self._file.write_text(json.dumps(answer))


_SEVERITY = (RIGHT, NOT_ASKED, WRONG)


def _suite(nodeid: str) -> str:
    """The folder, of which MongoDB has another one for some."""
    return nodeid.split("/")[1].removesuffix("_mongo")


def _databases(item: pytest.Item) -> Iterator[str]:
    fixtures = getattr(item, "fixturenames", ())
    yield from (name for name in VARIABLES if f"{name}_url" in fixtures)
    yield from (database_of(name) for _, name in _backends(item))


def _drivers(item: pytest.Item) -> Iterator[str]:
    if "mongodb_url" in getattr(item, "fixturenames", ()):
        yield "pymongo"
    for fixture, name in _backends(item):
        yield name.partition("-")[2] or _OF_SQLITE[fixture]


def _backends(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """The backends that a test gets, and by which fixtures."""
    parameters: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    yield from ((name, parameters[name]) for name in _OF_SQLITE if name in parameters)


@cache
def _with_version(name: str) -> str:
    """A driver or a library, as people write it."""
    try:
        return f"{name} {version(_DISTRIBUTIONS.get(name, name))}"
    except PackageNotFoundError:
        return name


def server_version(database: str) -> str:
    """What the server says of its version, in numbers."""
    if database == SQLITE:
        return sqlite3.sqlite_version
    if database == "mongodb":
        from pymongo import MongoClient

        with MongoClient[dict[str, object]](server_url(database)) as client:
            return str(client.server_info()["version"])
    from tests.contract.raw_tables import RawTables

    (name,) = sync_backends([database])
    with fresh(name, Path()) as backend:
        tables = RawTables(backend)
        try:
            return tables.server()
        finally:
            tables.engine.dispose()
