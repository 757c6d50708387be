"""Counting for `ttl-odm plan` in a SQL database; which rows are counted is up to `sample`.

What would be expired by another policy, or at another time, is asked of the very predicate that
reads and sweeps use: over another binding of the table, and a copy of the clock.

The order of a sample's stretches is that of the pages (PostgreSQL), of the rowid (SQLite) or of a
key of integers (MariaDB, MySQL).
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
from ttl_odm.inspection.readers.sql import reading_only
from ttl_odm.inspection.readers.sql_units import misread, misread_texts
from ttl_odm.sqlalchemy.declare import mapper
from ttl_odm.sqlalchemy.declare.enable import roots_of
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.predicate import Predicate, include_expired
from ttl_odm.sqlalchemy.policy.references import all_rules_below
from ttl_odm.sqlalchemy.policy.sources import DefaultTTL, KindTTL, Variant
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, count_rows, in_subquery
from ttl_odm.sqlalchemy.sweep.counts import dependents_of_row, estimate
from ttl_odm.sqlalchemy.sweep.table_walk import Tid, count_pages, ctid
from ttl_odm.sqlalchemy.sweep.whereabouts import whereabouts_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import ColumnElement, Connection, FromClause, Select
    from sqlalchemy.engine import Dialect

    from ttl_odm.core.policy import Policy
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper import Fact

    Rows = Callable[[FromClause, Dialect], list[ColumnElement[bool]]]
    """Makes the conditions for which rows of a source are meant."""

_ALONG: Final = "followers of the row"

_SECONDS: Final = 600
_MOST_PAGES: Final = 20
"""Pages of a stretch: full ones have some 2,000 rows, whatever PostgreSQL believes."""


def measure(
    connection: Connection, table: Table | str, planned: Policy | None, big: float = SMALL
) -> Measured:
    """Count; of more than so many rows in a sample.

    The connection is thrown away afterwards: it has been made one that can only read. Where a
    policy is planned, the table may be the name of one that is only in the database, with its
    schema if that is not the connection's own.
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
            wrong = misread(connection, bindings.get("planned") or bindings["current"])
            return replace(
                measured,
                partitions=_partitions(connection, bindings),
                doubts=[each.sentences for each in wrong],
            )
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
    """Count in a table of the database by a planned policy alone, within `reading_only`."""
    reflected = _reflected(connection, name, schema)
    bindings = _bindings(reflected, None, planned)
    measured = _Counting(_uncached(connection), bindings).run(big)
    wrong = misread_texts(connection, bindings["planned"])
    return replace(measured, doubts=[each.sentences for each in wrong])


def _uncached(connection: Connection) -> Connection:
    """Keep statements out of the engine's cache: nobody will have this reflected Table again."""
    return connection.execution_options(compiled_cache=None)


def _reflected(connection: Connection, name: str, schema: str | None) -> Table:
    place: Any = {"schema": schema, "autoload_with": connection, "resolve_fks": False}
    with warnings.catch_warnings():  # of indexes and types that SQLAlchemy can't reflect
        warnings.simplefilter("ignore")
        try:
            return Table(name, MetaData(), **place)
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
    """Count some rows of a table by policies of which the table itself knows nothing.

    It only reads, in whatever transaction there is.

    Args:
        connection: The database's.
        table: One with a TTL.
        policies: What is compared, by the names that `sample.questions` wants.
        rows: Makes the conditions for which rows are meant.
        big: Of more rows than that a sample is taken.
    """
    bindings = {name: _bindings(table, None, each)["planned"] for name, each in policies.items()}
    return _Counting(connection, bindings, rows).run(big)


def count_lost(
    connection: Connection, table: Table, policies: Mapping[str, TTL], *, rows: Rows, limit: int
) -> int:
    """Count the rows that live by the current policy and not by the planned one, up to a limit.

    With those of other tables that follow them.
    """
    clock = clock_of(connection.dialect)

    def expired(name: str) -> ColumnElement[bool]:
        binding = _bindings(table, None, policies[name])["planned"]
        condition = Predicate(clock).expired(binding, binding.columns_of(table))
        return func.coalesce(condition, false())

    lost = (expired("planned"), not_(expired("current")), *rows(table, connection.dialect))
    number = count_rows(connection, table, *lost, limit=limit)
    parents = {table: and_(*lost)}
    for rule in all_rules_below(table):  # parents come before their dependents
        links = rule.links()
        above = SweepSelect(*links.theirs).where(parents[links.parent])
        condition = parents[rule.table] = in_subquery(links.own, above)
        if number < limit:
            number += count_rows(connection, rule.table, condition, limit=limit - number)
    return number


def _partitions(connection: Connection, bindings: dict[str, Binding]) -> dict[str, Fact]:
    """How many partitions there are, and would be over, by each policy that is cut alike."""
    current = bindings.get("current")
    if current is None or current.layout is None:
        return {}
    counted = {}
    for name, binding in bindings.items():
        if binding.layout is None:
            declared, where = current.layout.declared, f"{binding.name}.__ttl_partition__"
            try:
                binding.layout = mapper.lay_out(binding, declared, where)
            except TTLConfigurationError:  # by which nothing could be cut
                continue
        facts = whereabouts_of(binding).facts(connection)
        if "partitions" in facts:
            counted[name] = facts["partitions"]
    return counted


