"""The engines that docs/engines.md tells of: the one list of them.

Where Debian has a version, it comes from that suite, whatever the machine itself has installed: so
the page says the same wherever it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from local_servers.documentdb import DOCUMENTDB
from local_servers.galera import GALERA
from local_servers.mariadb import MARIADB
from local_servers.mariadb import suite as mariadb_suite
from local_servers.mongodb import MONGODB
from local_servers.mysql import MYSQL
from local_servers.mysql import SUITE as MYSQL_SUITE
from local_servers.postgres import POSTGRES
from local_servers.suites import Suite

if TYPE_CHECKING:
    from local_servers.kind import Kind

_SQL = (("tests/contract",), ("tests/migrations", "tests/leaks"))
_CLUSTER = (("tests/contract",), ("tests/engines/two_nodes.py", "tests/leaks"))
_MONGODB = (("tests/contract",), ("tests/leaks_mongo",))


@dataclass(frozen=True)
class Engine:
    """One version of one engine.

    Attributes:
        name: what `--only` calls it.
        title: what people call it.
        version: how the version that the server tells has to begin.
        source: where it comes from, in words.
        database: which of the tests' databases it is asked as.
        kind: how it is started; None where there is nothing to start.
        runs: what pytest gets, for each of the runs that go on side by side.
    """

    name: str
    title: str
    version: str
    source: str
    database: str
    kind: Kind | None
    runs: tuple[tuple[str, ...], ...] = _SQL


def _out_of(kind: Kind, suite: Suite) -> Kind:
    """A kind that comes from a suite, and from nowhere else."""
    return replace(kind, packages=lambda: (), find=suite.find, suite=suite, wanted="")


def _postgres(version: str, suite: str) -> Engine:
    folder = f"usr/lib/postgresql/{version}/bin"
    programs = tuple((name, f"{folder}/{name}") for name in ("initdb", "postgres"))
    kind = _out_of(POSTGRES, Suite(suite, (f"postgresql-{version}",), programs))
    name = f"postgres-{version}"
    return Engine(name, "PostgreSQL", version, f"Debian's {suite}", "postgres", kind)


def _mariadb(version: str, suite: str) -> Engine:
    kind = _out_of(MARIADB, mariadb_suite(suite))
    return Engine(f"mariadb-{version}", "MariaDB", version, f"Debian's {suite}", "mariadb", kind)


ENGINES = (
    Engine("sqlite", "SQLite", "3", "Python", "sqlite", None),
    _postgres("15", "bookworm"),
    _postgres("17", "trixie"),
    _postgres("18", "forky"),
    _mariadb("10.11", "bookworm"),
    _mariadb("11.8", "trixie"),
    Engine(
        "galera",
        "Galera, a cluster of MariaDB",
        "11.8",
        "Debian's trixie",
        "mariadb",
        GALERA,
        _CLUSTER,
    ),
    Engine("mysql-9", "MySQL", "9", "Debian's sid", "mysql", _out_of(MYSQL, MYSQL_SUITE)),
    Engine("mongodb-6", "MongoDB", "6.0", "a wheel on PyPI", "mongodb", MONGODB, _MONGODB),
    Engine(
        "documentdb",
        "documentdb 1.0, the engine of Azure Cosmos DB for MongoDB (vCore), as MongoDB",
        "",
        "Debian's sid, behind the tests' own gateway",
        "mongodb",
        DOCUMENTDB,
        (("tests/contract",),),
    ),
)
NAMES = tuple(engine.name for engine in ENGINES)

NOT_AVAILABLE = {
    "PostgreSQL 14 and 16, MariaDB 10.6 and 11.4": "no longer in any Debian suite",
    "MySQL 8.0 and 8.4": "in no Debian suite; unstable has only the newest version",
    "MongoDB 7.0 and 8.0": "in no Debian suite, and in no wheel",
    "Azure Cosmos DB itself": "it exists only as a service",
    "The leak matrix on documentdb": "it needs collations, time series and `dbHash`, "
    "which that engine doesn't have",
}
"""What somebody may miss, and why it isn't asked."""
