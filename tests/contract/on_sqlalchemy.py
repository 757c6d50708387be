"""SQLAlchemy as a `Subject`: synchronous, and the same through an AsyncSession."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import (
    AsyncAdaptedQueuePool,
    DateTime,
    QueuePool,
    create_engine,
    delete,
    event,
    exists,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    configure_mappers,
    joinedload,
    mapped_column,
    selectinload,
)

from tests.clocks import stop_clock
from tests.contract import tables
from tests.contract.raw_tables import NAMES, RawTables, in_haste
from tests.contract.subject import CONTAINERS, TableSubject
from tests.contract.tables import DECLARED, Tables
from ttl_odm import ExpiredError
from ttl_odm.sqlalchemy import TTLMixin, touch
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from tests.backends import Backend
    from tests.contract.subject import Loaded

    Work = Callable[[Session], Any]

UPSERTS: dict[str, Any] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
    "mysql": mysql.insert,
}


class OnSQLAlchemy(TableSubject):
    """What both have in common: everything that is done with a Session."""

    adapter = "SQLAlchemy"
    checked = "carts"
    unchecked = "permits"
    remembering = "carts"
    gone = (ExpiredError,)
    missing = (InvalidRequestError,)
    duplicate = (IntegrityError,)
    restricted = (IntegrityError,)
    refused = (DBAPIError,)

    tables: ClassVar[type[RawTables]] = RawTables
    declared: ClassVar[Tables] = DECLARED

    def __init__(self, backend: Backend) -> None:
        self.raw = self.tables(backend)
        self.database = NAMES[backend.database]
        self.tick = self.raw.tick
        self.declared.base.metadata.create_all(self.raw.engine)

    @property
    @abstractmethod
    def sync_engine(self) -> Engine:
        """The engine under test, for events."""

    @abstractmethod
    def do(self, work: Work) -> Any:
        """Call a function with a session of its own, and commit."""

    @abstractmethod
    def open(self) -> tuple[Any, Callable[[Work], Any]]:
        """Open a session, and return it and how to call a function with it."""

    def server(self) -> str:
        return self.raw.server()

    # Past the gate

    def clear(self) -> None:
        self.raw.clear()
        tables.told.clear()
        for name in self.declared.models:
            self.set_policy(name, CONTAINERS[name].policy)

    def now(self) -> datetime:
        return self.raw.now()

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        actions = [action]

        def act(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith("DELETE") and actions:
                actions.pop()()

        event.listen(self.sync_engine, "before_cursor_execute", act)
        try:
            yield
        finally:
            event.remove(self.sync_engine, "before_cursor_execute", act)
        assert not actions

    def put_at(self, container: str, key: int, at: Any, **values: Any) -> None:
        self.raw.put(container, key, at, **values)

    def move_to(self, container: str, key: int, at: datetime) -> None:
        self.raw.move(container, key, at)

    def stored(self, container: str, key: int) -> Mapping[str, Any] | None:
        return self.raw.stored(container, key)

    def keys(self, container: str) -> set[int]:
        return self.raw.keys(container)

    def put_line(self, key: int, cart: int) -> None:
        self.raw.uses("carts")
        self.raw.insert("lines", id=key, cart_id=cart)

    def put_raw_ttl(self, container: str, key: int, value: Any) -> None:
        self.raw.uses(container)
        with self.raw.engine.begin() as connection:
            connection.execute(
                text(f"INSERT INTO {container} (id, views, ttl) VALUES (:id, 0, :ttl)"),  # noqa: S608
                {"id": key, "ttl": value},
            )

    # What an application does

    def set_policy(self, container: str, declared: Any) -> None:
        self.declared.models[container].__ttl__ = declared

    def declare(self, declared: Any) -> None:
        class Own(DeclarativeBase):
            pass

        try:

            class Thing(TTLMixin, Own):
                __tablename__ = "things"
                __ttl__ = declared

                id: Mapped[int] = mapped_column(primary_key=True)
                at = mapped_column(DateTime(timezone=True))

            configure_mappers()
        finally:
            Own.registry.dispose()

    def readings(self, container: str) -> Mapping[str, set[int] | int]:
        model = self.declared.models[container]
        table, other = model.__table__, aliased(model)
        stored = self.keys(container)

        def read(session: Session) -> dict[str, set[int] | int]:
            found = {key for key in stored if session.get(model, key) is not None}
            session.expunge_all()
            inner = select(other.id).where(other.id == table.c.id)
            connection = session.connection()
            return {
                "get": found,
                "entities": {row.id for row in session.scalars(select(model))},
                "columns": set(session.scalars(select(model.id))),
                "an alias": set(session.scalars(select(other.id))),
                "Core": set(connection.scalars(select(table.c.id))),
                "EXISTS": set(session.scalars(select(model.id).where(exists(inner)))),
                "IN": set(session.scalars(select(model.id).where(model.id.in_(select(other.id))))),
                "count": session.scalar(select(func.count()).select_from(model)) or 0,
                "Query.count": session.query(model).count(),
            }

        found: dict[str, set[int] | int] = self.do(read)
        return found

    def keys_with_expired(self, container: str) -> set[int]:
        wanted = select(self.declared.models[container].id).execution_options(include_expired=True)
        return set(self.do(lambda session: session.scalars(wanted).all()))

    def writes(self, container: str) -> Mapping[str, Callable[[int], object]]:
        return self._writes(container)

    def keeping_writes(self, container: str) -> Mapping[str, Callable[[int], object]]:
        return {
            name: write
            for name, write in self._writes(container, keep_last_modified=True).items()
            if name not in ("flush", "merge")
        }

    def _writes(self, container: str, **options: Any) -> dict[str, Callable[[int], object]]:
        model = self.declared.models[container]
        table = model.__table__

        def flush(session: Session, key: int) -> None:
            row = session.get(model, key)
            if row is not None:
                row.views += 1

        def merge(session: Session, key: int) -> None:
            if session.get(model, key) is not None:
                session.merge(model(id=key, views=99))

        def run(statement: Any, parameters: Any = None) -> Any:
            return lambda session, _: session.execute(
                statement, parameters, execution_options=options
            )

        more = {"views": model.views + 1}
        works: dict[str, Callable[[Session, int], Any]] = {
            "flush": flush,
            "merge": merge,
            "bulk update": lambda s, key: run(update(model).where(model.id == key).values(more))(
                s, key
            ),
            "Core update": lambda s, key: run(
                table.update().where(table.c.id == key).values(views=table.c.views + 1)
            )(s, key),
            "update by primary key": lambda s, key: s.execute(
                update(model), [{"id": key, "views": 7}], execution_options=options
            ),
        }
        return {
            name: lambda key, work=work: self.do(lambda session: work(session, key))
            for name, work in works.items()
        }

    def update_all(self, container: str, **values: Any) -> int:
        changed: int = self.do(
            lambda session: (
                session.execute(update(self.declared.models[container]).values(**values)).rowcount
            )
        )
        return changed

    def touch(self, container: str, *keys: int, **arguments: Any) -> int:
        model = self.declared.models[container]
        statement = touch(model, **arguments)
        if keys:
            statement = statement.where(model.id.in_(keys))
        renewed: int = self.do(lambda session: session.execute(statement).rowcount)
        return renewed

    def touched(self, container: str, key: int, **arguments: Any) -> int | None:
        model = self.declared.models[container]
        statement = touch(model, **arguments).where(model.id == key)

        def renew(session: Session) -> Any:
            if session.get_bind().dialect.update_returning:
                return session.scalars(statement.returning(model)).one_or_none()
            session.execute(statement)
            return session.get(model, key)

        found: int | None = self.do(lambda session: getattr(renew(session), "id", None))
        return found

    def delete_all(self, container: str) -> int:
        gone: int = self.do(
            lambda session: session.execute(delete(self.declared.models[container])).rowcount
        )
        return gone

    def inserts(self, container: str) -> Mapping[str, Callable[..., object]]:
        model = self.declared.models[container]
        self.raw.uses(container)

        def add(key: int, **values: Any) -> None:
            self.do(lambda session: session.add(model(id=key, **values)))

        def bulk(key: int, **values: Any) -> None:
            self.do(lambda session: session.execute(insert(model), [{"id": key, **values}]))

        def core(key: int, **values: Any) -> None:
            columns = {"id": key, "views": 0, **values}
            self.do(lambda session: session.execute(model.__table__.insert().values(columns)))

        def merge(key: int, **values: Any) -> None:
            if key in self.readings(container)["entities"]:  # type: ignore[operator]
                raise IntegrityError("", {}, Exception("merge would update it"))
            self.do(lambda session: session.merge(model(id=key, **values)))

        return {"flush": add, "bulk insert": bulk, "Core insert": core, "merge": merge}

    def upserts(self, container: str) -> Mapping[str, Callable[..., object]]:
        model, dialect = self.declared.models[container], self.raw.dialect
        self.raw.uses(container)

        def into(target: Any) -> Callable[..., object]:
            def upsert(key: int, **values: Any) -> None:
                statement = UPSERTS[dialect](target).values(id=key, **{"views": 0, **values})
                if dialect == "mysql":
                    statement = statement.on_duplicate_key_update(**values)
                else:
                    statement = statement.on_conflict_do_update(index_elements=["id"], set_=values)
                self.do(lambda session: session.execute(statement))

            return upsert

        return {"ORM": into(model), "Core": into(model.__table__)}

    def ways_to_set_ttl(self, container: str) -> Mapping[str, Callable[[int, Any], object]]:
        model, own = self.declared.models[container], CONTAINERS[container].own or ""
        column = model.__table__.c[own]

        def attribute(session: Session, key: int, value: Any) -> None:
            setattr(session.get(model, key), own, value)

        works: dict[str, Callable[[Session, int, Any], Any]] = {
            "attribute": attribute,
            "bulk update": lambda s, key, value: s.execute(
                update(model).where(model.id == key).values({own: value})
            ),
            "update by primary key": lambda s, key, value: s.execute(
                update(model), [{"id": key, own: value}]
            ),
            "Core update": lambda s, key, value: s.execute(
                model.__table__.update().where(model.id == key).values({column: value})
            ),
            "flush of a new row": lambda s, key, value: (
                s.execute(delete(model).where(model.id == key)),
                s.add(model(id=key, **{own: value})),
            ),
            "bulk insert": lambda s, key, value: (
                s.execute(delete(model).where(model.id == key)),
                s.execute(insert(model), [{"id": key, own: value}]),
            ),
        }
        return {
            name: lambda key, value, work=work: self.do(lambda s: work(s, key, value))
            for name, work in works.items()
        }

    @contextmanager
    def loaded(self, container: str, key: int) -> Iterator[Loaded]:
        model = self.declared.models[container]
        session, run = self.open()

        def load(session: Session) -> Any:
            found = session.get(model, key)
            assert found is not None
            session.commit()
            return found

        try:
            yield _Loaded(run(load), key, run)
        finally:
            run(lambda session: session.rollback())
            closing = session.close()
            if closing is not None:
                self._wait(closing)

    def _wait(self, awaitable: Any) -> Any:
        raise AssertionError(awaitable)

    def reached(self, line: int) -> Mapping[str, int | None]:
        cart, line_of = self.declared.models["carts"], self.declared.line

        def key(row: Any) -> int | None:
            return None if row is None or row.cart is None else row.cart.id

        def read(session: Session) -> dict[str, int | None]:
            found: dict[str, int | None] = {}
            one = select(line_of).where(line_of.id == line)
            for name, options in {
                "a lazy load": [],
                "joinedload": [joinedload(line_of.cart)],
                "selectinload": [selectinload(line_of.cart)],
            }.items():
                session.expunge_all()
                found[name] = key(session.scalars(one.options(*options)).one())
            session.expunge_all()
            found["a join"] = session.scalar(
                select(cart.id).join(line_of, line_of.cart_id == cart.id).where(line_of.id == line)
            )
            found["an outer join"] = session.scalar(
                select(cart.id).select_from(line_of).outerjoin(cart).where(line_of.id == line)
            )
            found["any of the relationship"] = session.scalar(
                select(line_of.cart_id).where(line_of.id == line, line_of.cart.has())
            )
            return found

        found: dict[str, int | None] = self.do(read)
        return found

    def told(self) -> list[tuple[str, set[int]]]:
        return [(each.reason, {key for (key,) in each.keys}) for each in tables.told]

    def archived(self) -> set[int]:
        return self.raw.keys("old_seats")

    def archived_lives(self, key: int) -> int:
        return self.raw.count("old_seats", key)

    def insert_gift(self, key: int) -> None:
        self.raw.uses("orders", "gifts")
        self.do(lambda session: session.add(self.declared.gift(id=key, wish="old")))

    def gift_writes(self) -> Mapping[str, Callable[[int], object]]:
        gift = self.declared.gift

        def flush(session: Session, key: int) -> None:
            session.get_one(gift, key).wish = "by flush"

        table = gift.__table__
        works: dict[str, Callable[[Session, int], Any]] = {
            "flush": flush,
            "bulk update": lambda s, key: s.execute(
                update(gift).where(gift.id == key).values(wish="in bulk")
            ),
            "Core update": lambda s, key: s.execute(
                table.update().where(table.c.id == key).values(wish="by Core")
            ),
        }
        return {
            name: lambda key, work=work: self.do(lambda session: work(session, key))
            for name, work in works.items()
        }

    def close(self) -> None:
        self.clear()
        assert self.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        self.raw.engine.dispose()


class SyncSQLAlchemy(OnSQLAlchemy):
    """Over an Engine."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        assert backend.sync_url is not None
        self.engine = create_engine(backend.sync_url, poolclass=QueuePool)
        if self.raw.dialect == "sqlite":
            event.listen(self.engine, "connect", in_haste)
        self.driver = {"pysqlite": "sqlite3"}.get(self.engine.driver, self.engine.driver)
        if self.driver == "pg8000":  # it knows one kind of violation, that of a unique key
            self.restricted = (DBAPIError,)
        self._on: Connection | None = None

    @property
    def sync_engine(self) -> Engine:
        return self.engine

    def do(self, work: Work) -> Any:
        with self._session() as session, session.begin():
            return work(session)

    def _session(self) -> Session:
        if self._on is not None:
            return Session(self._on, join_transaction_mode="rollback_only")
        return Session(self.engine)

    def open(self) -> tuple[Any, Callable[[Work], Any]]:
        session = self._session()
        session.expire_on_commit = False
        return session, lambda work: work(session)

    @contextmanager
    def stopped(self, instant: datetime) -> Iterator[None]:
        with self.engine.connect() as connection, connection.begin() as transaction:
            stop_clock(connection, instant)
            self._on = connection
            try:
                yield
            finally:
                self._on = None
                transaction.rollback()
                connection.invalidate()

    def sweep(self, container: str) -> int:
        return (
            Sweeper(self.engine, [self.declared.models[container]], lease=False).run_once().deleted
        )

    def close(self) -> None:
        super().close()
        self.engine.dispose()


