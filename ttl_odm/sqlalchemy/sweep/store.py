"""The sweeper's stores for SQLAlchemy: `SQLAlchemyStore` and `AsyncSQLAlchemyStore`.

They sweep the TTL tables of a declarative base, a registry, a MetaData, models or Tables. Both run
the same functions on a `Connection`, one directly and one by ``run_sync``. Each call takes a
connection from the engine's pool and returns it, so that the pool replaces a lost one, and the
sweeper holds none while it pauses.

Most tables hold their rows themselves (`Plain`). For those that PostgreSQL keeps in several tables,
even if no model says so, this module names an extension, which isn't imported before there is such
a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, cast

from sqlalchemy import Engine, MetaData, StaticPool, Table, inspect, select
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.exc import UnmappedClassError
from sqlalchemy.schema import sort_tables_and_constraints

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.errors import is_missing_table
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import Binding, binding_of, bound_tables
from ttl_odm.sqlalchemy.policy.references import (
    referred_table,
    root_of,
    rule_of,
    ruled_tables,
)
from ttl_odm.sqlalchemy.purge.removal import mode_of
from ttl_odm.sqlalchemy.rewrite.from_clauses import binding_of_source, target_name
from ttl_odm.sqlalchemy.sweep import table_walk
from ttl_odm.sqlalchemy.sweep.batch import Without, purge
from ttl_odm.sqlalchemy.sweep.counts import count, count_facts
from ttl_odm.sqlalchemy.sweep.due import PartIndex, find_due, walk_of
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
from ttl_odm.sqlalchemy.sweep.leases import AsyncTableLeases, TableLeases, declared_lease_table
from ttl_odm.sqlalchemy.sweep.transactions import (
    asked,
    has_children,
    name_of,
    prepared,
    reading,
    store_errors,
    zone_settings,
)
from ttl_odm.sqlalchemy.sweep.whereabouts import Further, Whereabouts
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import BatchResult, Hooks, MissingTargetError, Part, Server
from ttl_odm.sweeper.hooks import hooks_of

R = TypeVar("R")
P = ParamSpec("P")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, FromClause
    from sqlalchemy.engine import Dialect
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.sqlalchemy.policy.rules import Checked
    from ttl_odm.sqlalchemy.purge.removal import KeyRange
    from ttl_odm.sqlalchemy.sweep.whereabouts import Find, Marks, Stretch
    from ttl_odm.sweeper import BatchRequest, Counted, Due, Fact, Pace
    from ttl_odm.sweeper.findings import Finding

    _Work = Callable[Concatenate[Connection, P], R]


_OF_CHILDREN: Final = "ttl_odm.partitions"
"""The extension for tables that PostgreSQL keeps in several, though no model says so."""

_NOTHING: Final = Further()


def open_store(engine: Any, targets: object) -> SQLAlchemyStore | AsyncSQLAlchemyStore:
    """Make the store of an engine; the entry point ``sqlalchemy`` of ``ttl_odm.stores``.

    Targets are a declarative base, a registry, a MetaData, a model, a Table, or a list of these.
    """
    if isinstance(engine, Engine):
        return SQLAlchemyStore(engine, targets)
    if isinstance(engine, compat.async_types("AsyncEngine")):
        return AsyncSQLAlchemyStore(engine, targets)
    raise TTLConfigurationError(
        f"A sweeper needs an Engine or an AsyncEngine, not {type(engine).__name__}, because it "
        "holds no connection while it pauses."
    )


@dataclass(slots=True)
class Plain(Whereabouts):
    """All rows are in the table, and are deleted one by one."""

    _children: Whereabouts | None = field(init=False, default=None)
    """The whereabouts of a table that PostgreSQL keeps in several, once that is known."""

    def due(self, connection: Connection, *, is_on: bool) -> Further:  # noqa: ARG002 (others do)
        """Return no further work."""
        return _NOTHING

    def purge(self, connection: Connection, request: BatchRequest) -> BatchResult:  # noqa: ARG002
        """Remove nothing: no rows are removed as a whole."""
        return BatchResult(0)

    def next_range(
        self, connection: Connection, request: BatchRequest, find: Find
    ) -> tuple[Table, KeyRange | None]:
        """Find the next rows in the table."""
        table = self.binding.table
        if (
            self._children is None
            and request.resume is None
            and connection.dialect.name == "postgresql"
            and has_children(connection, table)
            and find_spec(_OF_CHILDREN) is not None
        ):
            self._children = _brought(f"{_OF_CHILDREN}.sqlalchemy", self.binding)
        if self._children is not None:
            return self._children.next_range(connection, request, find)
        return table, find(table, (request.resume, request.until))

    def divide(
        self, connection: Connection, request: BatchRequest, shares: int, marks: Marks
    ) -> Sequence[object]:
        """Find the marks in the table."""
        if self._children is not None:
            return self._children.divide(connection, request, shares, marks)
        return marks(self.binding.table, (request.resume, request.until))

    def facts(self, connection: Connection) -> Mapping[str, Fact]:  # noqa: ARG002 (others do)
        """Return no facts."""
        return {}

    def check(self, checked: Checked) -> Iterator[Finding]:  # noqa: ARG002 (others do)
        """Yield no findings."""
        return iter(())


def whereabouts_of(binding: Binding) -> Whereabouts:
    """Return where the rows of a policy's table are, for one store."""
    if binding.layout is None:
        return Plain(binding)
    return _brought(binding.layout.declared.package("sqlalchemy"), binding)


