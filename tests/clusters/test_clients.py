"""What clients record when a primary is replaced."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from tests.clusters.checker import check
from tests.clusters.clients import LEASE, Client, RecordedLeases, SweepJournal
from tests.clusters.history import SECOND, History, Holding, Kind, Outcome, Row
from tests.clusters.places import Places, WatchedCluster
from tests.clusters.single import OnlyMember
from ttl_odm.testing import InMemoryLeases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clusters.clients import Noted


NOON: Final = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@dataclass
class Pair:
    """As much of a `Cluster` as it takes to move."""

    members: list[OnlyMember] = field(
        default_factory=lambda: [OnlyMember("one", ""), OnlyMember("two", "")]
    )

    def primary(self) -> OnlyMember:
        return self.members[0]

    def replicas(self) -> Sequence[OnlyMember]:
        return self.members[1:]

    def fail_over(self, _fault: str) -> OnlyMember:
        self.members.reverse()
        return self.primary()


class Connected:
    """Access to one server, whatever its role, that shows the rows which it is given."""

    away = (OSError,)

    def __init__(self, server: str) -> None:
        self.server = server
        self.rows: tuple[Row, ...] = ()

    def read(self, noted: Noted) -> None:
        noted.server, noted.rows = self.server, self.rows
        noted.asked = noted.answered = 2 * SECOND

    def write(self, noted: Noted, ttl: int | None) -> None:
        (key,), noted.server = noted.keys, self.server
        noted.rows = self.rows = (Row(key, str(noted.version), SECOND, ttl, SECOND),)
        noted.asked = noted.answered = SECOND
        noted.outcome = Outcome.ACKNOWLEDGED

    def now(self) -> int:
        return SECOND


def test_who_is_still_connected_to_a_former_primary_gets_a_replicas_answers() -> None:
    pair: Any = Pair()
    history, places = History(10), Places(pair)
    one, two = Connected("one"), Connected("two")
    writer = Client("writer", two, history, is_fresh=places.is_primary)
    reader = Client("reader", one, history, is_fresh=places.is_primary)
    assert reader.read("a").fresh
    WatchedCluster(pair, history, places, 60.0).fail_over("partition")
    assert writer.insert("a").fresh
    assert not reader.read("a").fresh  # it isn't there yet
    one.rows = two.rows
    assert not reader.read("a").fresh
    verdict = check(history)
    assert (verdict.wrong, verdict.by_engine, verdict.behind) == ([], [], 1)
    assert [operation.kind for operation in history.operations if operation.fresh] == [
        Kind.READ,
        Kind.INSERT,
    ]


def test_only_a_primary_that_is_killed_may_lose_what_it_acknowledged() -> None:
    pair: Any = Pair()
    history = History(10)
    watched = WatchedCluster(pair, history, Places(pair), 60.0)
    for fault in ("kill", "switchover", "partition"):
        watched.fail_over(fault)
    seen = [(lost.fault, lost.old, lost.new, lost.loses) for lost in history.failovers]
    assert seen == [
        ("kill", "one", "two", 60.0),
        ("switchover", "two", "one", 0.0),
        ("partition", "one", "two", 0.0),
    ]


def test_a_lease_whose_answer_was_lost_is_recorded_when_it_is_renewed() -> None:
    history, leases = History(10), InMemoryLeases(lambda: NOON)
    recorded = RecordedLeases(leases, SweepJournal("sweeper", history), Connected("one"))
    ours = leases.acquire("sweep", "ours", LEASE)
    assert ours is not None
    assert recorded.acquire("sweep", "ours", LEASE) is None
    assert recorded.renew(ours)
    assert recorded.renew(ours)
    recorded.release(ours)
    noted = [(tenure.action, tenure.token) for tenure in history.tenures]
    actions = (Holding.ACQUIRED, Holding.RENEWED, Holding.RELEASED)
    assert noted == [(action, ours.token) for action in actions]
