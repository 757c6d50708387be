"""Rows of a megabyte: how many bytes of them are in memory, or in a statement, at once, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Text, event, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

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


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("by", ["flush", "statement"])
def test_an_insert_of_many_rows_sends_a_megabyte_at_a_time(engine: Engine, by: str) -> None:
    """Servers end connections that send more than `max_allowed_packet`, 16 MiB on MariaDB."""
    letter, count, sent = wide("index"), 30, list[int]()
    letter.metadata.create_all(engine)
    rows = [{"id": key, "body": "x" * (MEGABYTE // 4)} for key in range(1, count)]
    rows.append({"id": count, "body": "x" * MEGABYTE})

    def record(_c: Any, _cursor: Any, _statement: str, parameters: Any, *_: Any) -> None:
        values = parameters.values() if isinstance(parameters, dict) else parameters
        sent.append(sum(len(value) for value in values if isinstance(value, str)))

    with Session(engine) as session:
        session.scalars(select(letter)).all()
        event.listen(engine, "before_cursor_execute", record)
        if by == "flush":
            session.add_all([letter(**row) for row in rows])
            session.flush()
        else:
            session.execute(insert(letter), rows)
        event.remove(engine, "before_cursor_execute", record)
    assert max(sent) == MEGABYTE
    assert sum(sent) == sum(len(row["body"]) for row in rows)
