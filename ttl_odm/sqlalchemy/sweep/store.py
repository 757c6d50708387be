"""The sweeper's stores for SQLAlchemy: `SQLAlchemyStore` and `AsyncSQLAlchemyStore`.

Both run the same functions on a `Connection`, one directly and one by ``run_sync``. Each call
takes a connection from the engine's pool and gives it back, so that a lost one is replaced by the
pool, and nothing is held while the sweeper pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.purge.errors import store_errors
from ttl_odm.sqlalchemy.purge.modes import mode_of
from ttl_odm.sqlalchemy.sweep.batch import purge
from ttl_odm.sqlalchemy.sweep.due import count, find_due, now
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
from ttl_odm.sqlalchemy.sweep.leases import AsyncTableLeases, TableLeases, declared_lease_table
from ttl_odm.sqlalchemy.sweep.targets import bindings_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Hooks, Pace
from ttl_odm.sweeper.declarations import hooks_of

R = TypeVar("R")
P = ParamSpec("P")

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sweeper import BatchRequest, BatchResult, Counted, Due, Pace

    _Work = Callable[Concatenate[Connection, P], R]


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
        self._pace = clock_of(dialect).pace  # or this dialect is none of ours
        self._dialect: Any = dialect
        self._given = targets
        self._bindings: dict[str, Binding] = {}
        self._keys = ReferringKeys()
        for name in self.targets():
            mode_of(self._bindings[name])  # a slip is found now, not at three in the morning

    @property
    def pace(self) -> Pace:
        """The batch sizes that suit the database."""
        return self._pace

    @property
    def backend(self) -> str:
        """The dialect's name. That ``mysql://`` leads to MariaDB, a connection has to tell."""
        is_mariadb = getattr(self._dialect, "is_mariadb", False)
        return "mariadb" if is_mariadb else str(self._dialect.name)

    def targets(self) -> Sequence[str]:
        """Name the tables; looked for each time, since models may have been declared since."""
        self._bindings = {binding.table.fullname: binding for binding in bindings_of(self._given)}
        return list(self._bindings)

    @property
    def hooks(self) -> Hooks:
        """What the models declare as ``__ttl_on_purged__``."""
        tables = self._bindings.items()
        return sum((hooks_of(binding.default.owner, name) for name, binding in tables), Hooks())

    def _lease_table(self) -> Table | None:
        return declared_lease_table(each.table.metadata for each in self._bindings.values())

    def _binding(self, target: str) -> Binding:
        return self._bindings[target]


class SQLAlchemyStore(_Tables):
    """A `ttl_odm.sweeper.Store` over an `Engine`, with all that a store may offer."""

    def __init__(self, engine: Engine, targets: Any) -> None:
        super().__init__(engine.dialect, targets)
        self._engine = engine

    @property
    def leases(self) -> TableLeases:
        """In a table of the same database."""
        return TableLeases(self._engine, self._lease_table())

    def due(self, target: str) -> Due | None:
        """Find what has expired in a table; None while its TTL is off."""
        return self._run(find_due, self._binding(target))

    def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of expired rows, and commit."""
        binding = self._binding(request.target)
        return self._run(purge, binding, request, self._keys)

    def count(self, target: str) -> Counted:
        """Count what has expired in a table, and its rows."""
        return self._run(count, self._binding(target))

    def now(self) -> datetime:
        """Return the database's present instant."""
        return self._run(now)

    def _run(self, work: _Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        with store_errors(), self._engine.connect() as connection:
            return work(connection, *args, **kwargs)


class AsyncSQLAlchemyStore(_Tables):
    """A `ttl_odm.sweeper.AsyncStore` over an `AsyncEngine`, with all that a store may offer."""

    def __init__(self, engine: AsyncEngine, targets: Any) -> None:
        super().__init__(engine.dialect, targets)
        self._engine = engine

    @property
    def leases(self) -> AsyncTableLeases:
        """In a table of the same database."""
        return AsyncTableLeases(self._engine, self._lease_table())

    async def due(self, target: str) -> Due | None:
        """Find what has expired in a table; None while its TTL is off."""
        return await self._run(find_due, self._binding(target))

    async def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of expired rows, and commit."""
        binding = self._binding(request.target)
        return await self._run(purge, binding, request, self._keys)

    async def count(self, target: str) -> Counted:
        """Count what has expired in a table, and its rows."""
        return await self._run(count, self._binding(target))

    async def now(self) -> datetime:
        """Return the database's present instant."""
        return await self._run(now)

    async def _run(self, work: _Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        with store_errors():
            async with self._engine.connect() as connection:
                return await connection.run_sync(work, *args, **kwargs)
