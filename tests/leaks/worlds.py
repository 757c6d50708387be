"""Worlds with the same rows: two that know the right answers, and any number that should.

| world | rows | models |
|---|---|---|
| `CleanWorld` | those that `tests.leaks.data` says are live | plain SQLAlchemy |
| `TimelessWorld` | all | plain SQLAlchemy |
| `tests.leaks.living.LivingWorld` | all | with ttl_odm |

An expired row does not exist. So the right answer of a path is what plain SQLAlchemy gives in the
clean world; and a path whose answers in the clean and in the timeless world are the same would
prove nothing. This module must not import ttl_odm: `test_leaks` asks it without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, inspect
from sqlalchemy.orm import DeclarativeBase, Session

from tests.leaks.data import ROWS, TAGS_OF_CUSTOMERS, Row
from tests.leaks.models import make_models

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine, Table
    from sqlalchemy.orm import Mapper

    from tests.leaks.registry import Path

_ASYNC_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+aiomysql",
}


class Plain:
    """A mixin that does nothing with a default ttl."""

    def __init_subclass__(cls, ttl: int | None = None, **kw: Any) -> None:
        super().__init_subclass__(**kw)


class TimelessWorld:
    """A database of all rows, read by plain SQLAlchemy; the models are its attributes.

    Other worlds are made from it by overriding what they do otherwise.

    Args:
        url: an empty database.
    """

    mixin: type = Plain

    def __init__(self, url: str) -> None:
        self._models = make_models(self.mixin, type("Base", (DeclarativeBase,), {}))
        self.engine: Engine = create_engine(url)
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", enforce_foreign_keys)
        for base in (self._models.Base, self._models.Elsewhere):
            base.metadata.create_all(self.engine)
        with self.engine.begin() as connection:
            for row in filter(self.holds, ROWS):
                self._insert(connection, row, inspect(getattr(self, row.model)))
            connection.execute(
                self.customer_tags.insert(),
                [
                    dict(zip(("customer_id", "tag_id"), tie, strict=True))
                    for tie in TAGS_OF_CUSTOMERS
                ],
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._models, name)

    @property
    def async_url(self) -> URL:
        """The database's URL for an asynchronous engine."""
        url = self.engine.url
        return url.set(drivername=_ASYNC_DRIVERS[url.get_backend_name()], query={})

    def answer(self, path: Path, engine: Engine | None = None) -> Any:
        """Run a path on a session of its own, and roll back what it changes."""
        with Session(engine or self.engine) as session:
            return path.run(session, self)

    def holds(self, row: Row) -> bool:
        """Whether a row is put into the tables."""
        del row  # other worlds ask it
        return True

    def give_lifetime(self, connection: Connection, table: Table, row: Row) -> None:
        """Write into a row what its end depends on."""

    def pass_time(self, session: Session, *objects: Any) -> None:
        """Let so much time pass for these loaded objects that their default ttl is over."""

    def clean_up(self, session: Session, *objects: Any) -> None:
        """Delete the rows of objects whose time has passed, where their keys aren't free before."""

    def let_pass(self, session: Session, model: Any, seconds: int) -> None:
        """Let so many seconds pass for the rows of a class's table, behind SQLAlchemy's back."""

    def _insert(self, connection: Connection, row: Row, mapper: Mapper[Any]) -> None:
        values = {**row.values, "kind": mapper.polymorphic_identity}
        for table in mapper.tables:
            columns = {name: value for name, value in values.items() if name in table.c}
            connection.execute(table.insert().values(columns))
        self.give_lifetime(connection, lasting_table(mapper), row)


World = TimelessWorld


def enforce_foreign_keys(connection: Any, _: object) -> None:
    """Let SQLite do as the others do."""
    connection.execute("PRAGMA foreign_keys = ON")


def lasting_table(mapper: Mapper[Any]) -> Table:
    """The table that holds a row's lifetime, if it has one: that of the base."""
    table: Any = mapper.local_table if mapper.concrete else mapper.base_mapper.local_table
    return table


def delete_rows(session: Session, *objects: Any) -> None:
    """Delete the rows of objects by their keys, behind SQLAlchemy's back."""
    for each in objects:
        for table in reversed(inspect(each).mapper.tables):
            (key,), (value,) = table.primary_key, inspect(each).identity
            session.connection().execute(table.delete().where(key == value))


class CleanWorld(TimelessWorld):
    """The database without the rows that have expired."""

    def holds(self, row: Row) -> bool:
        """Whether it is live."""
        return row.life.live

    def pass_time(self, session: Session, *objects: Any) -> None:
        """Delete the rows behind SQLAlchemy's back, and let it look for them again."""
        delete_rows(session, *objects)
        for each in objects:
            session.expire(each)
