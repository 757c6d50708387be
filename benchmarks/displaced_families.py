"""How long an INSERT takes that frees the key of an expired parent with many followers.

Such an INSERT deletes them first, in its own transaction. Not part of the report, since there is
nothing to compare it with; docs/keys.md has the figures. Each line has the seconds of one INSERT,
without its commit, where nothing follows the followers, and where as many rows follow these::

    python3 tools/servers.py -- .venv/bin/python -m benchmarks.displaced_families 200000
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ForeignKey, create_engine, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchmarks.bench import SCALES, Bench
from benchmarks.sql_models import DAY, analyze
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

FOLLOWERS: Final = 200_000
_STEP: Final = 20_000


class _Base(DeclarativeBase):
    pass


class Cart(TTLMixin, _Base):
    """The parents."""

    __tablename__ = "displaced_carts"
    __ttl__ = DAY

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Line(_Base):
    """Rows that live while their carts do."""

    __tablename__ = "displaced_lines"
    __ttl__ = Follows("cart_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cart_id: Mapped[int] = mapped_column(ForeignKey("displaced_carts.id"), index=True)


class Note(_Base):
    """Rows that live while their lines do."""

    __tablename__ = "displaced_notes"
    __ttl__ = Follows("line_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    line_id: Mapped[int] = mapped_column(ForeignKey("displaced_lines.id"), index=True)


def main() -> None:
    """Measure on all SQL databases that the environment names."""
    followers = int(sys.argv[1]) if len(sys.argv) > 1 else FOLLOWERS
    for database in Bench.of(SCALES["full"], [], None).databases:
        with database.made() as url:
            engine = create_engine(url)
            _Base.metadata.create_all(engine)
            seconds = [_seconds(engine, followers, deep=deep) for deep in (False, True)]
            engine.dispose()
        sys.stdout.write(f"{database.name}: {followers:,} followers, {seconds[0]:.2f} s; ")
        sys.stdout.write(f"with as many of their own, {seconds[1]:.2f} s\n")


def _seconds(engine: Engine, followers: int, *, deep: bool) -> float:
    """Fill the tables, and take the time of the INSERT that frees the key."""
    clock = clock_of(engine.dialect)
    with engine.begin() as connection:
        connection.execute(insert(Cart), {"id": 1})
        for start in range(0, followers, _STEP):
            keys = range(start, min(start + _STEP, followers))
            connection.execute(insert(Line), [{"id": key, "cart_id": 1} for key in keys])
            if deep:
                connection.execute(insert(Note), [{"id": key, "line_id": key} for key in keys])
        past = f"{clock.now} - {2 * DAY} * {clock.second}"
        connection.execute(text(f"UPDATE {Cart.__tablename__} SET _ts = {past}"))  # noqa: S608
    tables: list[Any] = [Cart, Line, Note]
    for model in tables:
        analyze(engine, model.__tablename__)
    with engine.connect() as connection, connection.begin() as transaction:
        began = perf_counter()
        connection.execute(insert(Cart).values(id=1))
        seconds = perf_counter() - began
        transaction.commit()
    with engine.begin() as connection:
        for model in reversed(tables):
            connection.execute(text(f"DELETE FROM {model.__tablename__}"))  # noqa: S608
    return seconds


if __name__ == "__main__":
    main()
