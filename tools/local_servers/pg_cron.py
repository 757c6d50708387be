"""A private PostgreSQL that has pg_cron, whose jobs run in its database `ttl_odm`.

It is the machine's PostgreSQL if pg_cron is installed beside it, and Debian's otherwise. The tests
of `sweep="database"` start it for themselves: a server reads what it loads when it starts, and no
other test is to have a scheduler beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from local_servers import postgres
from local_servers.kind import ADDRESS, NAME, Kind
from local_servers.suites import Suite

if TYPE_CHECKING:
    from local_servers.children import Children

_BIN = "usr/lib/postgresql/17/bin"
SUITE = Suite(
    "trixie",
    ("postgresql-17-cron", "postgresql-17"),
    (("initdb", f"{_BIN}/initdb"), ("postgres", f"{_BIN}/postgres")),
)

_SETTINGS = {
    "shared_preload_libraries": "pg_cron",
    "cron.database_name": NAME,
    "cron.host": ADDRESS,  # there is no socket
}


def find() -> dict[str, str] | None:
    """Find the programs of a PostgreSQL with pg_cron: installed, or downloaded before."""
    programs = postgres.find()
    if programs is None or not any(_libraries(Path(programs["postgres"]).parents[1])):
        return SUITE.find()
    return programs


def _libraries(folder: Path) -> list[Path]:
    """Where Debian has it, and where those who build PostgreSQL themselves have it."""
    places = (folder / "lib" / "pg_cron.so", folder / "lib" / "postgresql" / "pg_cron.so")
    return [place for place in places if place.exists()]


def packages() -> tuple[str, ...]:
    """Debian's, for the PostgreSQL that is here."""
    programs = postgres.find()
    version = "" if programs is None else Path(programs["postgres"]).parents[1].name
    return (f"postgresql-{version}-cron",) if version.isdecimal() else ()


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start it; the extension is for whoever needs it to create."""
    return postgres.start_with(programs, folder, children, _SETTINGS)


PG_CRON = Kind(
    name="pg-cron",
    title="pg_cron",
    variable="TTL_ODM_TEST_PG_CRON_URL",
    packages=packages,
    remedy="install pg_cron 1.4 or newer beside PostgreSQL (Debian: postgresql-15-cron), leave it "
    "out by TTL_ODM_TEST_PG_CRON=none",
    find=find,
    start=start,
    suite=SUITE,
)
