"""Rows of a megabyte: how many bytes of them are in memory at once, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Text, event, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.clocks import age
from tests.sql.sweeping import HOUR, sweeps
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import Hook, Pace, Sweeper
from ttl_odm.sweeper.pace import MOST_BYTES

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.sweeper import Purged

MEGABYTE = 1024 * 1024
ROWS = 32
EAGER = Pace(start=1_000, lowest=1, highest=1_000, target=3_600)
"""Doubles each batch, so that only bytes bound it."""


def wide(sweep: str, **declared: Any) -> Any:
    class Base(DeclarativeBase):
        pass

    class Letter(TTLMixin, Base):
        __tablename__ = "wide_letters"
        __ttl__ = HOUR
        __ttl_sweep__ = sweep

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        body: Mapped[str] = mapped_column(Text().with_variant(Text(2 * MEGABYTE), "mysql"))

    for name, value in declared.items():
        setattr(Letter, name, value)
    return Letter


def fill(engine: Engine, model: Any) -> None:
    """Write expired rows."""
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        for key in range(ROWS):
            connection.execute(insert(model).values(id=key, body="x" * MEGABYTE))
        for key in range(ROWS):
            age(connection, "wide_letters", key, 2 * HOUR)


def check(report: Any, batches: list[int]) -> None:
    """See that all rows have gone, and what was in memory for each batch."""
    report.raise_for_failures()
    assert report.deleted == ROWS
    assert sum(batches) == ROWS * MEGABYTE
    assert max(batches) <= MOST_BYTES


class Sink:
    """Counts the bytes that it gets at once: as an archive, and as a hook."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def write(self, purged: Purged) -> None:
        assert purged.rows is not None
        self.batches.append(sum(len(row["body"]) for row in purged.rows))


@pytest.mark.slow
@sweeps
def test_for_a_hook(engine: Engine, sweep: str) -> None:
    model, sink = wide(sweep), Sink()
    fill(engine, model)
    hook = Hook(sink.write, rows=True)
    check(Sweeper(engine, model, on_purged=hook, pace=EAGER).run_once(), sink.batches)


@pytest.mark.slow
@sweeps
def test_for_an_archive(engine: Engine, sweep: str) -> None:
    sink = Sink()
    model = wide(sweep, __ttl_archive__=sink)
    fill(engine, model)
    check(Sweeper(engine, model, pace=EAGER).run_once(), sink.batches)


@pytest.mark.slow
@sweeps
def test_through_the_orm(engine: Engine, sweep: str) -> None:
    model = wide(sweep, __ttl_purge__="orm")
    fill(engine, model)
    batches = [0]

    def loaded(letter: Any, _: Any) -> None:
        batches[-1] += len(letter.body)

    event.listen(model, "load", loaded)
    event.listen(engine, "commit", lambda _: batches.append(0))
    check(Sweeper(engine, model, pace=EAGER).run_once(), batches)
