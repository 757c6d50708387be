"""What the tests of the sweeper share: tables to sweep, rows of any age, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    ForeignKey,
    String,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.sqlalchemy import TTLMixin, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection


HOUR = 3_600
servers = pytest.mark.databases("postgres", "mariadb", "mysql")
sweeps = pytest.mark.parametrize("sweep", ["index", "scan"])


def cart(ttl: Any = HOUR, sweep: str = "index") -> Any:
    """Declare a model on a base of its own."""

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = ttl
        __ttl_sweep__ = sweep

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    return Cart


def add(
    connection: Connection, table: str, rows: Iterable[tuple[Any, int | None, int]], key: str = "id"
) -> None:
    """Write rows of (key, own ttl, age in seconds), raw."""
    clock = clock_of(connection.dialect)
    connection.execute(
        text(
            f"INSERT INTO {table} ({key}, ttl, _ts) "  # noqa: S608 (a test's own table)
            f"VALUES (:key, :ttl, {clock.now} - :age * {clock.second})"
        ),
        [{"key": key, "ttl": ttl, "age": age} for key, ttl, age in rows],
    )


def add_at_once(connection: Connection, table: str, rows: int, ttl: int | None = None) -> None:
    """Write rows that all have the same ``_ts``, two hours ago."""
    add(connection, table, [(number, ttl, 0) for number in range(rows)])
    clock = clock_of(connection.dialect)
    moment = f"{clock.now} - {2 * HOUR} * {clock.second}"
    connection.execute(text(f"UPDATE {table} SET _ts = {moment}"))  # noqa: S608


def left(connection: Connection, model: Any) -> set[Any]:
    """The keys of all rows that are still stored."""
    column = next(iter(getattr(model, "__table__", model).primary_key))
    return set(connection.scalars(select(column).options(include_expired())))


def zoo(ondelete: str | None, sweep: str = "index") -> Any:
    class Base(DeclarativeBase):
        pass

    class Animal(TTLMixin, Base):
        __tablename__ = "animals"
        __ttl__ = HOUR
        __ttl_sweep__ = sweep
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}

        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str] = mapped_column(String(20))

    class Dog(Animal):
        __tablename__ = "dogs"
        __mapper_args__ = {"polymorphic_identity": "dog"}

        dog_id: Mapped[int] = mapped_column(
            ForeignKey(Animal.id, ondelete=ondelete), primary_key=True
        )

    class Puppy(Dog):
        __tablename__ = "puppies"
        __mapper_args__ = {"polymorphic_identity": "puppy"}

        puppy_id: Mapped[int] = mapped_column(
            ForeignKey(Dog.dog_id, ondelete=ondelete), primary_key=True
        )

    return Animal, Dog, Puppy
