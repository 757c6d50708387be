"""Tables for sweepers that meet with accidents: what is purged is kept in one of two ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Integer, MetaData, Table, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.sqlalchemy import Archive, TTLMixin, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from ttl_odm.sweeper import Purged

HOUR = 3_600

# Without a key, so that a row which is kept twice is there twice.
kept = Table("kept", MetaData(), Column("id", Integer))


def tell(purged: Purged) -> None:
    """Keep the keys: a hook in the deleting transaction."""
    purged.transaction.execute(insert(kept), [{"id": key} for (key,) in purged.keys])


def cart(mode: str) -> Any:
    """Declare a model whose purged rows go to `kept`, by an "archive" or a "hook", or are gone."""

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR
        __ttl_archive__ = Archive(kept) if mode == "archive" else None
        __ttl_on_purged__ = tell if mode == "hook" else None

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    return Cart


def create(connection: Connection, model: Any) -> None:
    """Make both tables."""
    model.metadata.create_all(connection)
    kept.create(connection)


def add(connection: Connection, keys: Iterable[int], *, age: float) -> None:
    """Write rows that were last modified so many seconds ago, each a little later."""
    clock = clock_of(connection.dialect)
    moment = f"{clock.now} - :age * {clock.second}"
    rows = [{"id": key, "age": int(age) - place % 100} for place, key in enumerate(keys)]
    if rows:
        connection.execute(text(f"INSERT INTO carts (id, _ts) VALUES (:id, {moment})"), rows)  # noqa: S608


def left(connection: Connection, model: Any) -> set[int]:
    """The keys of all rows that are still there."""
    return set(connection.scalars(select(model.id).options(include_expired())))


def kept_keys(connection: Connection) -> list[int]:
    """The keys that were kept, as often as they were."""
    return sorted(connection.scalars(select(kept.c.id)))
