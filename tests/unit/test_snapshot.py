"""What the commands called status print: `ttl_odm.sweeper.snapshot`."""

from __future__ import annotations

from time import monotonic

import pytest

from ttl_odm.database_sweep.jobs import JobState
from ttl_odm.sweeper import Server, Sweeper
from ttl_odm.sweeper.leases import LeaseState
from ttl_odm.sweeper.snapshot import Counts, Snapshot, format_snapshot, look
from ttl_odm.testing import InMemoryStore


@pytest.mark.parametrize(
    ("ago", "words"), [(0.0, "< 1 s"), (0.4, "< 1 s"), (1.0, "1 s"), (3_661.0, "1 h 01 min")]
)
def test_a_status_says_how_long_ago_the_last_sweep_was(ago: float, words: str) -> None:
    snapshot = Snapshot(None, LeaseState(recorded_ago=ago), [], at=0.0)
    job = JobState("ttl_sweep", "3600", "there", ran_ago=ago, outcome="done")

    assert f"Last sweep {words} ago." in format_snapshot(snapshot, str)
    assert f"done, {words} ago," in str(job)


@pytest.mark.parametrize(("expired", "oldest"), [(0, "-"), (1, "< 1 s")])
def test_the_oldest_row_can_have_expired_at_this_very_moment(expired: int, oldest: str) -> None:
    counts = Counts("notes", rows=2, expired=expired, oldest=0.0)

    assert counts.cells[-1] == oldest


@pytest.mark.parametrize(
    ("server", "lines"),
    [
        (None, []),
        (Server(None, takes_writes=True), []),
        (Server("db1:5432", takes_writes=True), ["Answered by db1:5432."]),
        (
            Server("\x1b:1", takes_writes=False),
            ["Answered by a standby (\\x1b:1): it takes no writes, so nothing is swept there."],
        ),
        (
            Server(None, takes_writes=False),
            ["Answered by a standby: it takes no writes, so nothing is swept there."],
        ),
    ],
)
def test_a_status_names_the_server_that_answered(server: Server | None, lines: list[str]) -> None:
    snapshot = Snapshot(None, LeaseState(), [], at=0.0, server=server)
    printed = format_snapshot(snapshot, str).splitlines()
    assert printed[: len(lines)] == lines
    assert printed[len(lines)].startswith("No sweeper holds the lease.")
    expected = None if server is None else [server.address, server.takes_writes]
    found = snapshot.to_dict()["server"]
    assert (found and [*found.values()]) == expected


def test_a_store_need_not_know_servers() -> None:
    sweeper = Sweeper(InMemoryStore())
    assert sweeper.carry_out(look({}, "ttl_odm", None)).server is None


def test_a_status_has_the_time_of_a_monotonic_clock() -> None:
    sweeper, before = Sweeper(InMemoryStore()), monotonic()
    assert before <= sweeper.carry_out(look({}, "ttl_odm", None)).at <= monotonic()
