"""Applications with SQLAlchemy under the load of `tests.crowds`.

Under SERIALIZABLE some fail without a policy too, and how many is a matter of chance. To compare:

    python -m tests.sql.crowds URL --isolation SERIALIZABLE

The URL is SQLAlchemy's, of an empty database.
"""

from __future__ import annotations

import argparse
import itertools
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    DateTime,
    ForeignKey,
    MetaData,
    create_engine,
    delete,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.crowds import CARTS, CONNECTIONS, HOUR, KEYS, App, Load, Writer
from tests.sql.cutting import ago
from ttl_odm import TTL, Follows, Partitions
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


class SQLApp(App):
    """An application with SQLAlchemy."""

    EXPIRED = ExpiredError
    FAILED = DBAPIError

    def __init__(self, engine: Engine, *, policy: bool) -> None:
        super().__init__(policy=policy)
        self.engine = engine
        self.metadata = MetaData()

    @property
    def models(self) -> Any:
        """What sweepers sweep."""
        raise NotImplementedError

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A session's."""
        with Session(self.engine) as session, session.begin():
            yield session

    def sweep(self) -> None:
        """In small batches."""
        Sweeper(self.engine, self.models, lease=False, batch_size=5).run_once()


class Shop(SQLApp):
    """Carts, and items that follow them."""

    def __init__(self, engine: Engine, *, policy: bool) -> None:
        super().__init__(engine, policy=policy)
        mixins = (TTLMixin,) if policy else ()

        class Base(DeclarativeBase):
            pass

        class Cart(*mixins, Base):  # type: ignore[misc]
            __tablename__ = "carts"
            if policy:
                __ttl__ = HOUR
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            writes: Mapped[int] = mapped_column(default=0)

        class Item(Base):
            __tablename__ = "items"
            if policy:
                __ttl__ = Follows("cart_id")
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            cart_id: Mapped[int] = mapped_column(ForeignKey(Cart.id), index=True)
            writes: Mapped[int] = mapped_column(default=0)

        self.cart: Any = Cart
        self.item: Any = Item
        self._base = Base
        self._new = itertools.count(10_000)
        self.metadata = Base.metadata
        self.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            for key in KEYS:
                self._put(session, key)

    @property
    def models(self) -> Any:
        return self._base

    @property
    def transactions(self) -> list[Callable[[Session, Writer], None]]:
        return [
            self._change_item,
            self._change_cart,
            self._change_item_then_cart,
            self._change_cart_then_item,
            self._change_items,
            self._change_by_core,
            self._add_and_delete,
            self._end,
            self._begin_again,
        ]

    def read(self, session: Session) -> None:
        session.scalars(select(self.item)).all()
        session.scalars(select(self.cart)).all()

    def _put(self, session: Session, key: int) -> None:
        session.add(self.cart(id=key))
        session.flush()
        session.add_all([self.item(id=key * 10 + number, cart_id=key) for number in range(4)])
        session.flush()

    def _write(self, session: Session, model: Any, *keys: int) -> None:
        for key in keys:
            row = session.get(model, key)
            if row is not None:
                row.writes += 1
        session.flush()

    def _change_item(self, session: Session, writer: Writer) -> None:
        self._write(session, self.item, writer.randrange(CARTS) * 10 + writer.randrange(4))

    def _change_cart(self, session: Session, writer: Writer) -> None:
        self._write(session, self.cart, writer.randrange(CARTS))

    def _change_item_then_cart(self, session: Session, writer: Writer) -> None:
        key = writer.randrange(CARTS)
        self._write(session, self.item, key * 10 + writer.randrange(2))
        self._write(session, self.cart, key)

    def _change_cart_then_item(self, session: Session, writer: Writer) -> None:
        key = writer.randrange(CARTS)
        self._write(session, self.cart, key)
        self._write(session, self.item, key * 10 + 2)

    def _change_items(self, session: Session, writer: Writer) -> None:
        first = writer.randrange(CARTS) * 10
        self._write(session, self.item, *range(first, first + 4))

    def _change_by_core(self, session: Session, writer: Writer) -> None:
        keys = [writer.randrange(CARTS) * 10 + 3 for _ in range(2)]
        changed = update(self.item).values(writes=self.item.writes + 1)
        session.execute(changed.where(self.item.id.in_(keys)))

    def _add_and_delete(self, session: Session, writer: Writer) -> None:
        cart = writer.randrange(CARTS)
        new = next(self._new)
        session.execute(insert(self.item).values(id=new, cart_id=cart, writes=0))
        session.execute(delete(self.item).where(self.item.id == new))

    def _end(self, session: Session, writer: Writer) -> None:
        if self.policy:
            age(session.connection(), "carts", writer.own, 2 * HOUR)
        else:
            self._write(session, self.cart, writer.own)

    def _begin_again(self, session: Session, writer: Writer) -> None:
        if session.get(self.cart, writer.own) is None:
            self._put(session, writer.own)


