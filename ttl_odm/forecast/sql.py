"""Counts for `ttl-odm plan` in a SQL database; `sample` decides which rows are counted.

Expiry by another policy, or at another time, comes from the same predicate as in reads and sweeps,
with another binding of the table and another clock.

The order of a sample's stretches is that of the pages (PostgreSQL), the rowid (SQLite) or an
integer key (MariaDB, MySQL).
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Integer,
    MetaData,
    Table,
    and_,
    bindparam,
    case,
    cast,
    false,
    func,
    literal,
    literal_column,
    not_,
    null,
    or_,
    select,
    true,
    type_coerce,
)
from sqlalchemy.exc import NoSuchTableError, OperationalError

from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.forecast import sample
from ttl_odm.forecast.estimates import Drawn, Measured, of_followers
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.inspection.readers.sql import misread, misread_texts, reading_only
from ttl_odm.sqlalchemy.declare import mapper
from ttl_odm.sqlalchemy.declare.enable import roots_of
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.predicate import Predicate, include_expired
from ttl_odm.sqlalchemy.policy.references import all_rules_below
from ttl_odm.sqlalchemy.policy.sources import DefaultTTL, KindTTL, Variant
from ttl_odm.sqlalchemy.purge.removal import count_rows
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, in_subquery
from ttl_odm.sqlalchemy.sweep.counts import dependents_of_row, estimate
from ttl_odm.sqlalchemy.sweep.store import whereabouts_of
from ttl_odm.sqlalchemy.sweep.table_walk import Tid, count_pages, ctid
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import ColumnElement, Connection, FromClause, Select
    from sqlalchemy.engine import Dialect

    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper import Fact

    Rows = Callable[[FromClause, Dialect], list[ColumnElement[bool]]]
    """Makes the conditions for the rows of a FROM clause that are counted."""

_FOLLOWERS: Final = "followers of the row"

_SECONDS: Final = 600
_MOST_PAGES: Final = 20
"""The most pages of a stretch: full ones have some 2,000 rows, whatever PostgreSQL estimates."""


def measure(
    connection: Connection, table: Table | str, planned: Policy | None, big: float = SMALL
) -> Measured:
    """Count the rows of a table by its policy and a planned one.

    Args:
        connection: A connection, which is invalidated afterwards, since it became read-only.
        table: The table. With a planned policy, also the name of a table of the database, with its
            schema unless that is the connection's own.
        planned: The planned policy, if there is one.
        big: The most rows that are all counted; of more, a sample is.

    Raises:
        TTLConfigurationError: The database has no such table.
    """
    try:
        with reading_only(connection, _SECONDS):
            current = None
            if isinstance(table, str):
                schema, _, name = table.rpartition(".")
                table = _reflected(connection, name, schema or None)
                connection = _uncached(connection)
            else:
                current = binding_of(table)
            bindings = _bindings(table, current, planned)
            measured = _Counting(connection, bindings).run(big)
            main = bindings.get("planned") or bindings["current"]
            doubts = [wrong.sentences for wrong in misread(connection, main)]
            partitions = _partitions(connection, bindings)
            return replace(measured, partitions=partitions, doubts=doubts)
    finally:
        connection.invalidate()


def try_out(
    connection: Connection,
    name: str,
    planned: Policy | None,
    *,
    schema: str | None = None,
    big: float = SMALL,
) -> Measured:
    """Count the rows of a table of the database by a planned policy alone, in `reading_only`."""
    reflected = _reflected(connection, name, schema)
    bindings = _bindings(reflected, None, planned)
    measured = _Counting(_uncached(connection), bindings).run(big)
    doubts = [wrong.sentences for wrong in misread_texts(connection, bindings["planned"])]
    return replace(measured, doubts=doubts)


def _uncached(connection: Connection) -> Connection:
    """Keep statements out of the engine's cache, as this reflected Table is used only once."""
    return connection.execution_options(compiled_cache=None)


def _reflected(connection: Connection, name: str, schema: str | None) -> Table:
    with warnings.catch_warnings():  # about indexes and types that SQLAlchemy can't reflect
        warnings.simplefilter("ignore")
        try:
            return Table(
                name, MetaData(), schema=schema, autoload_with=connection, resolve_fks=False
            )
        except NoSuchTableError as error:
            full = name if schema is None else f"{schema}.{name}"
            raise TTLConfigurationError(f"there is no table {full!r} in the database.") from error


