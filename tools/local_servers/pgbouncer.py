"""PgBouncer in front of a private PostgreSQL, with one database in each of its modes.

`ttl_odm` is in transaction mode, `ttl_odm_session` and `ttl_odm_statement` are the same database in
the other two. In transaction mode there are two sessions of the server, which take turns.
"""

from __future__ import annotations

import shutil
import signal
import socket
from typing import TYPE_CHECKING

from local_servers import postgres
from local_servers.children import unprivileged_account
from local_servers.kind import ADDRESS, NAME, Kind, free_port
from local_servers.suites import Suite

if TYPE_CHECKING:
    from pathlib import Path

    from local_servers.children import Children

SUITE = Suite("trixie", ("pgbouncer",), (("pgbouncer", "usr/sbin/pgbouncer"),))

_DATABASES = {
    NAME: "pool_mode=transaction pool_size=2",
    f"{NAME}_session": "pool_mode=session",
    f"{NAME}_statement": "pool_mode=statement",
}
_SBIN = "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin"


def find() -> dict[str, str] | None:
    """Find the programs of PostgreSQL, and PgBouncer: installed, or downloaded before."""
    programs, installed = postgres.find(), shutil.which("pgbouncer", path=_SBIN)
    pooler = {"pgbouncer": installed} if installed else SUITE.find()
    return None if programs is None or pooler is None else {**programs, **pooler}


def packages() -> tuple[str, ...]:
    """Debian's of PostgreSQL, if it is missing; PgBouncer's would start a service."""
    return () if postgres.find() else postgres.POSTGRES.packages()


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start both, and return the URL of the database in transaction mode."""
    server = free_port()
    postgres.create(programs, folder, children)
    postgres.launch(programs, folder, children, server, {})
    port = free_port()
    target = f"host={ADDRESS} port={server} dbname={NAME} user={NAME}"
    settings = {
        "listen_addr": ADDRESS,
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "server_round_robin": 1,
    }
    lines = [
        "[databases]",
        *(f"{name} = {target} {options}" for name, options in _DATABASES.items()),
        "[pgbouncer]",
        *(f"{name} = {value}" for name, value in settings.items()),
    ]
    file = folder / "pgbouncer.ini"
    file.write_text("\n".join(lines) + "\n")
    pooler = children.start(
        [programs["pgbouncer"], str(file)],
        log=folder / "pgbouncer.log",
        account=unprivileged_account("postgres"),
        stop_signal=signal.SIGQUIT,  # SIGTERM would wait until every client has gone.
    )
    pooler.wait_until(lambda: _listens(port))
    return postgres.url_of(port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


PGBOUNCER = Kind(
    name="pgbouncer",
    title="PgBouncer",
    variable="TTL_ODM_TEST_PGBOUNCER_URL",
    packages=packages,
    remedy="install PgBouncer 1.21 or newer, and PostgreSQL",
    find=find,
    start=start,
    suite=SUITE,
)
