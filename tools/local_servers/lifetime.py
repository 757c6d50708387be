"""From nothing to running servers and back: what is wanted, found, started, stopped, removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from local_servers import debian
from local_servers.children import Children, ServerError
from local_servers.documentdb import DOCUMENTDB
from local_servers.galera import GALERA
from local_servers.kind import Wanted, is_durable
from local_servers.mariadb import MARIADB
from local_servers.mariadb_replica import MARIADB_REPLICA
from local_servers.mongodb import MONGODB
from local_servers.mongodb_members import MONGODB_MEMBERS
from local_servers.mysql import MYSQL
from local_servers.mysql_group import MYSQL_GROUP, MYSQL_GROUP_MULTI
from local_servers.mysql_replica import MYSQL_REPLICA, MYSQL_REPLICA_STATEMENT
from local_servers.pgbouncer import PGBOUNCER
from local_servers.postgres import POSTGRES
from local_servers.postgres_standby import POSTGRES_STANDBY
from terminal import say, undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from local_servers.cluster import Cluster, ClusterKind
    from local_servers.kind import Kind

KINDS = (POSTGRES, MARIADB, MYSQL, MONGODB)
ON_REQUEST = (
    DOCUMENTDB,
    *(GALERA, MARIADB_REPLICA),
    *(MYSQL_GROUP, MYSQL_GROUP_MULTI, MYSQL_REPLICA, MYSQL_REPLICA_STATEMENT),
    *(MONGODB_MEMBERS, PGBOUNCER, POSTGRES_STANDBY),
)
"""Those that are started in another's place, and only if somebody names them."""
BACKENDS = ("sqlite", *(kind.name for kind in KINDS))

_OTHERS_MAY_ENTER = 0o001
_MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes the name
_MEMORY_NEEDED_BYTES = 4 * 1024**3  # The servers begin with half a GiB.


class Servers(dict[str, str]):
    """The environment variables of the servers that were started."""

    def __init__(self, children: Children) -> None:
        super().__init__()
        self._children = children

    def lost(self) -> list[str]:
        """Say which servers have ended by themselves, and the last lines of their logs."""
        return self._children.lost()


@contextlib.contextmanager
def running(only: Collection[str], tell: Callable[[str], None] = say) -> Iterator[Servers]:
    """Start the servers that are wanted, all at the same time, and stop them afterwards.

    Args:
        only: names out of `BACKENDS` or `ON_REQUEST`; empty means all of the first. A server whose
            environment variable is set already is used as it is, neither started nor stopped.
        tell: hears which servers are ready, and when they are stopped.

    Yields:
        What `started` yields.

    Raises:
        ServerError: a server could not be found or started.
    """
    with started(_wanted_kinds(only, tell), tell) as variables:
        yield variables