class Plain(SQLApp):
    """Rows that nothing follows: hot ones, and one of each writer, written by single statements."""

    def __init__(self, engine: Engine, *, policy: Any) -> None:
        """Make the rows; a `policy` is what their lifetime is declared by."""
        super().__init__(engine, policy=bool(policy))
        mixins = (TTLMixin,) if policy else ()

        class Base(DeclarativeBase):
            pass

        class Code(*mixins, Base):  # type: ignore[misc]
            __tablename__ = "codes"
            if policy:
                __ttl__ = policy
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            writes: Mapped[int] = mapped_column(default=0)

        self.code: Any = Code
        self.metadata = Base.metadata
        self.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            session.add_all([Code(id=key) for key in KEYS])

    @property
    def models(self) -> Any:
        return self.code

    @property
    def transactions(self) -> list[Callable[[Session, Writer], None]]:
        return [self._change, self._change_own, self._delete_nothing, self._find]

    def read(self, session: Session) -> None:
        session.scalars(select(self.code)).all()

    def _change(self, session: Session, writer: Writer) -> None:
        self._write(session, writer.randrange(CARTS))

    def _change_own(self, session: Session, writer: Writer) -> None:
        self._write(session, writer.own)

    def _write(self, session: Session, key: int) -> None:
        changed = update(self.code).values(writes=self.code.writes + 1)
        session.execute(changed.where(self.code.id == key))

    def _delete_nothing(self, session: Session, writer: Writer) -> None:
        key = writer.randrange(CARTS)
        session.execute(delete(self.code).where(self.code.id == key, self.code.writes < 0))

    def _find(self, session: Session, writer: Writer) -> None:
        session.get(self.code, writer.randrange(CARTS))


class Log(SQLApp):
    """Visits, in partitions of days; read first, and written then."""

    DAYS: Final = 6
    HOT: Final = range(1, 9)
    """The keys of those that live, today's."""

    def __init__(self, engine: Engine, *, policy: bool) -> None:
        super().__init__(engine, policy=policy)
        mixins = (TTLMixin,) if policy else ()

        class Base(DeclarativeBase):
            pass

        class Visit(*mixins, Base):  # type: ignore[misc]
            __tablename__ = "visits"
            if policy:
                __ttl__ = TTL(HOUR, max_lifetime=300 * 24 * HOUR, created="began")
                __ttl_partition__ = Partitions("1 day", ahead=2)
            else:
                __table_args__ = {"postgresql_partition_by": "RANGE (began)"}
            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            began: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
            writes: Mapped[int] = mapped_column(default=0)

        self.visit: Any = Visit
        self.metadata = Base.metadata
        self.metadata.create_all(engine)
        made = "CREATE TABLE visits_d{} PARTITION OF visits FOR VALUES FROM ('{}') TO ('{}')"
        fill = "INSERT INTO visits (id, began, writes) SELECT i, '{}', 0 FROM {} i"
        with engine.begin() as connection:
            if not policy:
                connection.execute(text("CREATE TABLE visits_rest PARTITION OF visits DEFAULT"))
            for day in range(3, 3 + self.DAYS):
                first, last = ago(connection, day), ago(connection, day - 1)
                connection.execute(text(made.format(day, first, last)))
                some = f"generate_series({day}000, {day}050)"
                connection.execute(text(fill.format(first, some)))
            if policy:
                connection.execute(text("UPDATE visits SET _ts = began"))
        with self.transaction() as session:
            today = ago(session.connection(), 0)
            # Not raw: a column's default in the database doesn't follow a clock that a test moves.
            session.add_all([Visit(id=key, began=today, writes=0) for key in self.HOT])

    @property
    def models(self) -> Any:
        return self.visit

    @property
    def transactions(self) -> list[Callable[[Session, Writer], None]]:
        return [self._count_and_write, self._write_and_count]

    def read(self, session: Session) -> None:
        visits = session.scalars(select(self.visit).where(self.visit.id.in_(self.HOT)))
        keys = sorted(visit.id for visit in visits)
        assert keys == [*self.HOT], f"a reader sees {keys}"

    def _count_and_write(self, session: Session, writer: Writer) -> None:
        session.scalar(select(func.count()).select_from(self.visit))
        self._write_and_count(session, writer)

    def _write_and_count(self, session: Session, writer: Writer) -> None:
        changed = update(self.visit).values(writes=self.visit.writes + 1)
        session.execute(changed.where(self.visit.id == writer.choice(self.HOT)))
        session.scalar(select(func.count()).select_from(self.visit))


def main() -> None:
    """Print the errors without a policy and with one."""
    parser = argparse.ArgumentParser(prog="python -m tests.sql.crowds")
    parser.add_argument("url", help="of an empty database")
    parser.add_argument("--isolation", help="the isolation level; the database's default without")
    parser.add_argument("--transactions", type=int, default=100, help="of each writer")
    parser.add_argument("--partitions", action="store_true", help="a partitioned table")
    options = parser.parse_args()
    level = {"isolation_level": options.isolation} if options.isolation else {}
    engine = create_engine(options.url, pool_size=CONNECTIONS, **level)
    kind = Log if options.partitions else Shop
    for policy in (False, True):
        load = Load(kind(engine, policy=policy), options.transactions).run()
        done, failed = load.done.total(), load.errors.total()
        name = "with" if policy else "without"
        print(f"{name} a policy: {failed} of {done + failed} failed")  # noqa: T201
        for words, number in load.errors.most_common():
            print(f"  {number} {words}")  # noqa: T201
        load.app.metadata.drop_all(engine)
    engine.dispose()


if __name__ == "__main__":
    main()
