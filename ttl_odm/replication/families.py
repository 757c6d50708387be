"""The questions to SQL servers about replication, and the meaning of their answers.

`Questions` is a generator of statements, which the adapters send. This module must not know a
driver.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.replication.lag import Lag, Reading, Replica, wait_for

T = TypeVar("T")

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row]
Asking: TypeAlias = "Generator[Question, Rows, T]"

POSTGRESQL: Final = """
SELECT coalesce(nullif(application_name, ''), host(client_addr), CAST(pid AS text)) AS name,
       state,
       CAST(replay_lsn - '0/0' AS bigint) AS position,
       CAST(pg_current_wal_lsn() - '0/0' AS bigint) AS written,
       coalesce(CAST(extract(epoch FROM replay_lag) AS double precision), 0) AS seconds
FROM pg_stat_replication
"""
"""Standbys and subscribers. A backup has no position of its own; see `of_postgresql`."""

REPLICAS: Final = "SHOW REPLICAS"
"""The replicas that have registered their address with MySQL."""

REPLICA_HOSTS: Final = "SHOW REPLICA HOSTS"
"""The replicas that have registered their address with MariaDB."""

PROCESSES: Final = "SHOW PROCESSLIST"
"""The connections to MariaDB or MySQL, those of replicas among others."""

REPLICA_STATUS: Final = "SHOW REPLICA STATUS"
"""A replica's own status, on MariaDB or MySQL."""

SERVER: Final = "SELECT @@server_id AS number, version() AS version"
"""The server of MariaDB or MySQL that answers."""

LOG_STATUS: Final = "SHOW MASTER STATUS"
"""The end of the log of MariaDB, or of MySQL before 8.2."""

BINARY_LOG_STATUS: Final = "SHOW BINARY LOG STATUS"
"""The end of the log of MySQL from 8.2 on."""

GALERA: Final = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_flow_control_paused_ns')"
)
"""Whether the server is a node of a Galera cluster, and how long the cluster has been held up."""

GROUP: Final = (
    "SELECT member_host AS Host, member_port AS Port"
    " FROM performance_schema.replication_group_members"
    " WHERE member_state = 'ONLINE' AND member_id <> @@server_uuid"
)
"""The other members of MySQL's Group Replication."""

APPLIER: Final = """
SELECT max(timestampdiff(MICROSECOND, applying_transaction_original_commit_timestamp, now(6)))
       / 1000000 AS seconds
FROM performance_schema.replication_applier_status_by_worker
WHERE channel_name = 'group_replication_applier' AND applying_transaction <> ''
"""
"""The age of the transactions that a member of the group is applying."""

_ANSWERING: Final = ("streaming", "catchup")

_RENAMED_IN: Final = (8, 2)
_WORDS: Final = ("Source", "Master")
_ROUNDED: Final = 1.0
"""Seconds by which a replica's own measure, a difference of whole seconds, may be too high."""


@dataclass(frozen=True, slots=True)
class Question:
    """A statement, and the server to send it to: the primary, unless it names another.

    Attributes:
        sql: The statement.
        place: Host and port of another server.
        known: The adapter's own name for another server.
    """

    sql: str
    place: tuple[str, int] | None = None
    known: object = None


def of_postgresql(rows: Rows) -> Reading:
    """Return the reading of `pg_stat_replication`.

    Raises:
        TTLConfigurationError: The user may not read it.
    """
    if any(row["state"] is None for row in rows):
        raise TTLConfigurationError(
            "throttle='replication' needs to read pg_stat_replication, and the sweeper's user may "
            "not: GRANT pg_monitor TO it."
        )
    return Reading(
        [
            Replica(row["name"], float(row["seconds"]), int(row["position"]))
            for row in rows
            if row["state"] in _ANSWERING and row["position"] is not None
        ],
        int(rows[0]["written"]) if rows else None,
    )


def addresses(rows: Rows) -> list[tuple[str, int]]:
    """Return the addresses of the replicas that a primary of MariaDB or MySQL knows."""
    return [(row["Host"], int(row["Port"])) for row in rows if row["Host"]]


@dataclass(frozen=True, slots=True)
class Source:
    """A primary of MariaDB or MySQL.

    Attributes:
        number: Its ``server_id``.
        written: Where its log ends, on the scale of `Replica.position`.
    """

    number: int
    written: int


def is_mariadb(version: str) -> bool:
    """Return whether a server is MariaDB, to which ``mysql://`` may lead, too."""
    return "mariadb" in version.lower()


def log_status_of(version: str) -> str:
    """Return the statement that shows where a server's log ends."""
    if is_mariadb(version):
        return LOG_STATUS
    major, minor, *_ = version.split(".")
    return BINARY_LOG_STATUS if (int(major), int(minor)) >= _RENAMED_IN else LOG_STATUS


def position_in(file: str, offset: object) -> int:
    """Return a position in a binary log as a number."""
    return int(file.rpartition(".")[2]) << 64 | int(str(offset))


