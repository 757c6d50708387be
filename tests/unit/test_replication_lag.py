"""How far replicas are behind: what readings and rows mean, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.replication import ReplicationLag
from ttl_odm.replication import families as f
from ttl_odm.replication.lag import Lag, Reading, Replica, wait_for

if TYPE_CHECKING:
    from ttl_odm.replication.families import Rows


def at(written: int, *positions: int) -> Reading:
    """A reading of a primary and its replicas."""
    replicas = [Replica(f"r{n}", position=position) for n, position in enumerate(positions)]
    return Reading(replicas, written)


def test_a_replica_that_has_everything_is_not_behind() -> None:
    lag = Lag()
    assert lag.of(at(10, 10, 10), 0) == {"r0": 0, "r1": 0}
    assert lag.of(at(10, 10, 10), 60) == {"r0": 0, "r1": 0}


def test_a_replica_is_as_late_as_the_oldest_write_that_it_misses() -> None:
    lag = Lag()
    lag.of(at(10, 10, 10), 0)
    assert lag.of(at(20, 10, 20), 5) == {"r0": 0, "r1": 0}
    assert lag.of(at(30, 10, 20), 6) == {"r0": 1, "r1": 0}
    assert lag.of(at(30, 20, 20), 8) == {"r0": 2, "r1": 2}
    assert lag.of(at(30, 20, 30), 9) == {"r0": 3, "r1": 0}
    assert lag.of(at(30, 30, 30), 10) == {"r0": 0, "r1": 0}


def test_a_replica_that_was_late_before_the_first_reading_is_as_late_as_the_engine_says() -> None:
    lag = Lag()
    late = Reading([Replica("standby", seconds=30, position=10)], 20)
    assert lag.of(late, 0) == {"standby": 30}
    assert lag.of(late, 40) == {"standby": 40}  # a silent standby's own measure stays as it is


def test_the_engines_measure_is_of_the_past_once_a_replica_has_everything() -> None:
    lag = Lag()
    assert lag.of(Reading([Replica("standby", seconds=30, position=20)], 20), 0) == {"standby": 0}


def test_a_replica_without_a_position_is_as_late_as_it_says() -> None:
    assert Lag().of(Reading([Replica("replica", seconds=3)]), 0) == {"replica": 3}


def test_a_replica_that_goes_away_leaves_nothing_behind() -> None:
    lag = Lag()
    lag.of(at(20, 10), 0)
    assert lag.of(Reading([], 30), 5) == {}
    assert lag.of(at(30, 30), 6) == {"r0": 0}


def test_a_log_that_ends_earlier_than_before_is_another_one() -> None:
    lag = Lag()
    lag.of(at(30, 10), 0)
    assert lag.of(at(20, 20), 5) == {"r0": 0}
    assert lag.of(at(25, 20), 6) == {"r0": 0}
    assert lag.of(at(25, 20), 8) == {"r0": 2}


@pytest.mark.parametrize(
    ("lag", "wait"),
    [
        ({}, None),
        ({"a": 0.25}, None),
        ({"a": 0.2, "b": 0.75}, 0.5),
        ({"a": 60}, 1.0),
        ({"a": 0.251}, 0.05),
    ],
)
def test_a_throttle_waits_for_the_one_that_is_furthest_behind_before_it_is_too_late(
    lag: dict[str, float], wait: float | None
) -> None:
    assert wait_for(lag, 1.0) == wait


@pytest.mark.parametrize("seconds", [0, -1, 86_401, True, "1", None, float("nan")])
def test_a_limit_has_to_be_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(TTLConfigurationError, match="at_most = "):
        ReplicationLag(object(), at_most=seconds)


def test_what_isnt_known_needs_a_function_of_ones_own() -> None:
    with pytest.raises(TTLConfigurationError, match="can't ask object"):
        ReplicationLag(object())


def asked(family: str, replies: dict[object, Rows], **replicas: str) -> float | str | None:
    """Answer questions from a table by statement, and by whom they are for."""

    def reply(question: f.Question) -> Rows:
        version = "11.8.2-MariaDB" if family == "mariadb" else "9.1.0"
        server = [{"number": 1, "version": version}] if question.sql == f.SERVER else []
        return replies.get((question.sql, question.place or question.known), server)

    return f.answer(f.Questions(family, 1.0, replicas)(), reply)


def test_standbys_and_subscribers_of_postgresql_are_seen_and_backups_not() -> None:
    rows = [
        {"name": "one", "state": "streaming", "position": 8, "written": 9, "seconds": 7.0},
        {"name": "two", "state": "backup", "position": None, "written": 9, "seconds": 0},
    ]
    assert f.of_postgresql(rows) == Reading([Replica("one", 7.0, 8)], 9)
    assert asked("postgresql", {(f.POSTGRESQL, None): rows}) == 1.0
    assert asked("postgresql", {}) is None


def test_a_user_who_may_not_see_standbys_is_said_which_role_is_missing() -> None:
    row = {"name": "one", "state": None, "position": None, "written": 9, "seconds": 0}
    with pytest.raises(TTLConfigurationError, match="GRANT pg_monitor"):
        asked("postgresql", {(f.POSTGRESQL, None): [row]})


@pytest.mark.parametrize(
    ("family", "listing", "column"),
    [
        ("mysql", f.REPLICAS, "Seconds_Behind_Source"),
        ("mariadb", f.REPLICA_HOSTS, "Seconds_Behind_Master"),
    ],
)
@pytest.mark.parametrize(("seconds", "wait"), [(0, None), (3, 1.0), (None, None)])
def test_replicas_that_the_primary_knows_are_asked(
    family: str, listing: str, column: str, seconds: int | None, wait: float | None
) -> None:
    replies: dict[object, Rows] = {
        (listing, None): [{"Host": "replica", "Port": 3307}],
        (f.PROCESSES, None): [{"Command": "Binlog Dump GTID"}, {"Command": "Query"}],
        (f.REPLICA_STATUS, ("replica", 3307)): [{column: seconds}],
    }
    assert asked(family, replies) == wait


def test_replicas_that_the_caller_names_are_asked_instead() -> None:
    replies: dict[object, Rows] = {
        (f.REPLICA_STATUS, "a"): [{"Seconds_Behind_Master": 0}],
        (f.REPLICA_STATUS, "b"): [{"Seconds_Behind_Master": 2}],
    }
    assert asked("mariadb", replies, one="a", two="b") == 1.0


@pytest.mark.parametrize("word", ["Source", "Master"])
def test_a_replica_has_a_position_in_the_log_of_the_primary_that_it_follows(word: str) -> None:
    row = {
        f"Seconds_Behind_{word}": 3,
        f"Relay_{word}_Log_File": "log.000002",
        f"Exec_{word}_Log_Pos": 7,
        f"{word}_Server_Id": 1,
    }
    position = f.position_in("log.000002", 7)
    assert [*f.of_replica("r", [row], f.Source(1, 0))] == [Replica("r", 2.0, position)]
    assert [*f.of_replica("r", [row], f.Source(2, 0))] == [Replica("r", 3.0)]
    assert [*f.of_replica("r", [row])] == [Replica("r", 3.0)]
    assert [*f.of_replica("r", [{**row, f"Relay_{word}_Log_File": ""}], f.Source(1, 0))] == [
        Replica("r", 3.0)
    ]
    assert [*f.of_replica("r", [{**row, f"Seconds_Behind_{word}": None}], f.Source(1, 0))] == []


def test_a_later_log_is_behind_an_earlier_one_of_any_length() -> None:
    assert f.position_in("a.b.000010", 4) > f.position_in("a.b.000009", "9000000000000000000")


@pytest.mark.parametrize(
    ("version", "statement"),
    [
        ("8.0.36", f.LOG_STATUS),
        ("8.2.0", f.BINARY_LOG_STATUS),
        ("9.1.0-commercial", f.BINARY_LOG_STATUS),
        ("11.8.2-MariaDB-log", f.LOG_STATUS),
    ],
)
def test_the_primary_is_asked_where_its_log_ends(version: str, statement: str) -> None:
    assert f.log_status_of(version) == statement
    row = {"Seconds_Behind_Master": 9, "Relay_Master_Log_File": "b.01", "Exec_Master_Log_Pos": 5}
    for end, wait in ((5, None), (6, 1.0)):
        replies: dict[object, Rows] = {
            (f.SERVER, None): [{"number": 4, "version": version}],
            (statement, None): [{"File": "b.01", "Position": end}],
            (f.REPLICA_STATUS, "a"): [{**row, "Master_Server_Id": 4}],
        }
        assert asked("mysql", replies, one="a") == wait


def test_a_replica_that_nobody_can_ask_is_a_mistake() -> None:
    replies: dict[object, Rows] = {
        (f.REPLICAS, None): [{"Host": "", "Port": 3306}],
        (f.PROCESSES, None): [{"Command": "Binlog Dump"}],
    }
    with pytest.raises(TTLConfigurationError, match="report_host"):
        asked("mysql", replies)


@pytest.mark.parametrize(("seconds", "wait"), [(None, None), ("-0.2", None), ("0.5", 0.25)])
def test_members_of_a_group_are_asked(seconds: str | None, wait: float | None) -> None:
    replies: dict[object, Rows] = {
        (f.GROUP, None): [{"Host": "member", "Port": 3308}],
        (f.APPLIER, ("member", 3308)): [{"seconds": seconds}],
    }
    assert asked("mysql", replies) == wait


def test_a_galera_cluster_that_has_been_held_up_is_given_time() -> None:
    paused = ["5", "5", "9", "9"]

    def reply(question: f.Question) -> Rows:
        assert question.sql == f.GALERA
        return [
            {"Variable_name": "wsrep_ready", "Value": "ON"},
            {"Variable_name": "wsrep_flow_control_paused_ns", "Value": paused.pop(0)},
        ]

    questions = f.Questions("mariadb", 1.0, {})
    answers = [f.answer(questions(), reply) for _ in range(4)]
    assert answers == [None, None, "flow control", None]


def test_sqlite_has_no_replicas() -> None:
    assert asked("sqlite", {}) is None
