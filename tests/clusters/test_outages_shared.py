"""Partitions that one server drops while another one writes the same table."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.clusters.mariadb import engine_of
from tests.clusters.members import running, until
from tests.sql.cutting import MOVING, Race, create, keys, swept, visits
from tests.sql.cutting import add as add_rows
from ttl_odm import Partitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("noon")]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("galera GALERA", marks=pytest.mark.starts("mariadb")),
        pytest.param("mysql_group MYSQL_GROUP_MULTI", marks=pytest.mark.starts("mysql")),
    ],
)
def members(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Give the members of a cluster in which each takes writes."""
    with running(*request.param.split()) as cluster:
        yield cluster.members


@pytest.fixture
def pair(members: Any) -> Iterator[list[Engine]]:
    """Give engines on two members; that of the second commits each statement."""
    with ExitStack() as stack:
        engine = stack.enter_context(engine_of(members[0]))
        other = stack.enter_context(engine_of(members[1], isolation_level="AUTOCOMMIT"))
        yield [engine, other]
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE IF EXISTS visits, events"))
        until(lambda: not has_table(other))


def has_table(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.execute(text("SHOW TABLES LIKE 'visits'")).all())


class Renewals(Race):
    """Rows that are renewed and read on another server, where both may lose against a sweep."""

    def _write(self) -> None:
        with suppress(DBAPIError):
            super()._write()

    def _read(self) -> None:
        with suppress(DBAPIError):
            super()._read()


@pytest.mark.parametrize("survivors", ["sweep", "move"])
def test_rows_that_another_server_renews_are_not_lost(pair: list[Engine], survivors: str) -> None:
    engine, other = pair
    model = visits(cut=Partitions("1 day", ahead=2, survivors=survivors))
    create(engine, model, *range(2, 10))
    for days in range(2, 10):
        add_rows(engine, model, days, range(days * 1_000, days * 1_000 + 300))
    until(lambda: len(keys(other, model)) == 2_400)
    renewals = Renewals(other)
    with renewals:
        for _ in range(6):
            swept(engine, model, lease=False)
    assert [repr(failure) for failure in renewals.failures] == []
    swept(engine, model, lease=False)
    assert renewals.live <= set(keys(engine, model))
    until(lambda: keys(other, model) == keys(engine, model))


def test_partitions_go_once_their_bounds_allow_it(pair: list[Engine]) -> None:
    engine, _ = pair
    model = visits(days=4, cut=MOVING)
    create(engine, model, 2, 7)
    add_rows(engine, model, 7, range(20), ttl="-1")
    add_rows(engine, model, 2, range(100, 120))
    report = swept(engine, model)
    assert report.partitions is not None
    assert report.partitions.dead == report.partitions.missing == 0
    assert keys(engine, model) == []
