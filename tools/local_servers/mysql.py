"""A private MySQL: no password, utf8mb4, a time zone that is not UTC, nothing safe on disk.

No stable Debian has it, so it comes out of the unstable suite unless one is on PATH. What is called
`mysqld` there may be MariaDB's, which goes by both names.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers.children import make_folder, unprivileged_account
from local_servers.kind import ADDRESS, NAME, Kind, free_port, is_durable
from local_servers.mariadb import FIRST_STATEMENTS, REPLICATION, SBIN, greets
from local_servers.suites import Suite

if TYPE_CHECKING:
    from local_servers.children import Children

SUITE = Suite("sid", ("mysql-server-core",), (("mysqld", "usr/sbin/mysqld"),))

_SETTINGS = (
    f"--bind-address={ADDRESS}",
    "--mysqlx=OFF",
    "--secure-file-priv=NULL",
    "--max-connections=200",
    "--character-set-server=utf8mb4",
    "--default-time-zone=+03:00",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--innodb-buffer-pool-size=128M",
    # Its own figures of itself take 200 MB, and nobody reads them here.
    "--performance-schema-max-table-instances=400",
)
_HASTE = (
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--skip-innodb-doublewrite",
)


def find() -> dict[str, str] | None:
    """Find a mysqld of MySQL that runs: on PATH, in sbin, or downloaded before."""
    on_path = shutil.which("mysqld") or shutil.which("mysqld", path=SBIN)
    if on_path is not None and _is_mysql(on_path):
        return {"mysqld": on_path}
    downloaded = SUITE.find()
    return downloaded if downloaded and _is_mysql(downloaded["mysqld"]) else None


def _is_mysql(program: str) -> bool:
    """Ask a mysqld whose it is."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return answer.returncode == 0 and "MariaDB" not in answer.stdout


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start a server with a user and a database that are both called ttl_odm."""
    account = unprivileged_account("mysql")
    data = make_folder(folder / "data", account)
    first = [*begin(programs, data), *(() if is_durable() else _HASTE)]
    install(first, folder, children)
    statements = folder / "first.sql"
    statements.write_text(FIRST_STATEMENTS)
    port = free_port()
    server = children.start(
        [
            *(*first, *at_port(port), f"--init-file={statements}"),
            *(() if is_durable() else REPLICATION),
        ],
        log=folder / "server.log",
        account=account,
    )
    server.wait_until(lambda: greets(port))
    return f"mysql://{NAME}@{ADDRESS}:{port}/{NAME}"


def begin(programs: dict[str, str], data: Path) -> list[str]:
    """The words that start a server on its files, or make these."""
    program = Path(programs["mysqld"])
    return [
        *(str(program), "--no-defaults", f"--datadir={data}"),
        *(f"--basedir={program.parent.parent}", *_SETTINGS),
    ]


def install(first: list[str], folder: Path, children: Children) -> None:
    """Make a server's first files.

    Args:
        first: what `begin` returned, perhaps with more settings.
        folder: for the log.
        children: what runs it.
    """
    children.run(
        [*first, "--initialize-insecure"],
        log=folder / "install.log",
        account=unprivileged_account("mysql"),
    )


def at_port(port: int) -> list[str]:
    """The further words of a server that clients are to reach."""
    return [
        f"--port={port}",
        # Relative to the data folder: a full path may be too long for a socket's name.
        *("--socket=mysql.sock", "--pid-file=mysql.pid"),
        # Not where the files are made: what ends like that can't be begun from.
        "--innodb-fast-shutdown=2",
    ]


MYSQL = Kind(
    name="mysql",
    title="MySQL",
    variable="TTL_ODM_TEST_MYSQL_URL",
    packages=lambda: (),
    remedy="put mysqld 8.0.16 or newer on PATH",
    find=find,
    start=start,
    suite=SUITE,
    wanted="TTL_ODM_TEST_MYSQL",
)