def _brought(package: str, binding: Binding) -> Whereabouts:
    module = import_module(f"{package}.whereabouts")
    return cast("Whereabouts", module.whereabouts(binding))


class _Tables:
    """The tables of a store, by name, and the pace of their database."""

    def __init__(self, dialect: Dialect, targets: object) -> None:
        self._pace = clock_of(dialect).pace  # raises for a dialect without a family
        self._dialect = dialect
        self._targets = targets
        self._bindings: dict[str, Binding] = {}
        self._keys = ReferringKeys()
        self._whereabouts: dict[str, Whereabouts] = {}
        for name in self.targets():
            mode_of(self._bindings[name])  # raises for mistakes now, not at three in the morning

    @property
    def pace(self) -> Pace:
        """The batch sizes that suit the database."""
        return self._pace

    @property
    def backend(self) -> str:
        """The dialect's name. Only a connection shows that ``mysql://`` leads to MariaDB."""
        is_mariadb = getattr(self._dialect, "is_mariadb", False)
        return "mariadb" if is_mariadb else str(self._dialect.name)

    @property
    def hides_purges(self) -> bool:
        """Whether the database can keep purges from replicas."""
        return clock_of(self._dialect).hides_writes

    def targets(self) -> Sequence[str]:
        """Return the names of the tables, found anew since models may have been declared."""
        self._bindings = {binding.table.fullname: binding for binding in bindings_of(self._targets)}
        known = self._whereabouts
        self._whereabouts = {
            name: known[name]
            if name in known and known[name].binding is binding
            else whereabouts_of(binding)
            for name, binding in self._bindings.items()
        }
        return list(self._bindings)

    @property
    def hooks(self) -> Hooks:
        """The hooks that models declare as ``__ttl_on_purged__``.

        This includes tables that aren't swept: their rows may be purged before the rows that they
        refer to.
        """
        declared = dict(self._bindings)
        metadata = {binding.table.metadata for binding in self._bindings.values()}
        # Of two tables of one name, that in a swept table's MetaData counts.
        for table in sorted(bound_tables, key=lambda table: table.metadata not in metadata):
            binding = binding_of(table)
            if binding is not None and binding.origin is None:
                declared.setdefault(table.fullname, binding)
        tables = declared.items()
        return sum((hooks_of(binding.default.owner, name) for name, binding in tables), Hooks())

    def _lease_table(self) -> Table | None:
        return declared_lease_table(table.table.metadata for table in self._bindings.values())


def bindings_of(targets: object) -> list[Binding]:
    """Return the policies of a sweeper's targets, referring tables before those they refer to.

    Tables with a rule that leads to one of them are left out: their rows are deleted with its rows.
    """
    tables = list(dict.fromkeys(_tables(targets)))
    if ruled_tables:
        tables = _without_rules(tables)
    every = {other for table in tables for other in table.metadata.tables.values()}
    # Unlike MetaData.sorted_tables, this accepts cycles of foreign keys without a warning.
    sort: Any = sort_tables_and_constraints
    order = sort(
        sorted(every, key=lambda table: table.fullname),
        # True: ignore this key.
        filter_fn=lambda key: True if referred_table(key) is None else None,
    )
    ranks = {table: rank for rank, (table, _) in enumerate(order) if table is not None}
    tables.sort(key=lambda table: ranks[table], reverse=True)
    return [binding for binding in map(binding_of, tables) if binding is not None]


