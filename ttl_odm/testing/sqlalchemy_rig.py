"""`SQLAlchemyRig`: the rig of SQLAlchemy's store for `ttl_odm.testing.StoreContract`.

It is for authors of a database's family, and for ttl_odm's own tests. It works on any database; a
subclass adds the abilities of its database (hold a row, refuse one).

This module must not know pytest.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, MetaData, String, Table, event, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.sqlalchemy import TTLMixin, include_expired
from ttl_odm.sqlalchemy.sweep.store import open_store
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.testing.rig import StoreRig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    from ttl_odm.sweeper import ArchiveSink

_OUTBOX = "outbox"


class SQLAlchemyRig(StoreRig):
    """A store over an engine; a second engine of the same database bypasses the store."""

    def __init__(self, engine: Any, behind: Engine, *, sweep: str = "index") -> None:
        """Create the store, and a table for the hooks to write to.

        Args:
            engine: An `Engine` or `AsyncEngine` with a pool, on a database without tables.
            behind: A synchronous engine for the same database.
            sweep: The ``__ttl_sweep__`` of the models.
        """
        super().__init__()

        class Base(DeclarativeBase):
            pass

        self.engine = engine
        self.sync_engine: Engine = getattr(engine, "sync_engine", engine)
        self.store = open_store(engine, Base)
        self.behind = behind
        self._base: Any = Base
        self._sweep = sweep
        self._models: dict[str, Any] = {}
        self._outbox = Table(_OUTBOX, MetaData(), Column("text", String(200)))
        self._outbox.create(behind)

    def create(self, target: str, default: int | None, hooks: object = None) -> None:
        """See `StoreRig`."""
        self._create(target, {"__ttl__": default, "__ttl_on_purged__": hooks})

    def create_archived(self, target: str, default: int | None, sink: ArchiveSink) -> None:
        """See `CanArchive`."""
        self._create(target, {"__ttl__": default, "__ttl_archive__": sink})

    def _create(self, target: str, declared: dict[str, object]) -> None:
        members = {
            "__tablename__": target,
            "__ttl_sweep__": self._sweep,
            "__annotations__": {"id": Mapped[int]},
            "id": mapped_column(primary_key=True, autoincrement=False),
            **declared,
        }
        self._models[target] = type(target.title(), (TTLMixin, self._base), members)
        self._base.metadata.create_all(self.behind)
        self.store.targets()

    def set_default(self, target: str, default: int | None) -> None:
        """See `StoreRig`."""
        self._models[target].__ttl__ = default

    def add(self, target: str, keys: Sequence[int], *, age: float, ttl: int | None = None) -> None:
        """See `StoreRig`."""
        if not keys:
            return
        clock = clock_of(self.behind.dialect)
        with self.behind.begin() as connection:
            now = connection.scalar(text(f"SELECT {clock.now} - {int(age)} * {clock.second}"))
            connection.execute(
                text(f"INSERT INTO {target} (id, ttl, _ts) VALUES (:id, :ttl, :now)"),  # noqa: S608
                [{"id": key, "ttl": ttl, "now": now} for key in keys],
            )

    def renew(self, target: str, key: int) -> None:
        """See `StoreRig`."""
        stamp = clock_of(self.behind.dialect).stamp
        with self.behind.begin() as connection:
            connection.execute(
                text(f"UPDATE {target} SET _ts = {stamp} WHERE id = :id"),  # noqa: S608
                {"id": key},
            )

    def keys(self, target: str) -> set[int]:
        """See `StoreRig`."""
        with self.behind.connect() as connection:
            rows = select(self._models[target].id).options(include_expired())
            return set(connection.scalars(rows))

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        """See `StoreRig`."""
        actions = [action]

        def act(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith("DELETE") and actions:
                actions.pop()()

        event.listen(self.sync_engine, "before_cursor_execute", act)
        try:
            yield
        finally:
            event.remove(self.sync_engine, "before_cursor_execute", act)
        if actions:
            raise AssertionError("Nothing was deleted.")

    def end_lease(self, name: str) -> None:
        """See `StoreRig`."""
        clock = clock_of(self.behind.dialect)
        ended = f"{clock.now} - 3600 * {clock.second}"
        with self.behind.begin() as connection:
            connection.execute(
                text(f"UPDATE ttl_odm_lease SET acquired_until = {ended} WHERE name = :name"),  # noqa: S608
                {"name": name},
            )

    def write(self, transaction: Any, text: str) -> object:
        """See `CanWrite`."""
        return transaction.execute(insert(self._outbox).values(text=text))

    def written(self) -> list[str]:
        """See `CanWrite`."""
        with self.behind.connect() as connection:
            return list(connection.scalars(select(self._outbox.c.text)))

    def close(self) -> None:
        """Drop the tables, and check that the store has returned all its connections."""
        lost = self.sync_engine.pool.checkedout()  # type: ignore[attr-defined]  # of a QueuePool
        self.run(self.engine.dispose())
        with self.behind.begin() as connection:
            for table in reversed(self._base.metadata.sorted_tables):
                table.drop(connection)
            for name in (_OUTBOX, "ttl_odm_lease"):
                connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
        self.behind.dispose()
        super().close()
        if lost:
            raise AssertionError(f"The store has kept {lost} connections.")
