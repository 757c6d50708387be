"""Databases with replicas for benchmarks, and how far these are behind while something is done.

A *beat* is a tiny write: the number of the latest one is in a table of its own. A replica is behind
by the age of the oldest beat that it doesn't show. That is the same measure on all databases, to
the millisecond. The databases' own measures are noted beside it: most are in whole seconds, and
MongoDB's is that of the last heartbeats, up to two seconds ago.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol

from pymongo import MongoClient, ReturnDocument, WriteConcern
from sqlalchemy import create_engine, inspect, make_url, text

from benchmarks import mongo_sweeping, sweeping_tables
from benchmarks.bench import find_tools
from benchmarks.sweeping_tables import Entry
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pymongo.database import Database
    from sqlalchemy import Engine

    from local_servers.cluster import Cluster, Member

_KINDS: Final = {
    "postgres": "postgres-standby",
    "mariadb": "mariadb-replica",
    "mysql": "mysql-replica",
    "mongodb": "mongodb-members",
}
"""The kinds of `tools/local_servers`, by the keys of databases."""

_DRIVERS: Final = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_SECONDS_BEHIND: Final = ("Seconds_Behind_Source", "Seconds_Behind_Master")
_OPLOG_MIB: Final = 4_000.0
"""So that no secondary loses track of a primary whose oplog begins anew."""

_EVERY: Final = 0.02
_PATIENCE: Final = 600.0
"""Seconds within which a replica has to catch up."""


class Replicated(Protocol):
    """A database whose changes go to replicas."""

    def fill(self, rows: int) -> None:
        """Replace all rows; so many have expired."""
        ...

    def sweep(self, throttle: str | None) -> int:
        """Delete them as the sweeper does, and return how many these were."""
        ...

    def delete(self) -> int:
        """Delete them by one statement."""
        ...

    def logged(self, act: Callable[[], int]) -> int:
        """Return how many bytes of its log the primary writes while something is done."""
        ...

    def beat(self) -> int:
        """Write a beat on the primary, and return its number when it is committed."""
        ...

    def heard(self) -> Sequence[Callable[[], int]]:
        """Return for each replica what reads the latest beat there."""
        ...

    def own_lag(self) -> float:
        """Ask the database itself for how many seconds the last of its replicas is behind."""
        ...


@contextmanager
def running(key: str) -> Iterator[Replicated]:
    """Run a database with replicas.

    Args:
        key: The database's.
    """
    find_tools()
    from local_servers.cluster import ClusterKind  # noqa: PLC0415 - of the tools
    from local_servers.lifetime import ON_REQUEST, running_cluster  # noqa: PLC0415 - the same

    (kind,) = (kind for kind in ON_REQUEST if kind.name == _KINDS[key])
    if not isinstance(kind, ClusterKind):
        raise TypeError(kind)
    with running_cluster(kind) as cluster, ExitStack() as stack:
        yield _Documents(cluster, stack) if key == "mongodb" else _Tables(cluster, stack)


@dataclass
class Lag:
    """How far replicas have been behind at most.

    Attributes:
        seconds: By the beats.
        own: By the database's own measure, in seconds.
    """

    seconds: float = 0.0
    own: float = 0.0


@contextmanager
def watched(database: Replicated) -> Iterator[Lag]:
    """Watch the replicas until they have all that is written in the block.

    Yields:
        What has the figures after the block.
    """
    ended, caught_up, committed, found = Event(), Event(), dict[int, float](), Lag()
    heard = database.heard()
    with ThreadPoolExecutor(len(heard) + 2) as pool:
        beating = pool.submit(_beat, database, committed, ended)
        listening = [pool.submit(_listen, hear, committed, beating.done) for hear in heard]
        asking = pool.submit(_ask, database, caught_up)
        try:
            yield found
            ended.set()
            beating.result()
            found.seconds = max(future.result() for future in listening)
        finally:
            ended.set()
            caught_up.set()
        found.own = asking.result()


def catch_up(database: Replicated) -> None:
    """Wait until all replicas have what the primary has, and the database knows that."""
    with watched(database):
        pass
    while database.own_lag() >= 1:
        time.sleep(_EVERY)


def _beat(database: Replicated, committed: dict[int, float], ended: Event) -> None:
    """Write beats, the last one after the end."""
    is_last = False
    while not is_last:
        is_last = ended.wait(_EVERY)
        number = database.beat()
        committed[number] = time.monotonic()


def _listen(
    hear: Callable[[], int], committed: Mapping[int, float], is_over: Callable[[], bool]
) -> float:
    """Read beats until the last one is there; return the most seconds that one was missing."""
    longest, deadline = 0.0, None
    while True:
        was_over, at = is_over(), time.monotonic()
        missing = committed.get(hear() + 1)
        if missing is not None:
            longest = max(longest, at - missing)
        elif was_over:
            return longest
        if was_over:
            deadline = at + _PATIENCE if deadline is None else deadline
            if at > deadline:
                raise TimeoutError(f"A replica hasn't caught up within {_PATIENCE:.0f} s.")
        time.sleep(_EVERY)


def _ask(database: Replicated, caught_up: Event) -> float:
    """Return the largest of the database's own figures."""
    largest = database.own_lag()
    while not caught_up.wait(_EVERY):
        largest = max(largest, database.own_lag())
    return largest