def _without_rules(tables: Iterable[Table]) -> list[Table]:
    """Leave out the tables with a rule; raise if one leads to a table that isn't swept."""
    rules = {table: rule_of(table) for table in tables}
    swept = [table for table, rule in rules.items() if rule is None]
    for table, rule in rules.items():
        if rule is not None:
            root = root_of(table)
            if root is not None and root.first.table not in swept:
                raise rule.rejected("sweep", table.fullname)
    return swept


def _tables(target: Any) -> Iterator[Table]:
    try:
        mapper: Any = inspect(target, raiseerr=False) if isinstance(target, type) else None
    except UnmappedClassError as error:
        raise TTLConfigurationError(
            f"{target.__name__} is not mapped yet: create the sweeper after Base.prepare()."
        ) from error
    if isinstance(mapper, Mapper):
        yield from _bound(target, mapper.tables)
    elif isinstance(target, Table):
        yield from _bound(target, [target])
    elif isinstance(metadata := getattr(target, "metadata", target), MetaData):
        for table in metadata.tables.values():
            binding = binding_of(table)
            if binding is not None and binding.origin is None:  # the first Table is swept
                yield table
    elif isinstance(target, Iterable) and not isinstance(target, str):
        for item in target:
            yield from _tables(item)
    else:
        raise TTLConfigurationError(
            f"{target!r} can't be swept: pass a declarative base, a registry, a MetaData, a "
            "model, a Table, or a list of these."
        )


def _bound(target: object, tables: Iterable[FromClause]) -> Iterator[Table]:
    is_bound = False
    for table in tables:  # several: of a class over a join, or of an AbstractConcreteBase
        binding = binding_of_source(table)
        if binding is not None:
            is_bound = True
            yield binding.first.table
        elif isinstance(table, Table) and rule_of(table) is not None:
            is_bound = True
            yield table
    if is_bound:
        return
    raise TTLConfigurationError(
        f"{target_name(target)} has no TTL, so there is nothing to sweep: declare __ttl__ on the "
        "model, enable() it, or leave it out."
    )


def now(connection: Connection) -> datetime:
    """Return the database's present instant."""
    clock = clock_of(connection.dialect)
    instant = connection.execute(select(clock.literal(clock.now_at_write))).scalar_one()
    return clock.from_storage(instant)


def server(connection: Connection) -> Server | None:
    """Return the server that answers; None without one, as on SQLite."""
    question = clock_of(connection.dialect).server
    if question is None:
        return None
    address, takes_writes = connection.exec_driver_sql(question).one()
    return Server(address, bool(takes_writes))