def of_replica(name: str, rows: Rows, source: Source | None = None) -> Iterator[Replica]:
    """Yield the lag of a replica by its own status; nothing while it isn't replicating.

    Args:
        name: Its name.
        rows: Its status.
        source: The primary. A replica that follows it directly has a position in its log.
    """
    for row in rows:
        seconds = _value(row, "Seconds_Behind_{}")
        if seconds is None:
            continue
        file = _value(row, "Relay_{}_Log_File")
        if source is None or not file or int(_value(row, "{}_Server_Id")) != source.number:
            yield Replica(name, float(seconds))
        else:
            position = position_in(file, _value(row, "Exec_{}_Log_Pos"))
            yield Replica(name, max(0.0, float(seconds) - _ROUNDED), position)


def _value(row: Row, column: str) -> Any:
    """Return the value of a column whose name is different on MariaDB."""
    return next((row[name] for name in map(column.format, _WORDS) if name in row), None)


def is_node(rows: Rows) -> bool:
    """Return whether the server is a node of a Galera cluster."""
    return any(row["Variable_name"] == "wsrep_ready" and row["Value"] == "ON" for row in rows)


def paused_for(rows: Rows) -> int:
    """Return for how many nanoseconds a Galera cluster has waited for its nodes.

    A node that can't keep up makes the others wait, in the middle of their commits.
    """
    values = {row["Variable_name"]: row["Value"] for row in rows}
    return int(values["wsrep_flow_control_paused_ns"])


def count_followers(rows: Rows) -> int:
    """Return how many replicas of MariaDB or MySQL are receiving the log."""
    return sum(str(row["Command"]).startswith("Binlog Dump") for row in rows)


def name_of(place: tuple[str, int]) -> str:
    """Return the name of a server for people."""
    host, port = place
    return f"{host}:{port}"


def of_member(name: str, rows: Rows) -> Iterator[Replica]:
    """Yield how far a member of a group is behind."""
    yield Replica(name, max(0.0, float(rows[0]["seconds"] or 0)))


def answer(asking: Asking[T], ask: Callable[[Question], Rows]) -> T:
    """Ask all questions, and return the result.

    Args:
        asking: The result of a call of `Questions`.
        ask: Sends a statement, and returns its rows.
    """
    try:
        question = next(asking)
        while True:
            question = asking.send(ask(question))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Questions:
    """Asks how far replicas are behind: the primary, or the replicas where it doesn't know."""

    def __init__(self, family: str, at_most: float, replicas: Mapping[str, object]) -> None:
        """Begin with no readings.

        Args:
            family: `postgresql`, `mariadb`, or `mysql` for either of the two; others have no
                replicas.
            at_most: Seconds that a replica may be behind.
            replicas: The adapter's own handle of each replica (`Question.known`), by their names;
                empty if the user has named none.
        """
        self._family = family
        self._at_most = at_most
        self._replicas = replicas
        self._lag = Lag()
        self._paused: int | None = None

    def __call__(self) -> Asking[float | str | None]:
        """Ask once.

        Yields:
            Questions. The answer to each is the rows of its statement.

        Returns:
            The answer of a throttle.
        """
        if self._family == "postgresql":
            reading = of_postgresql((yield Question(POSTGRESQL)))
        elif self._family in ("mariadb", "mysql"):
            status = yield Question(GALERA)
            if is_node(status):
                # Wait if the cluster has waited for one of its nodes since the last question.
                before, self._paused = self._paused, paused_for(status)
                is_held_up = before is not None and self._paused > before
                return "flow control" if is_held_up else None
            reading = yield from self._asked()
        else:
            return None
        return wait_for(self._lag.of(reading, monotonic()), self._at_most)

    def _asked(self) -> Asking[Reading]:
        (server,) = yield Question(SERVER)
        is_mysql = not is_mariadb(server["version"])
        questions = {
            name: Question(REPLICA_STATUS, known=known) for name, known in self._replicas.items()
        }
        if not questions:
            places = yield from self._places(REPLICAS if is_mysql else REPLICA_HOSTS)
            questions = {name_of(place): Question(REPLICA_STATUS, place) for place in places}
        source = (yield from self._source(server)) if questions else None
        replicas: list[Replica] = []
        for name, question in questions.items():
            replicas += of_replica(name, (yield question), source)
        if is_mysql and not self._replicas:
            for place in addresses((yield Question(GROUP))):
                replicas += of_member(name_of(place), (yield Question(APPLIER, place=place)))
        return Reading(replicas, None if source is None else source.written)

    def _source(self, server: Row) -> Asking[Source | None]:
        """Ask where the primary's log ends; first, so that replicas don't seem further behind."""
        status = yield Question(log_status_of(server["version"]))
        if not status:  # it writes no log
            return None
        (log,) = status
        return Source(int(server["number"]), position_in(log["File"], log["Position"]))

    def _places(self, listing: str) -> Asking[list[tuple[str, int]]]:
        places = addresses((yield Question(listing)))
        if (followers := count_followers((yield Question(PROCESSES)))) > len(places):
            raise TTLConfigurationError(
                f"throttle='replication': {followers} replicas follow this server, which knows the "
                f"addresses of {len(places)}. Set report_host on the others, or pass "
                "throttle=ReplicationLag(engine, replicas=[...])."
            )
        return places