class _Tables:
    """A SQL database."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self._engine = _engine_of(cluster.primary(), stack)
        self._replicas = [_engine_of(member, stack) for member in cluster.replicas()]
        self._beats = 0
        _run(self._engine, "CREATE TABLE beats (id INTEGER PRIMARY KEY, latest INTEGER)")
        _run(self._engine, "INSERT INTO beats VALUES (1, 0)")
        for replica in self._replicas:
            while not inspect(replica).has_table("beats"):
                time.sleep(_EVERY)
        self._is_postgresql = self._engine.dialect.name == "postgresql"

    def fill(self, rows: int) -> None:
        sweeping_tables.fill(self._engine, rows)
        if self._is_postgresql:
            # After a checkpoint the first change of a page writes all of it: in each way, then.
            for statement in ("ALTER TABLE entries SET (autovacuum_enabled = off)", "CHECKPOINT"):
                _run(self._engine, statement)

    def sweep(self, throttle: str | None) -> int:
        report = Sweeper(self._engine, Entry, lease=False, throttle=throttle).run_once()
        report.raise_for_failures()
        return report.deleted

    def delete(self) -> int:
        return sweeping_tables.delete_at_once(self._engine)

    def logged(self, act: Callable[[], int]) -> int:
        before = self._end_of_log()
        act()
        return self._end_of_log() - before

    def _end_of_log(self) -> int:
        if self._is_postgresql:
            query = "SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS bigint) AS size"
            return int(_rows(self._engine, query)[0]["size"])
        files = _rows(self._engine, "SHOW BINARY LOGS")
        return sum(int(file["File_size"]) for file in files)

    def beat(self) -> int:
        self._beats += 1
        _run(self._engine, f"UPDATE beats SET latest = {self._beats}")  # noqa: S608 - a number
        return self._beats

    def heard(self) -> Sequence[Callable[[], int]]:
        return [partial(_latest_row, replica) for replica in self._replicas]

    def own_lag(self) -> float:
        if self._is_postgresql:
            query = "SELECT max(extract(epoch FROM replay_lag)) AS lag FROM pg_stat_replication"
            return float(_rows(self._engine, query)[0]["lag"] or 0)
        rows = [_rows(replica, "SHOW REPLICA STATUS")[0] for replica in self._replicas]
        return max(float(row[name] or 0) for row in rows for name in _SECONDS_BEHIND if name in row)


def _engine_of(member: Member, stack: ExitStack) -> Engine:
    url = make_url(member.url)
    engine = create_engine(url.set(drivername=_DRIVERS[url.drivername]))
    stack.callback(engine.dispose)
    return engine


def _run(engine: Engine, statement: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))


def _rows(engine: Engine, query: str) -> Sequence[Any]:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        return connection.execute(text(query)).mappings().all()


def _latest_row(replica: Engine) -> int:
    rows = _rows(replica, "SELECT latest FROM beats")
    return int(rows[0]["latest"]) if rows else 0


class _Documents:
    """A database of MongoDB."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        for member in cluster.members:
            with MongoClient[Any](member.url) as client:
                client.admin.command("replSetResizeOplog", 1, size=_OPLOG_MIB)
        self._place = mongo_sweeping.Place(cluster.url)
        stack.callback(self._place.close)
        self._client = self._place.there.client
        _be_patient(self._client)
        clients = [
            stack.enter_context(MongoClient[Any](member.url)) for member in cluster.replicas()
        ]
        self._replicas = [client[self._place.there.name] for client in clients]
        self._beats = self._place.there.get_collection("beats", write_concern=WriteConcern(w=1))
        self._beats.insert_one({"_id": 1, "latest": 0})

    def fill(self, rows: int) -> None:
        self._place.fill(rows)

    def sweep(self, throttle: str | None) -> int:
        return mongo_sweeping.sweep(self._place, throttle=throttle)

    def delete(self) -> int:
        return mongo_sweeping.delete_many(self._place)

    def logged(self, act: Callable[[], int]) -> int:
        oplog = self._client["local"]["oplog.rs"]
        (last,) = oplog.find().sort("$natural", -1).limit(1)
        act()
        later: dict[str, Any] = {"$match": {"ts": {"$gt": last["ts"]}}}
        size = {"$sum": {"$bsonSize": "$$ROOT"}}
        (entries,) = oplog.aggregate([later, {"$group": {"_id": None, "size": size}}])
        return int(entries["size"])

    def beat(self) -> int:
        beat: Any = self._beats.find_one_and_update(
            {"_id": 1}, {"$inc": {"latest": 1}}, return_document=ReturnDocument.AFTER
        )
        return int(beat["latest"])

    def heard(self) -> Sequence[Callable[[], int]]:
        return [partial(_latest_document, replica) for replica in self._replicas]

    def own_lag(self) -> float:
        members = self._client.admin.command("replSetGetStatus")["members"]
        seconds = [member["optime"]["ts"].time for member in members]
        return float(max(seconds) - min(seconds))


def _be_patient(client: MongoClient[Any]) -> None:
    """Let members elect no other primary while this one is busy: with MongoDB's own settings."""
    config = client.admin.command("replSetGetConfig")["config"]
    config["version"] += 1
    config["settings"] |= {"electionTimeoutMillis": 10_000, "heartbeatIntervalMillis": 2_000}
    client.admin.command("replSetReconfig", config)


def _latest_document(replica: Database[Any]) -> int:
    beat = replica["beats"].find_one()
    return 0 if beat is None else int(beat["latest"])