def _bindings(table: Table, current: Binding | None, planned: Policy | None) -> dict[str, Binding]:
    """What each policy means for the table; of the one that is planned nobody else will know."""
    bindings = {} if current is None else {"current": current}
    if planned is not None:
        owner = type(table.name, (), {"__ttl__": planned})
        binding = mapper.binding_for(table, owner, next(iter(roots_of(table)), None))
        if current is not None and isinstance(planned, TTL) and planned.by is None:
            # Subclasses keep the defaults of their own.
            binding.variants += [
                Variant(DefaultTTL(variant.default.owner, planned), variant.identities)
                for variant in current.variants
                if not isinstance(variant.default, KindTTL)
            ]
        bindings["planned"] = binding
    return bindings


class _Counting:
    """The counting in one table, by what each policy means for it."""

    def __init__(
        self, connection: Connection, bindings: dict[str, Binding], rows: Rows | None = None
    ) -> None:
        self._connection = connection
        self._bindings = bindings
        self._rows = rows
        self._table = next(iter(bindings.values())).table
        self._whole = self._sums(self._table)

    def run(self, big: float) -> Measured:
        criteria = self._criteria(self._table)
        # Of some of the rows nobody has an estimate.
        rows = None if criteria else estimate(self._connection, self._table)
        if rows is None:
            rows = count_rows(self._connection, self._table, *criteria)
        _, *names = self._whole.selected_columns.keys()
        plan = sample.plan(names, rows, big, self._order() if rows > big else None)
        measured = sample.carried_out(plan, self._count)
        if measured.drawn is not Drawn.SINGLY:
            return measured
        # An estimate did to draw by, and does not to weigh by.
        return replace(measured, total=count_rows(self._connection, self._table, *criteria))

    def _criteria(self, source: FromClause) -> list[ColumnElement[bool]]:
        """The conditions for the rows that are meant; none where all are."""
        return [] if self._rows is None else self._rows(source, self._connection.dialect)

    def _sums(self, source: FromClause) -> Select[Any]:
        """Count the answers to all questions."""
        clock = clock_of(self._connection.dialect)
        # What is planned is what the histogram is about.
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

        every: ColumnElement[bool] = true()
        asked = sample.questions(
            {name: binding.default.policy for name, binding in self._bindings.items()},
            every=every,
            dated=dated,
            own=false() if columns.override is None else columns.override.is_not(None),
            expired=expired,
            older=older,
            but_not=lambda one, other: and_(one, not_(other)),
        )
        answers = [case((asked[name], 1), else_=0).label(name) for name in asked]
        along = dependents_of_row(self._table, source)
        if along is not None:
            ends = or_(*(asked[name] for name in sample.ends_of(self._bindings)))
            answers.append(case((ends, along), else_=0).label(_ALONG))
        scopes = [
            one.source.scoping.of_row(one.columns_of(source))
            for one in self._bindings.values()
            if one.source.scoping is not None
        ]
        scope = next(iter(scopes), null())
        rows: Any = select(scope.label("scope"), *answers).select_from(source)
        meant = rows.where(*self._criteria(source)).options(include_expired()).subquery()
        sums = [func.sum(meant.c[name]).label(name) for name in asked]
        if along is not None:
            sums += [
                func.sum(case((meant.c[name] == 1, meant.c[_ALONG]), else_=0)).label(
                    of_followers(name)
                )
                for name in sample.following(asked)
            ]
        # MySQL groups by no expression that it would have to compare.
        counted = select(func.min(meant.c.scope).label("scope"), *sums)
        return counted.group_by(meant.c.scope) if scopes else counted

    def _count(self, part: sample.Part) -> sample.Answers:
        statement, values, options = self._whole, {}, {}
        if part.within is not None:
            low, high = part.within
            statement, values = self._stretch, {"low": low, "high": high, "most": part.limit}
        elif part.share < 1:
            chance = sample.chance(self._connection.dialect.name, part.share)
            statement = statement.where(literal_column(chance))
            options = {"compiled_cache": None}  # no other statement has this share
        rows = self._connection.execute(statement, values, execution_options=options)
        return sample.answers(map(tuple, rows))

    @cached_property
    def _stretch(self) -> Select[Any]:
        """One statement for all: to make it costs more than to run it."""
        names = ("low", "high")
        ends: list[Any] = [bindparam(name, type_=BigInteger()) for name in names]
        if self._connection.dialect.name == "postgresql":  # from the first row of each page
            ends = [cast(func.concat("(", page, ",0)"), Tid()) for page in ends]
        rows = select(*self._table.c).where(self._key >= ends[0], self._key < ends[1])
        rows = rows.limit(bindparam("most", type_=BigInteger()))
        return self._sums(rows.options(include_expired()).subquery())

    @cached_property
    def _key(self) -> ColumnElement[Any] | None:
        """What a sample orders the rows by; None where they have no such thing."""
        table, dialect = self._table, self._connection.dialect.name
        if dialect == "postgresql":
            return ctid
        if dialect == "sqlite":
            taken = {column.name.lower() for column in table.c}
            names = [name for name in ("rowid", "_rowid_", "oid") if name not in taken]
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
        # Each by itself: SQLite reads all rows for both in one SELECT.
        ends = (select(end(key)).select_from(self._table) for end in (func.min, func.max))
        both = select(*(end.scalar_subquery() for end in ends)).options(include_expired())
        try:
            lowest, highest = tuple(self._connection.execute(both).one())
        except OperationalError:  # SQLite: WITHOUT ROWID
            return None
        return None if lowest is None else sample.Order(int(lowest), int(highest - lowest) + 1)