def count(
    connection: Connection,
    table: Table,
    policies: Mapping[str, TTL],
    *,
    rows: Rows,
    big: float = SMALL,
) -> Measured:
    """Count some rows of a table by policies that it doesn't have.

    It only reads, in the connection's current transaction.

    Args:
        connection: The connection.
        table: A table with a TTL.
        policies: The policies, by the names that `sample.questions` needs.
        rows: Makes the conditions for the rows to count.
        big: The most rows that are all counted; of more, a sample is.
    """
    bindings = {
        name: _bindings(table, None, policy)["planned"] for name, policy in policies.items()
    }
    return _Counting(connection, bindings, rows).run(big)


def count_lost(
    connection: Connection, table: Table, policies: Mapping[str, TTL], *, rows: Rows, limit: int
) -> int:
    """Count the rows, with followers, that only the planned policy lets expire, up to a limit."""
    clock = clock_of(connection.dialect)

    def expired(name: str) -> ColumnElement[bool]:
        binding = _bindings(table, None, policies[name])["planned"]
        condition = Predicate(clock).expired(binding, binding.columns_of(table))
        return func.coalesce(condition, false())

    lost = (expired("planned"), not_(expired("current")), *rows(table, connection.dialect))
    number = count_rows(connection, table, *lost, limit=limit)
    parents = {table: and_(*lost)}
    for rule in all_rules_below(table):  # parents come before their followers
        links = rule.links()
        above = SweepSelect(*links.theirs).where(parents[links.parent])
        condition = parents[rule.table] = in_subquery(links.own, above)
        if number < limit:
            number += count_rows(connection, rule.table, condition, limit=limit - number)
    return number


def _partitions(connection: Connection, bindings: dict[str, Binding]) -> dict[str, Fact]:
    """Count the partitions, and those that have ended, by each policy that can be partitioned."""
    current = bindings.get("current")
    if current is None or current.layout is None:
        return {}
    counted = {}
    for name, binding in bindings.items():
        if binding.layout is None:
            declared, where = current.layout.declared, f"{binding.name}.__ttl_partition__"
            try:
                binding.layout = mapper.lay_out(binding, declared, where)
            except TTLConfigurationError:  # a table can't be partitioned by this policy
                continue
        facts = whereabouts_of(binding).facts(connection)
        if "partitions" in facts:
            counted[name] = facts["partitions"]
    return counted


def _bindings(table: Table, current: Binding | None, planned: Policy | None) -> dict[str, Binding]:
    """Return each policy's binding to the table; the planned one's is used only here."""
    bindings = {} if current is None else {"current": current}
    if planned is not None:
        owner = type(table.name, (), {"__ttl__": planned})
        binding = mapper.binding_for(table, owner, next(iter(roots_of(table)), None))
        if current is not None and isinstance(planned, TTL) and planned.by is None:
            # Subclasses keep their own defaults.
            binding.variants += [
                Variant(DefaultTTL(variant.default.owner, planned), variant.identities)
                for variant in current.variants
                if not isinstance(variant.default, KindTTL)
            ]
        bindings["planned"] = binding
    return bindings


