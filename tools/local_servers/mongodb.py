"""A private mongod: a replica set of one, because transactions need a replica set.

mongod is in no Debian release. It comes from a PyPI wheel that the `dev` extra brings, or from
PATH. It runs as whoever runs us, root too: an environment under root's home is closed to others.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from typing import TYPE_CHECKING

from local_servers.children import make_folder
from local_servers.kind import ADDRESS, ENVIRONMENTS, Kind, free_port, in_environments
from local_servers.suites import Suite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from local_servers.children import Child, Children

SET = "rs0"
_OPEN_FILES = 64_000  # what MongoDB's manual recommends

# The libraries that the wheel's mongod needs, for a machine that doesn't have them.
LIBRARIES = Suite(
    "bookworm",
    ("libcurl4", "libssl3"),
    (("with_libraries", "with-libraries"),),
    files=(("with-libraries", '#!/bin/sh\nexec {loader} --library-path {libraries} "$@"\n'),),
)

# Fails while the servers aren't there yet, or have not elected one of them; may be run again.
_INITIATE = """
import json, sys
from pymongo import MongoClient
from pymongo.errors import OperationFailure
config = json.loads(sys.argv[1])
options = {"directConnection": True, "serverSelectionTimeoutMS": 1000}
with MongoClient(config["members"][0]["host"], **options) as client:
    try:
        client.admin.command("replSetInitiate", config)
    except OperationFailure as error:
        if error.code != 23:  # it is initiated already
            raise
    hello = client.admin.command("hello")
    has_primary = hello["isWritablePrimary"] or hello.get("primary", hello["me"]) != hello["me"]
    sys.exit(not has_primary)
"""

_SETTINGS = (
    *("--bind_ip", ADDRESS, "--nounixsocket", "--replSet", SET),
    *("--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.5"),
    *("--setParameter", "diagnosticDataCollectionEnabled=false"),
    # Files of dropped collections stay open for five minutes otherwise: too many, with a suite
    # that drops as many as tests do.
    *("--setParameter", "minSnapshotHistoryWindowInSeconds=0"),
    # SIGTERM would let clients finish for 15 s.
    *("--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100"),
)


def find() -> dict[str, str] | None:
    """Find a mongod that runs, and a Python with PyMongo to initiate its replica set."""
    program, python = _program(), python_with("pymongo")
    if program is None or python is None:
        return None
    for libraries in ({}, LIBRARIES.find()):
        if libraries is not None and _runs([*libraries.values(), program, "--version"]):
            return {**libraries, "mongod": program, "python": python}
    return None


def packages() -> tuple[str, ...]:
    """Name the libraries that the wheel's mongod is linked to, if it is there but cannot run."""
    return ("libcurl4", "libssl3") if _program() else ()


def _program() -> str | None:
    program = in_environments("fiftyone/db/bin/mongod")
    return str(program) if program else shutil.which("mongod")


def python_with(*modules: str) -> str | None:
    """Find a Python of ours that has some modules."""
    pythons = [str(environment / "bin" / "python") for environment in ENVIRONMENTS]
    imports = f"import {', '.join(modules)}"
    return next((python for python in pythons if _runs([python, "-c", imports])), None)


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start a server and make it the primary of its own replica set."""
    allow_open_files()
    port = free_port()
    data = make_folder(folder / "data", account=None)
    server = children.start(begin(programs, data, port), log=folder / "server.log")
    initiate(programs, server, [port])
    return f"mongodb://{ADDRESS}:{port}/?replicaSet={SET}"


def begin(programs: dict[str, str], data: Path, port: int) -> list[str]:
    """Return the command that starts a server which can be a member of the replica set."""
    command = [programs[name] for name in ("with_libraries", "mongod") if name in programs]
    return [*command, "--dbpath", str(data), "--port", str(port), *_SETTINGS]


def initiate(
    programs: dict[str, str], first: Child, ports: Sequence[int], **settings: object
) -> None:
    """Make servers the members of the replica set, and wait until it has a primary.

    Args:
        programs: what `find` returns.
        first: the server that is told; it ends the wait if it ends.
        ports: those of all servers, the first one's first.
        settings: of the set, by MongoDB's names.
    """
    members = [{"_id": number, "host": f"{ADDRESS}:{port}"} for number, port in enumerate(ports)]
    config = json.dumps({"_id": SET, "members": members, "settings": settings})
    command = [programs["python"], "-c", _INITIATE, config]
    first.wait_until(lambda: _runs(command))


def allow_open_files() -> None:
    """Lift the limit for what is started from now on: mongod aborts when it meets it.

    It needs a descriptor for each connection, collection and index, and 1024, which is usual, is
    soon reached by a suite that opens a client for each test.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


MONGODB = Kind(
    name="mongodb",
    title="MongoDB",
    variable="TTL_ODM_TEST_MONGODB_URL",
    packages=packages,
    remedy="run 'python3 tools/dev.py env' (a wheel brings mongod) or put mongod on PATH",
    find=find,
    start=start,
    suite=LIBRARIES,
    wheel_on=("linux",),
)
