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
from local_servers.kind import is_durable
from local_servers.mariadb import MARIADB
from local_servers.mongodb import MONGODB
from local_servers.postgres import POSTGRES
from terminal import say, undisturbed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from local_servers.kind import Kind

KINDS = (POSTGRES, MARIADB, MONGODB)
BACKENDS = ("sqlite", *(kind.name for kind in KINDS))

_OTHERS_MAY_ENTER = 0o001
_MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes the name
_MEMORY_NEEDED_BYTES = 4 * 1024**3  # The servers begin with half a GiB.


@contextlib.contextmanager
def running(only: Collection[str]) -> Iterator[dict[str, str]]:
    """Start the servers that are wanted, all at the same time, and stop them afterwards.

    Args:
        only: names out of `BACKENDS`; empty means all. A server whose environment variable is
            set already is used as it is, neither started nor stopped.

    Yields:
        The environment variables of the servers started here; and TMPDIR where these are in memory,
        for SQLite's files gain by it too.

    Raises:
        ServerError: a server could not be found or started.
    """
    wanted = [kind for kind in KINDS if _is_wanted(kind, only)]
    programs = _programs(wanted)
    children = Children()
    pool = ThreadPoolExecutor(max_workers=len(KINDS))
    folder = _open_folder() if wanted else None
    try:
        if folder is None:
            yield {}
        else:
            urls = _start_all(wanted, programs, folder, children, pool)
            yield {**urls, **_temporary_files_beside(folder)}
    finally:
        # First the processes, so that whoever still waits for one in the pool gives up.
        with undisturbed():
            children.stop_all()
            pool.shutdown()
            if folder is not None:
                shutil.rmtree(folder)
                say("servers: stopped")


def _is_wanted(kind: Kind, only: Collection[str]) -> bool:
    if only and kind.name not in only:
        return False
    if os.environ.get(kind.variable):
        say(f"servers: {kind.title} is yours ({kind.variable} is set)")
        return False
    return True


def _programs(wanted: list[Kind]) -> dict[str, dict[str, str]]:
    """Find the programs of every kind, installing those that are missing where we may."""
    packages = [package for kind in wanted if kind.find() is None for package in kind.packages()]
    if packages and debian.can_install():
        say(f"servers: installing {' '.join(packages)}")
        debian.install(packages)
    programs = {kind.name: kind.find() for kind in wanted}
    found = {name: paths for name, paths in programs.items() if paths is not None}
    absent = [
        f"{kind.title} is missing: {kind.remedy}, or start compose.yaml's or a server of yours "
        f"and export {kind.variable}"
        for kind in wanted
        if kind.name not in found
    ]
    if absent:
        raise ServerError("\n".join(absent))
    return found


def _open_folder() -> Path:
    """Make a temporary folder that servers running as other users can pass through."""
    for parent in _temporary_folders():
        path = parent.resolve()
        passable = all(step.stat().st_mode & _OTHERS_MAY_ENTER for step in (path, *path.parents))
        if passable or os.geteuid() != 0:
            folder = Path(tempfile.mkdtemp(prefix="ttl-odm-servers-", dir=path))
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
    wanted: list[Kind],
    programs: dict[str, dict[str, str]],
    folder: Path,
    children: Children,
    pool: ThreadPoolExecutor,
) -> dict[str, str]:
    def start(kind: Kind) -> str:
        began = time.monotonic()
        place = folder / kind.name
        place.mkdir(mode=0o711)
        try:
            url = kind.start(programs[kind.name], place, children)
        except ServerError as error:
            message = f"{kind.title} did not start: {error}"
            raise ServerError(message) from error
        say(f"servers: {kind.title} is ready after {time.monotonic() - began:.1f} s: {url}")
        return url

    futures = {kind: pool.submit(start, kind) for kind in wanted}
    finished, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
    for future in finished:
        future.result()
    return {kind.variable: future.result() for kind, future in futures.items()}
