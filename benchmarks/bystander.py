"""A process with a model that has no TTL, measured with and without ttl_odm beside it.

Run as ``python -m benchmarks.bystander SIDE`` by `benchmarks.sql_bystanders`, which keeps two of
them in step (see `benchmarks.workers`). With the side ``imported`` the process imports
ttl_odm, declares a TTL model and reads from it on the very engine that is measured; with
``absent`` it never imports it.
"""

from __future__ import annotations

import sys
from itertools import count, cycle
from typing import TYPE_CHECKING

from sqlalchemy import String, bindparam, create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from benchmarks.sql_samples import flushing, reading
from benchmarks.workers import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Engine

    from benchmarks.harness import Sample

IMPORTED = "imported"
ABSENT = "absent"

SELECT_BY_KEY = "ORM select by key"
LIST = "ORM list of 100"
INSERT = "flush of 10 new rows"
UPDATE = "flush of 10 changed rows"
CORE_SELECT = "Core select by key"
OPERATIONS = (SELECT_BY_KEY, LIST, INSERT, UPDATE, CORE_SELECT)

_ROWS = 10_000
_LIST = 100
_CHANGED = 10
_STEP = 7


class Base(DeclarativeBase):
    """Models that have nothing to do with TTL."""


class Thing(Base):
    """A plain model."""

    __tablename__ = "things"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40))
    payload: Mapped[str] = mapped_column(String(200))
    amount: Mapped[int]


def create_tables(engine: Engine) -> None:
    """Create and fill the plain table.

    Args:
        engine: where.
    """
    Base.metadata.create_all(engine)
    rows = [
        {"name": f"thing {number}", "payload": f"{number:0>100}", "amount": number}
        for number in range(_ROWS)
    ]
    with engine.begin() as connection:
        connection.execute(insert(Thing), rows)


def _meet_ttl(engine: Engine) -> None:
    """Do what makes ttl_odm busy on an engine."""
    from ttl_odm.sqlalchemy import TTLMixin  # noqa: PLC0415 - the other side must not import it

    class Other(TTLMixin, Base):
        """A TTL model beside the plain one."""

        __tablename__ = "others"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Other())
        session.commit()
        if not session.scalars(select(Other)).all():
            raise RuntimeError("the row that was just written is not read")


def _samples(engine: Engine) -> Mapping[str, Sample]:
    by_key = select(Thing).where(Thing.id == bindparam("key"))
    hundred = select(Thing).where(Thing.id >= bindparam("key")).order_by(Thing.id).limit(_LIST)
    table = Thing.__table__
    core = select(table).where(table.c.id == bindparam("key"))
    keys = cycle(range(1, _ROWS - _LIST, _STEP))
    numbers = count()

    def add(session: Session) -> None:
        session.add_all(
            [Thing(name="new", payload="x" * 100, amount=next(numbers)) for _ in range(_CHANGED)]
        )

    def change(session: Session) -> None:
        for thing in session.scalars(hundred.limit(_CHANGED), {"key": next(keys)}):
            thing.amount = -1 - next(numbers)

    def orm_one(session: Session) -> Callable[[], object]:
        return lambda: session.scalars(by_key, {"key": next(keys)}).one()

    def orm_hundred(session: Session) -> Callable[[], object]:
        return lambda: session.scalars(hundred, {"key": next(keys)}).all()

    def core_one(session: Session) -> Callable[[], object]:
        connection = session.connection()
        return lambda: connection.execute(core, {"key": next(keys)}).one()

    return {
        SELECT_BY_KEY: reading(engine, orm_one),
        LIST: reading(engine, orm_hundred),
        INSERT: flushing(engine, add),
        UPDATE: flushing(engine, change),
        CORE_SELECT: reading(engine, core_one),
    }


def main() -> None:
    """Serve one side."""
    (side,) = sys.argv[1:]

    def open_samples(url: str) -> Mapping[str, Sample]:
        engine = create_engine(url)
        if side == IMPORTED:
            _meet_ttl(engine)
        return _samples(engine)

    serve(open_samples)
    if side == ABSENT and any(name.partition(".")[0] == "ttl_odm" for name in sys.modules):
        raise RuntimeError("something has imported ttl_odm: nothing was compared")


if __name__ == "__main__":
    main()