def find_all(only: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """Find the programs of the servers that are wanted, or install them.

    Args:
        only: as for `running`.

    Returns:
        The names of those that can be started; and the environment variables that say of the
        others that tests do without them.

    Raises:
        ServerError: one is missing that tests can't do without.
    """
    wanted = _wanted_kinds(only, say)
    with _plain_umask():
        programs = _programs(wanted)
    return [*programs], _without(wanted, programs)


def _wanted_kinds(only: Collection[str], tell: Callable[[str], None]) -> list[Kind]:
    return [kind for kind in (*KINDS, *ON_REQUEST) if _is_wanted(kind, only or BACKENDS, tell)]


def _without(wanted: list[Kind], there: Collection[str]) -> dict[str, str]:
    return {kind.wanted: Wanted.NONE.value for kind in wanted if kind.name not in there}


@contextlib.contextmanager
def started(wanted: list[Kind], tell: Callable[[str], None] = say) -> Iterator[Servers]:
    """Start servers of these kinds, all at the same time, and stop them afterwards.

    Args:
        wanted: the kinds.
        tell: hears which servers are ready, and when they are stopped.

    Yields:
        The environment variables of the servers started here; `none` for one that we may do
        without and could not have; and TMPDIR where the servers are in memory, for SQLite's files
        gain by it too.

    Raises:
        ServerError: a server could not be found or started.
    """
    with _plain_umask():
        programs = _programs(wanted)
    absent = _without(wanted, programs)
    found = {kind: programs[kind.name] for kind in wanted if kind.name in programs}
    children = Children()
    servers = Servers(children)
    servers.update(absent)
    pool = ThreadPoolExecutor(max_workers=max(1, len(found)))
    folder = open_folder() if found else None
    try:
        if folder is not None:
            with _plain_umask():
                urls = _start_all(found, folder, children, pool, tell)
                servers.update({**urls, **_temporary_files_beside(folder)})
        yield servers
    finally:
        # First the processes, so that whoever still waits for one in the pool gives up.
        with undisturbed():
            children.stop_all()
            pool.shutdown()
            if folder is not None:
                shutil.rmtree(folder)
                tell("servers: stopped")


@contextlib.contextmanager
def running_cluster(kind: ClusterKind) -> Iterator[Cluster]:
    """Start a cluster, and stop all of it afterwards.

    Yields:
        What kills, freezes and revives its members.

    Raises:
        ServerError: it could not be found, downloaded or started.
    """
    children = Children()
    folder = open_folder(kind.name)
    try:
        with _plain_umask():
            place = folder / kind.name
            place.mkdir(mode=0o711)
            cluster = kind.open(_programs([kind])[kind.name], place, children)
        yield cluster
    finally:
        with undisturbed():
            children.stop_all()
            shutil.rmtree(folder)


def _is_wanted(kind: Kind, only: Collection[str], tell: Callable[[str], None]) -> bool:
    if kind.name not in only:
        return False
    if os.environ.get(kind.variable):
        tell(f"servers: {kind.title} is yours ({kind.variable} is set)")
        return False
    return kind.how_wanted() is not Wanted.NONE


def left_out(only: Collection[str], urls: Mapping[str, str]) -> list[str]:
    """Say which servers a run did without that it would have used.

    Args:
        only: what `running` was given.
        urls: what `running` gave.
    """
    return [
        f"{kind.title} was NOT TESTED: "
        + (
            f"{kind.wanted}=none leaves it out"
            if kind.how_wanted() is Wanted.NONE
            else "it was not available (a line above, which begins with 'servers:', says why)"
        )
        for kind in KINDS
        if kind.wanted and (not only or kind.name in only)
        if {**os.environ, **urls}.get(kind.wanted) == Wanted.NONE.value
    ]


def _programs(wanted: list[Kind]) -> dict[str, dict[str, str]]:
    """Find the programs of every kind, installing those that are missing where we may."""
    packages = [package for kind in wanted if kind.find() is None for package in kind.packages()]
    if packages and debian.can_install():
        say(f"servers: installing {' '.join(packages)}")
        debian.install(packages)
    found, absent = {}, []
    for kind in wanted:
        reason = _bring(kind)
        programs = kind.find()
        if programs is not None:
            found[kind.name] = programs
            continue
        line = (
            f"{kind.title} is missing: {kind.remedy}, or start compose.yaml's or a server of yours "
            f"and export {kind.variable}{reason}"
        )
        if kind.how_wanted() is Wanted.IF_AVAILABLE:
            say(f"servers: {line}")
        else:
            absent.append(line)
    if absent:
        raise ServerError("\n".join(absent))
    return found


def _bring(kind: Kind) -> str:
    """Download what is not there, where another suite has it; return why that failed."""
    if kind.suite is None or kind.find() is not None:
        return ""
    try:
        kind.suite.bring()
    except ServerError as error:
        return f" ({error})"
    return ""


@contextlib.contextmanager
def _plain_umask() -> Iterator[None]:
    """Let files that we write be read by the users that the servers run as."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def open_folder(name: str = "servers") -> Path:
    """Make a temporary folder that servers running as other users can pass through."""
    for parent in _temporary_folders():
        path = parent.resolve()
        passable = all(step.stat().st_mode & _OTHERS_MAY_ENTER for step in (path, *path.parents))
        if passable or os.geteuid() != 0:
            folder = Path(tempfile.mkdtemp(prefix=f"ttl-odm-{name}-", dir=path))
            folder.chmod(0o711)
            return folder
    message = "no temporary folder is open to the users that the servers run as: set TMPDIR"
    raise ServerError(message)


def _temporary_folders() -> Iterator[Path]:
    """List where servers may keep their files, the best first, TMPDIR before all.

    Memory comes before disk: each test makes and drops databases of hundreds of files, and ext4
    is slow to use a file's place again (seen: 200 ms for a database, 12 ms in memory). Not where
    the price of writing to a disk is asked for.
    """
    may_choose = "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and not is_durable()
    if may_choose and shutil.disk_usage(_MEMORY).free >= _MEMORY_NEEDED_BYTES:
        yield _MEMORY
    yield Path(tempfile.gettempdir())
    yield Path("/var/tmp")  # noqa: S108 - mkdtemp makes the name


def _temporary_files_beside(folder: Path) -> dict[str, str]:
    """Make a temporary folder in that of the servers, if it is in memory."""
    if not folder.is_relative_to(_MEMORY):
        return {}
    place = folder / "tmp"
    place.mkdir(mode=0o711)
    return {"TMPDIR": str(place)}


def _start_all(
    found: dict[Kind, dict[str, str]],
    folder: Path,
    children: Children,
    pool: ThreadPoolExecutor,
    tell: Callable[[str], None],
) -> dict[str, str]:
    def start(kind: Kind) -> dict[str, str]:
        began = time.monotonic()
        place = folder / kind.name
        place.mkdir(mode=0o711)
        try:
            url = kind.start(found[kind], place, children)
        except ServerError as error:
            message = f"{kind.title} did not start: {error}"
            if kind.how_wanted() is Wanted.IF_AVAILABLE:
                say(f"servers: {message}")
                return {kind.wanted: Wanted.NONE.value}
            raise ServerError(message) from error
        tell(f"servers: {kind.title} is ready after {time.monotonic() - began:.1f} s: {url}")
        return {kind.variable: url}

    futures = {kind: pool.submit(start, kind) for kind in found}
    finished, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
    for future in finished:
        future.result()
    return {name: value for future in futures.values() for name, value in future.result().items()}
