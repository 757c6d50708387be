"""A private MariaDB: no password, utf8mb4, a time zone that is not UTC, nothing safe on disk."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers.children import make_folder, unprivileged_account
from local_servers.kind import ADDRESS, NAME, Kind, free_port, is_durable
from local_servers.suites import Suite

if TYPE_CHECKING:
    from local_servers.children import Children

SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROTOCOL_VERSION = 10  # The first byte of the greeting; 255 stands there for an error.

REPLICATION = (
    "--log-bin=log",
    "--binlog-format=ROW",
    "--sync-binlog=0",
    # What a replica sees of the sweeper is tested, in this database; the others write no log. A
    # Galera cluster, which begins its servers in the same way, would leave out what isn't logged.
    f"--binlog-do-db={NAME}_replicated",
    "--log-bin-trust-function-creators=1",
)

_SETTINGS = (
    f"--bind-address={ADDRESS}",
    "--max-connections=200",
    "--character-set-server=utf8mb4",
    "--default-time-zone=+03:00",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--innodb-buffer-pool-size=128M",
    "--innodb-fast-shutdown=2",
)
_HASTE = (
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--skip-innodb-doublewrite",
)

_HELPERS = ("mariadb", "mariadb-install-db", "my_print_defaults", "resolveip")

# The user may do everything, so that tests can make databases and users of their own.
FIRST_STATEMENTS = f"""\
CREATE DATABASE {NAME};
CREATE USER '{NAME}'@'%';
GRANT ALL PRIVILEGES ON *.* TO '{NAME}'@'%' WITH GRANT OPTION;
"""


def suite(name: str, *packages: str) -> Suite:
    """What of another Debian suite has a server, and makes its first tables.

    Args:
        name: the suite's.
        packages: what else is wanted of it.
    """
    helpers = tuple((word, f"usr/bin/{word}") for word in _HELPERS)
    first = ("mariadb-server-core", "mariadb-client-core")
    return Suite(name, (*first, *packages), (("mariadbd", "usr/sbin/mariadbd"), *helpers))


SUITE = suite("trixie")


def find() -> dict[str, str] | None:
    """Find mariadbd and the script that makes its first tables: installed, or downloaded before.

    Debian keeps mariadbd in sbin.
    """
    programs = {}
    for name in ("mariadbd", "mariadb-install-db", "mariadb"):
        program = shutil.which(name) or shutil.which(name, path=SBIN)
        if program is None:
            return SUITE.find()
        programs[name] = program
    return programs


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start a server with a user and a database that are both called ttl_odm."""
    account = unprivileged_account("mysql")
    data = make_folder(folder / "data", account)
    install(programs, data, children)
    statements = folder / "first.sql"
    statements.write_text(FIRST_STATEMENTS)
    port = free_port()
    server = children.start(
        [
            *(*begin(programs, data, port), f"--init-file={statements}"),
            *(() if is_durable() else REPLICATION),
        ],
        log=folder / "server.log",
        account=account,
    )
    server.wait_until(lambda: greets(port))
    return f"mysql://{NAME}@{ADDRESS}:{port}/{NAME}"


def install(programs: dict[str, str], data: Path, children: Children) -> None:
    """Make a server's first tables."""
    # The script can't do with a space in this path. It works in the folder of its log.
    link = data.parent / "base"
    link.symlink_to(_basedir(programs))
    children.run(
        [
            *(programs["mariadb-install-db"], "--no-defaults", f"--datadir={data}"),
            *(
                f"--basedir={link.name}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ),
            *("--skip-name-resolve", "--innodb-flush-method=nosync"),
        ],
        log=data.parent / "install.log",
        account=unprivileged_account("mysql"),
    )


def begin(programs: dict[str, str], data: Path, port: int) -> list[str]:
    """The words that start a server on its files."""
    return [
        *(programs["mariadbd"], "--no-defaults", f"--basedir={_basedir(programs)}"),
        # In a folder that servers share, one that starts takes away what others have there.
        *(f"--datadir={data}", f"--tmpdir={data}", f"--port={port}"),
        # Relative to the data folder: a full path may be too long for a socket's name.
        *("--socket=mariadb.sock", "--pid-file=mariadb.pid"),
        *(*_SETTINGS, *(() if is_durable() else _HASTE)),
    ]


def _basedir(programs: dict[str, str]) -> Path:
    """Return the folder of a server's own files: /usr, or where it was unpacked."""
    return Path(programs["mariadbd"]).resolve().parent.parent


def greets(port: int) -> bool:
    """Tell whether the server greets a client; it runs its first statements before that."""
    try:
        with socket.create_connection((ADDRESS, port), timeout=1) as connection:
            greeting = connection.recv(5)
    except OSError:
        return False
    return len(greeting) == 5 and greeting[4] == _PROTOCOL_VERSION  # noqa: PLR2004 - header + 1


MARIADB = Kind(
    name="mariadb",
    title="MariaDB",
    variable="TTL_ODM_TEST_MARIADB_URL",
    packages=lambda: ("mariadb-server-core", "mariadb-client-core"),
    remedy="install MariaDB 10.6 or newer (mariadbd and mariadb-install-db)",
    find=find,
    start=start,
    suite=SUITE,
)
