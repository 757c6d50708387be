"""Tests of the gate once more, with `TTLClock` in the place of what they stop the clock with.

Those stop the database's own clock, by means of each database. What they expect does not change
when `TTLClock` stops the adapter's: in the truth table, for every kind of column that a policy
may be over, and on the paths of the leak matrix, in a world that lies in the future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.leaks.living import LivingWorld
from tests.leaks.registry import Sees, all_paths
from tests.leaks.worlds import CleanWorld
from tests.sql import test_adopted_kinds, test_adopted_writes, test_truth_table
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Table

    from tests.leaks.data import Row
    from tests.leaks.worlds import World

_DAY = 86_400


@pytest.fixture
def clock() -> Iterator[TTLClock]:
    with TTLClock() as clock:
        yield clock


@pytest.fixture(autouse=True)
def _stopped_by_the_clock(clock: TTLClock, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (test_truth_table, test_adopted_kinds, test_adopted_writes):
        monkeypatch.setattr(module, "stop_clock", lambda _, instant: clock.freeze(instant))


test_the_truth_table_holds = test_truth_table.test_the_truth_table_holds
test_the_truth_table_holds_asynchronously = (
    test_truth_table.test_the_truth_table_holds_asynchronously
)
test_every_kind_of_column_tells_the_exact_instant = (
    test_adopted_kinds.test_every_kind_of_column_tells_the_exact_instant
)
test_every_write_stamps_the_column_in_its_own_kind = (
    test_adopted_writes.test_every_write_stamps_the_column_in_its_own_kind
)
test_a_date_of_expiry_can_be_set_by_the_helpers = (
    test_adopted_writes.test_a_date_of_expiry_can_be_set_by_the_helpers
)
test_an_own_ttl_can_be_set_by_the_helpers = (
    test_adopted_writes.test_an_own_ttl_can_be_set_by_the_helpers
)


class MovedWorld(LivingWorld):
    """The world with ttl_odm, whose rows got their age from the clock."""

    def __init__(self, url: str, clock: TTLClock) -> None:
        self._clock = clock
        super().__init__(url)

    def _insert(self, connection: Connection, row: Row, mapper: Any) -> None:
        with self._clock.advance(-row.life.age):
            super()._insert(connection, row, mapper)

    def give_lifetime(self, connection: Connection, table: Table, row: Row) -> None:
        if row.life.ttl is not None:
            connection.exec_driver_sql(
                f"UPDATE {table.name} SET ttl = {row.life.ttl} WHERE id = {row.values['id']}"  # noqa: S608
            )


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, World]]:
    folder = tmp_path_factory.mktemp("worlds")
    with TTLClock() as clock:
        # So far ahead that what follows no move takes every row for live.
        clock.advance(10 * _DAY)
        worlds = MovedWorld(f"sqlite:///{folder}/moved", clock), CleanWorld(f"sqlite:///{folder}/c")
        yield worlds
        for world in worlds:
            world.engine.dispose()


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in all_paths(without=("escapes",))
        if path.answer is Sees.LIVE and "sqlite" not in path.without
    ],
    ids=lambda path: f"{path.theme}: {path.name}",
)
def test_a_path_of_the_leak_matrix_follows(path: Any, worlds: tuple[World, World]) -> None:
    moved, clean = worlds
    assert moved.answer(path) == clean.answer(path)