class AsyncSQLAlchemy(OnSQLAlchemy):
    """Over an AsyncEngine."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        assert backend.async_url is not None
        self.engine = create_async_engine(backend.async_url, poolclass=AsyncAdaptedQueuePool)
        if self.raw.dialect == "sqlite":
            event.listen(self.engine.sync_engine, "connect", in_haste)
        self.driver = f"{self.engine.sync_engine.driver}, async"
        self._on: AsyncConnection | None = None
        self._loop = asyncio.new_event_loop()

    @property
    def sync_engine(self) -> Engine:
        return self.engine.sync_engine

    def _wait(self, awaitable: Any) -> Any:
        return self._loop.run_until_complete(awaitable)

    def do(self, work: Work) -> Any:
        async def run() -> Any:
            async with self._session() as session, session.begin():
                return await session.run_sync(work)

        return self._wait(run())

    def _session(self) -> AsyncSession:
        if self._on is not None:
            return AsyncSession(self._on, join_transaction_mode="rollback_only")
        return AsyncSession(self.engine)

    def open(self) -> tuple[Any, Callable[[Work], Any]]:
        session = self._session()
        session.sync_session.expire_on_commit = False
        return session, lambda work: self._wait(session.run_sync(work))

    @contextmanager
    def stopped(self, instant: datetime) -> Iterator[None]:
        connection = self._wait(self._connect())
        self._wait(connection.run_sync(stop_clock, instant))
        self._on = connection
        try:
            yield
        finally:
            self._on = None
            self._wait(connection.rollback())
            self._wait(connection.invalidate())
            self._wait(connection.close())

    async def _connect(self) -> AsyncConnection:
        return await self.engine.connect()

    def sweep(self, container: str) -> int:
        sweeper = AsyncSweeper(self.engine, [self.declared.models[container]], lease=False)
        deleted: int = self._wait(sweeper.run_once()).deleted
        return deleted

    def close(self) -> None:
        super().close()
        self._wait(self.engine.dispose())
        self._loop.close()


class _Loaded:
    """An object in a session that has committed: what is done next is a transaction of its own."""

    def __init__(self, row: Any, key: int, run: Callable[[Work], Any]) -> None:
        self._row = row
        self._key = key
        self._run = run

    @property
    def expires_at(self) -> datetime | None:
        end: datetime | None = self._run(lambda _: self._row.expires_at)
        return end

    def write(self, **values: Any) -> None:
        def work(session: Session) -> None:
            for name, value in values.items():
                setattr(self._row, name, value)
            session.commit()

        self._run(work)

    def write_nothing(self) -> None:
        self.write(views=self._row.views)

    def delete(self) -> int:
        def work(session: Session) -> None:
            session.delete(self._row)
            session.commit()

        self._run(work)
        return 1

    def refresh(self) -> None:
        self._run(lambda session: session.refresh(self._row))

    def touch(self) -> None:
        self.help("touch")

    def help(self, name: str, *arguments: Any) -> None:
        def work(session: Session) -> None:
            getattr(self._row, name)(*arguments)
            session.commit()

        self._run(work)

    def is_still_served(self) -> bool:
        model = type(self._row)
        found: bool = self._run(lambda session: session.get(model, self._key) is not None)
        return found
