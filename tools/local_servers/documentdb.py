"""A private documentdb, the engine of Azure Cosmos DB for MongoDB (vCore), behind our gateway.

The engine is an extension of PostgreSQL 18, which comes out of Debian's unstable suite, and what
answers MongoDB's clients is `tools/documentdb_gateway.py`. The engine's own jobs don't run: once a
minute one would take the expired documents that a test has just put there.

It is started in the place of MongoDB where somebody asks for it, never by itself: two servers can't
have one variable.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers import mongodb, postgres
from local_servers.kind import ADDRESS, Kind, free_port
from local_servers.suites import Suite

if TYPE_CHECKING:
    from local_servers.children import Children

_POSTGRES = "usr/lib/postgresql/18"
_EXTENSIONS = "usr/share/postgresql/18/extension"

SUITE = Suite(
    "sid",
    ("postgresql-18-documentdb", "postgresql-18", "postgresql-18-cron"),
    (("initdb", f"{_POSTGRES}/bin/initdb"), ("postgres", f"{_POSTGRES}/bin/postgres")),
    libraries=(f"{_POSTGRES}/lib",),
    links=((f"{_EXTENSIONS}/postgis.control", "postgis-3.control"),),
)

_SETTINGS = {
    "timezone": "UTC",  # the engine's $$NOW is wrong in others
    "shared_preload_libraries": "pg_cron,pg_documentdb_core,pg_documentdb",
    "cron.database_name": "ttl_odm",
    "cron.launch_active_jobs": "off",
    "documentdb.bg_worker_database_name": "ttl_odm",
    "documentdb.enableBackgroundWorkerJobs": "off",
}
_GATEWAY = Path(__file__).resolve().parents[1] / "documentdb_gateway.py"


def find() -> dict[str, str] | None:
    """Find the downloaded engine, and a Python with what the gateway needs."""
    programs, python = SUITE.find(), mongodb.python_with("bson", "psycopg")
    return {**programs, "python": python} if programs and python else None


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start the engine, and the gateway once it answers."""
    url = postgres.start_with(programs, folder, children, _SETTINGS)
    port = free_port()
    gateway = children.start(
        [programs["python"], str(_GATEWAY), url, str(port)], log=folder / "gateway.log"
    )
    gateway.wait_until(lambda: _listens(port))
    return f"mongodb://{ADDRESS}:{port}/"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


DOCUMENTDB = Kind(
    name="documentdb",
    title="documentdb",
    variable="TTL_ODM_TEST_MONGODB_URL",
    packages=lambda: (),
    remedy="run 'python3 tools/dev.py env' (it brings what the gateway needs)",
    find=find,
    start=start,
    suite=SUITE,
)