def on_table(
    connection: Connection,
    work: Callable[Concatenate[Connection, Binding, P], R],
    binding: Binding,
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Call a function for a table.

    Raises:
        MissingTargetError: The database has no such table.
    """
    try:
        return work(connection, binding, *args, **kwargs)
    except (DBAPIError, NoSuchTableError) as error:
        if isinstance(error, DBAPIError) and not is_missing_table(error.orig):
            raise
        # The missing one may be another table: an archive, a sub-table, one that refers to this.
        connection.rollback()
        schema, table = name_of(connection, binding.table)
        if inspect(connection).has_table(table, schema):
            raise
        raise MissingTargetError(f"There is no table {binding.table.fullname!r}.") from error


def divide(
    connection: Connection,
    binding: Binding,
    request: BatchRequest,
    shares: int,
    where: Whereabouts,
) -> Sequence[object]:
    """Find the marks between the stretches of several workers; see `ttl_odm.sweeper.Dividing`.

    With an index, a stretch is a range of the index's keys, like a batch: so no worker comes to a
    row that another one has locked. A table that is walked is divided by its pages, on PostgreSQL.
    There is one worker on SQLite, which has one writer at a time; for a walk by the primary key,
    which reads more than it deletes; and for a walk from scope to scope.
    """
    dialect = connection.dialect.name
    has_marks = dialect == "postgresql" or (
        dialect in MYSQL_FAMILY and request.part is not Part.ALL
    )
    is_single = isinstance(connection.engine.pool, StaticPool)  # all share one connection
    if not has_marks or is_single or isinstance(request.resume, Without):
        return ()
    if request.part is Part.INHERITING and walk_of(connection, binding) is not None:
        return ()

    def marks(source: Table, stretch: Stretch) -> Sequence[object]:
        if request.part is Part.ALL:
            resume, until = stretch
            return [] if resume is None else table_walk.marks(resume, until, shares)
        index = PartIndex(binding, request.part, clock_of(connection.dialect), source)
        return index.marks(connection, request.size, stretch, shares)

    with (
        prepared(connection, request.timeout, settings=zone_settings(connection, binding)),
        reading(connection, request.timeout),
    ):
        return where.divide(connection, request, shares, marks)


class SQLAlchemyStore(_Tables):
    """A `ttl_odm.sweeper.Store` over an `Engine`, with all optional protocols."""

    def __init__(self, engine: Engine, targets: object) -> None:
        super().__init__(engine.dialect, targets)
        self._engine = engine

    @property
    def engine(self) -> Engine:
        """The engine of the database."""
        return self._engine

    @property
    def leases(self) -> TableLeases:
        """The leases in a table of the same database."""
        return TableLeases(self._engine, self._lease_table())

    def due(self, target: str) -> Due | None:
        """Find the parts of a table with expired rows; None while its TTL is off."""
        where = self._whereabouts[target]
        return self._run(on_table, find_due, where.binding, where)

    def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of expired rows, and commit."""
        where = self._whereabouts[request.target]
        return self._run(on_table, purge, where.binding, request, self._keys, where)

    def divide(self, request: BatchRequest, shares: int) -> Sequence[object]:
        """Divide the rest of a stretch among several workers."""
        where = self._whereabouts[request.target]
        return self._run(on_table, divide, where.binding, request, shares, where)

    def count(self, target: str) -> Counted:
        """Count the expired rows of a table, and all its rows."""
        where = self._whereabouts[target]
        return self._run(on_table, count, where.binding, where)

    def count_facts(self, target: str) -> Mapping[str, Fact]:
        """Count the dependents of the expired rows of a table."""
        return self._run(on_table, count_facts, self._bindings[target])

    def now(self) -> datetime:
        """Return the database's present instant."""
        return self._run(now)

    def server(self) -> Server | None:
        """Return the server that answers; None without one, as on SQLite."""
        return self._run(server)

    def _run(self, work: _Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        with store_errors(), self._engine.connect() as connection:
            return work(connection, *args, **kwargs)


class AsyncSQLAlchemyStore(_Tables):
    """A `ttl_odm.sweeper.AsyncStore` over an `AsyncEngine`, with all optional protocols."""

    def __init__(self, engine: AsyncEngine, targets: object) -> None:
        super().__init__(engine.dialect, targets)
        self._engine = engine

    @property
    def engine(self) -> AsyncEngine:
        """The engine of the database."""
        return self._engine

    @property
    def leases(self) -> AsyncTableLeases:
        """The leases in a table of the same database."""
        return AsyncTableLeases(self._engine, self._lease_table())

    async def due(self, target: str) -> Due | None:
        """Find the parts of a table with expired rows; None while its TTL is off."""
        where = self._whereabouts[target]
        return await self._run(on_table, find_due, where.binding, where)

    async def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of expired rows, and commit."""
        where = self._whereabouts[request.target]
        return await self._run(on_table, purge, where.binding, request, self._keys, where)

    async def divide(self, request: BatchRequest, shares: int) -> Sequence[object]:
        """Divide the rest of a stretch among several workers."""
        where = self._whereabouts[request.target]
        return await self._run(on_table, divide, where.binding, request, shares, where)

    async def count(self, target: str) -> Counted:
        """Count the expired rows of a table, and all its rows."""
        where = self._whereabouts[target]
        return await self._run(on_table, count, where.binding, where)

    async def count_facts(self, target: str) -> Mapping[str, Fact]:
        """Count the dependents of the expired rows of a table."""
        return await self._run(on_table, count_facts, self._bindings[target])

    async def now(self) -> datetime:
        """Return the database's present instant."""
        return await self._run(now)

    async def server(self) -> Server | None:
        """Return the server that answers; None without one, as on SQLite."""
        return await self._run(server)

    async def _run(self, work: _Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        with store_errors():
            return await asked(self._engine, work, *args, **kwargs)
