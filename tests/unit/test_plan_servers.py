"""Which server answers: asked where anybody wants to know, and then after each failover."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scripted import AWAY, CLAIM, NOTHING, OWN, STANDBY, Script, full, last
from ttl_odm.sweeper import Ending, Server, StoreError
from ttl_odm.sweeper.commands import Acquire, AskServer

FIRST = Server("db1:5432", takes_writes=True)
SECOND = Server("db2:5432", takes_writes=True)
READ_ONLY = Server("db3:5432", takes_writes=False)


def idle(**given: Any) -> Script:
    return Script({"a": [NOTHING]}, server=FIRST, **given)


def test_it_is_not_asked_for_nobody() -> None:
    script = idle(stop_at=150.0)
    script.run_forever(CLAIM)
    assert script.of(AskServer) == []


def test_each_sweep_reports_it() -> None:
    script = idle(stop_at=150.0)
    script.run_forever(CLAIM, asks_server=True)
    assert script.servers == [FIRST] * 3
    assert len(script.of(AskServer)) == 3


def test_where_there_are_no_servers_nothing_is_reported() -> None:
    script = Script({"a": [NOTHING]})
    assert script.run(asks_server=True).ended is Ending.FINISHED
    assert script.servers == []


def test_another_one_is_reported_as_soon_as_it_has_answered() -> None:
    script = Script(
        {"a": [OWN, NOTHING]}, [full(1_000, 1), AWAY, AWAY, full(1_000, 2), last(7)], server=FIRST
    )

    def fail_over(*_: object) -> None:
        if AWAY not in script.batches:
            script.server = SECOND

    script.before = fail_over
    report = script.run(asks_server=True)
    assert (report.deleted, report.problems) == (2_007, ())
    assert script.servers == [FIRST, SECOND]


def test_a_connection_that_was_lost_since_the_last_sweep_is_no_answer() -> None:
    script = idle(instead={AskServer: [AWAY]})
    assert not script.run(asks_server=True).problems
    assert set(script.servers) == {FIRST}


def test_a_standby_is_reported_before_the_sweep_ends_there() -> None:
    script = Script({"a": [OWN]}, instead={Acquire: [STANDBY]}, server=READ_ONLY)
    report = script.run(CLAIM, asks_server=True, waits_at_standby=False)
    assert report.ended is Ending.STANDBY
    assert script.servers == [READ_ONLY]


@pytest.mark.parametrize("errors", [[StoreError("no such function")], [AWAY, StoreError("no")]])
def test_no_sweep_fails_because_it_is_not_known(errors: list[Exception]) -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(7)], instead={AskServer: errors}, server=FIRST)
    report = script.run(asks_server=True)
    assert (report.deleted, report.problems, script.servers) == (7, (), [])


def test_no_batch_is_forgotten_because_it_is_not_known() -> None:
    script = Script({"a": [OWN, NOTHING]}, [AWAY, last(7)], server=FIRST)

    def lost(*_: object) -> None:
        if AWAY not in script.batches:
            script.instead[AskServer] = [AWAY]

    script.before = lost
    assert script.run(asks_server=True).deleted == 7
    assert script.servers == [FIRST]


def test_a_database_that_is_away_fails_the_sweep_after_a_minute() -> None:
    script = idle(instead={AskServer: [AWAY] * 1_000})
    report = script.run(CLAIM, asks_server=True)
    assert (report.ended, report.error) == (Ending.FAILED, AWAY)
    assert 60.0 <= script.clock <= 65.0
