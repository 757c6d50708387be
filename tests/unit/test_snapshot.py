"""What the commands called status print: `ttl_odm.sweeper.snapshot`."""

from __future__ import annotations

import pytest

from ttl_odm.database_sweep.jobs import JobState
from ttl_odm.sweeper.leases import LeaseState
from ttl_odm.sweeper.snapshot import Counts, Snapshot, format_snapshot


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