class _Counting:
    """The counts of one table, by the bindings of the policies."""

    def __init__(
        self, connection: Connection, bindings: dict[str, Binding], rows: Rows | None = None
    ) -> None:
        self._connection = connection
        self._bindings = bindings
        self._rows = rows
        self._table = next(iter(bindings.values())).table
        self._whole = self._sums(self._table)

    def run(self, big: float) -> Measured:
        """Count all rows, or a sample of more than `big`."""
        criteria = self._criteria(self._table)
        # Estimates are only for all rows.
        rows = None if criteria else estimate(self._connection, self._table)
        if rows is None:
            rows = count_rows(self._connection, self._table, *criteria)
        _, *names = self._whole.selected_columns.keys()
        plan = sample.plan(names, rows, big, self._order() if rows > big else None)
        measured = sample.run(plan, self._count)
        if measured.drawn is not Drawn.SINGLY:
            return measured
        # An estimate is good enough for drawing a sample, but not for weighing it.
        return replace(measured, total=count_rows(self._connection, self._table, *criteria))

    def _criteria(self, source: FromClause) -> list[ColumnElement[bool]]:
        """Return the conditions for the rows to count; none for all rows."""
        return [] if self._rows is None else self._rows(source, self._connection.dialect)

    def _sums(self, source: FromClause) -> Select[Any]:
        """Return a SELECT of the answers to all questions."""
        clock = clock_of(self._connection.dialect)
        # The histogram is about the planned policy.
        main = self._bindings.get("planned") or self._bindings["current"]
        columns = main.columns_of(source)
        instants = main.instants.on(clock)
        dated: ColumnElement[bool] = columns.last_modified.is_not(None)
        is_read = instants.is_read(columns.last_modified)
        if is_read is not None:
            dated = and_(dated, func.coalesce(is_read, false()))

        def expired(name: str, seconds: int) -> ColumnElement[bool]:
            later = f"({clock.now} + {seconds} * {clock.second})"
            binding = self._bindings[name]
            condition = Predicate(clock, now=later).expired(binding, binding.columns_of(source))
            return func.coalesce(condition, false())

        def older(seconds: int) -> ColumnElement[bool]:
            moment = clock.literal(clock.now) - clock.span(literal(seconds, BigInteger()))
            reached = instants.reached(columns.last_modified, moment)
            return func.coalesce(reached, false())

        all_rows: ColumnElement[bool] = true()
        conditions = sample.questions(
            {name: binding.default.policy for name, binding in self._bindings.items()},
            all_rows=all_rows,
            dated=dated,
            own=false() if columns.override is None else columns.override.is_not(None),
            expired=expired,
            older=older,
            but_not=lambda one, other: and_(one, not_(other)),
        )
        answers = [case((conditions[name], 1), else_=0).label(name) for name in conditions]
        followers = dependents_of_row(self._table, source)
        if followers is not None:
            ends = or_(*(conditions[name] for name in sample.ends_of(self._bindings)))
            answers.append(case((ends, followers), else_=0).label(_FOLLOWERS))
        scopes = [
            binding.source.scoping.of_row(binding.columns_of(source))
            for binding in self._bindings.values()
            if binding.source.scoping is not None
        ]
        scope = next(iter(scopes), null())
        rows: Any = select(scope.label("scope"), *answers).select_from(source)
        chosen = rows.where(*self._criteria(source)).options(include_expired()).subquery()
        sums = [func.sum(chosen.c[name]).label(name) for name in conditions]
        if followers is not None:
            sums += [
                func.sum(case((chosen.c[name] == 1, chosen.c[_FOLLOWERS]), else_=0)).label(
                    of_followers(name)
                )
                for name in sample.questions_of_followers(conditions)
            ]
        # MySQL can't group by a scope's expression, so a subquery gives it a name.
        counted = select(func.min(chosen.c.scope).label("scope"), *sums)
        return counted.group_by(chosen.c.scope) if scopes else counted

    def _count(self, part: sample.Part) -> sample.Answers:
        statement, values, options = self._whole, {}, {}
        if part.within is not None:
            low, high = part.within
            statement, values = self._stretch, {"low": low, "high": high, "most": part.limit}
        elif part.share < 1:
            chance = sample.chance(self._connection.dialect.name, part.share)
            statement = statement.where(literal_column(chance))
            options = {"compiled_cache": None}  # the share is unique
        rows = self._connection.execute(statement, values, execution_options=options)
        return sample.answers(map(tuple, rows))

    @cached_property
    def _stretch(self) -> Select[Any]:
        """The SELECT for all stretches: making it costs more than running it."""
        names = ("low", "high")
        ends: list[Any] = [bindparam(name, type_=BigInteger()) for name in names]
        if self._connection.dialect.name == "postgresql":  # from the first row of each page
            ends = [cast(func.concat("(", page, ",0)"), Tid()) for page in ends]
        rows = select(*self._table.c).where(self._key >= ends[0], self._key < ends[1])
        rows = rows.limit(bindparam("most", type_=BigInteger()))
        return self._sums(rows.options(include_expired()).subquery())

    @cached_property
    def _key(self) -> ColumnElement[Any] | None:
        """The column that orders the rows for a sample; None without one."""
        table, dialect = self._table, self._connection.dialect.name
        if dialect == "postgresql":
            return ctid
        if dialect == "sqlite":
            columns = {column.name.lower() for column in table.c}
            names = [name for name in ("rowid", "_rowid_", "oid") if name not in columns]
            return literal_column(names[0], BigInteger()) if names else None
        first = next(iter(table.primary_key), None)
        is_integer = first is not None and isinstance(first.type, Integer)
        return type_coerce(first, BigInteger()) if is_integer else None

    def _order(self) -> sample.Order | None:
        if self._connection.dialect.name == "postgresql":
            pages = count_pages(self._connection, self._table)
            return sample.Order(0, pages, _MOST_PAGES) if pages else None
        key = self._key
        if key is None:
            return None
        # In two subqueries: SQLite reads all rows for both in one SELECT.
        ends = (select(end(key)).select_from(self._table) for end in (func.min, func.max))
        both = select(*(end.scalar_subquery() for end in ends)).options(include_expired())
        try:
            lowest, highest = tuple(self._connection.execute(both).one())
        except OperationalError:  # SQLite: WITHOUT ROWID
            return None
        return None if lowest is None else sample.Order(int(lowest), int(highest - lowest) + 1)
