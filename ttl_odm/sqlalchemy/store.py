"""The sweeper's stores for SQLAlchemy: `SQLAlchemyStore` and `AsyncSQLAlchemyStore`.

Both run the same functions on a `Connection`, one directly and one by ``run_sync``. Each call
takes a connection from the engine's pool and gives it back, so that a lost one is replaced by the
pool, and nothing is held while the sweeper pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.clock import clock_of
from ttl_odm.sqlalchemy.connections import prepared
from ttl_odm.sqlalchemy.due import find_due
from ttl_odm.sqlalchemy.faults import store_errors
from ttl_odm.sqlalchemy.purge import purge
from ttl_odm.sqlalchemy.targets import bindings_of
from ttl_odm.sweeper import Pace

R = TypeVar("R")
P = ParamSpec("P")

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.binding import Binding
    from ttl_odm.sweeper import BatchResult, Due, Part

    _Work = Callable[Concatenate[Connection, Binding, P], R]

_PACES: Final = {
    "postgresql": Pace(start=1_000, lowest=100, highest=10_000, target=0.1),
    "mysql": Pace(start=1_000, lowest=100, highest=5_000, target=0.1),
    "mariadb": Pace(start=1_000, lowest=100, highest=5_000, target=0.1),
    # One writer at a time: each batch keeps every other user of the file waiting.
    "sqlite": Pace(start=200, lowest=50, highest=1_000, target=0.025, rest=1.0),
}


def open_store(engine: Any, targets: Any) -> SQLAlchemyStore | AsyncSQLAlchemyStore:
    """Make the store of an engine; the entry point ``sqlalchemy`` of ``ttl_odm.stores``.

    Args:
        engine: An `Engine` or an `AsyncEngine`.
        targets: A declarative base, a registry, a MetaData, a model, a Table, or a list of these.

    Raises:
        TTLConfigurationError: One of them isn't.
    """
    if isinstance(engine, Engine):
        return SQLAlchemyStore(engine, targets)
    if isinstance(engine, AsyncEngine):
        return AsyncSQLAlchemyStore(engine, targets)
    raise TTLConfigurationError(
        f"A sweeper needs an Engine or an AsyncEngine, not {type(engine).__name__}: it keeps no "
        "connection while it pauses."
    )


class _Tables:
    """The tables of a store, by name, and the pace of their database."""

    def __init__(self, dialect: Dialect, targets: Any) -> None:
        clock_of(dialect)  # or this dialect is none of ours
        self._pace = _PACES[dialect.name]
        self._given = targets
        self._bindings: dict[str, Binding] = {}
        self.targets()

    @property
    def pace(self) -> Pace:
        """The batch sizes that suit the database."""
        return self._pace

    def targets(self) -> Sequence[str]:
        """Name the tables; looked for each time, since models may have been declared since."""
        self._bindings = {binding.table.fullname: binding for binding in bindings_of(self._given)}
        return list(self._bindings)

    def _binding(self, target: str) -> Binding:
        return self._bindings[target]


class SQLAlchemyStore(_Tables):
    """A `ttl_odm.sweeper.Store` over an `Engine`."""

    def __init__(self, engine: Engine, targets: Any) -> None:
        super().__init__(engine.dialect, targets)
        self._engine = engine

    def due(self, target: str) -> Due | None:
        """Find what has expired in a table; None while its TTL is off."""
        return self._run(find_due, self._binding(target))

    def purge(self, target: str, part: Part, size: int, resume: object) -> BatchResult:
        """Delete a batch of expired rows, and commit."""
        return self._run(purge, self._binding(target), part, size, resume)

    def _run(self, work: _Work[P, R], binding: Binding, *args: P.args, **kwargs: P.kwargs) -> R:
        with store_errors(binding.table), self._engine.connect() as connection:
            return _do(connection, work, binding, *args, **kwargs)


class AsyncSQLAlchemyStore(_Tables):
    """A `ttl_odm.sweeper.AsyncStore` over an `AsyncEngine`."""

    def __init__(self, engine: AsyncEngine, targets: Any) -> None:
        super().__init__(engine.dialect, targets)
        self._engine = engine

    async def due(self, target: str) -> Due | None:
        """Find what has expired in a table; None while its TTL is off."""
        return await self._run(find_due, self._binding(target))

    async def purge(self, target: str, part: Part, size: int, resume: object) -> BatchResult:
        """Delete a batch of expired rows, and commit."""
        return await self._run(purge, self._binding(target), part, size, resume)

    async def _run(
        self, work: _Work[P, R], binding: Binding, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        with store_errors(binding.table):
            async with self._engine.connect() as connection:
                return await connection.run_sync(
                    lambda each: _do(each, work, binding, *args, **kwargs)
                )


def _do(
    connection: Connection, work: _Work[P, R], binding: Binding, *args: P.args, **kwargs: P.kwargs
) -> R:
    with prepared(connection):
        return work(connection, binding, *args, **kwargs)
