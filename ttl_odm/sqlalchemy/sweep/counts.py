"""The number of rows in a table, and how many of them have expired.

Rows are counted only for a dry run, a fuse, a forecast or ``status``, since that may read as many
index entries as there are expired rows. Both numbers come from one statement, and so from one
instant, unless one is the database's estimate: a sweep between two statements would distort the
ratio.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    String,
    case,
    cast,
    column,
    func,
    literal,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy import table as bare_table

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.predicate import Predicate, expired_in, include_expired
from ttl_odm.sqlalchemy.policy.references import all_rules_below, dependents, rules_below
from ttl_odm.sqlalchemy.policy.second_tables import BareCopy
from ttl_odm.sqlalchemy.purge.removal import (
    count_rows,
    counting,
    is_mysql,
)
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, in_subquery
from ttl_odm.sqlalchemy.sweep.due import PartIndex, is_ttl_on, is_walked, walk_of
from ttl_odm.sqlalchemy.sweep.transactions import name_of, prepared, reading, tree_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Counted, Part
from ttl_odm.sweeper.facts import latest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Rule
    from ttl_odm.sqlalchemy.policy.sources import Scoping
    from ttl_odm.sqlalchemy.sweep.whereabouts import Walk, Whereabouts
    from ttl_odm.sqlalchemy.time.clock import Clock
    from ttl_odm.sweeper import Fact

_OF_JOBS: Final = "ttl_odm.database_sweep"
"""The extension for tables that the database sweeps itself, which no model declares."""

_WITH_JOBS: Final = ("postgresql", *MYSQL_FAMILY)
"""The databases that can sweep tables themselves."""

_FEW: Final = 100_000
"""Estimates below this number of rows are replaced by counting."""

_LOOK: Final = 10
"""Look for this multiple of the expired rows, so that shares of a tenth and more are exact."""

_ONE_VIEW: Final = "REPEATABLE READ"
"""For counting by several statements: of each scope; and on MySQL and MariaDB, which take no LIMIT
from a subquery."""

_FRESH: Final = {"information_schema_stats_expiry": 0}
"""Makes MySQL return the present number of rows, rather than yesterday's."""


def count(connection: Connection, binding: Binding, where: Whereabouts) -> Counted:
    """Count the rows to purge; see `ttl_odm.sweeper.Counting`."""
    counted = _count(connection, binding)
    with prepared(connection), reading(connection):
        schema, table = name_of(connection, binding.table)
        scoping = binding.source.scoping
        facts = {**({} if scoping is None else scoping.due({})), **counted.facts}
        facts |= _of_job(connection, schema, table)
        facts |= where.facts(connection)
    return replace(counted, facts=facts)


def _of_job(connection: Connection, schema: str | None, table: str) -> Mapping[str, Fact]:
    """Return the facts about the job by which the database sweeps a table itself."""
    if connection.dialect.name not in _WITH_JOBS or find_spec(_OF_JOBS) is None:
        return {}
    package = import_module(f"{_OF_JOBS}.sqlalchemy")
    facts: Mapping[str, Fact] = package.facts(connection, schema, table)
    return facts


def _count(connection: Connection, binding: Binding) -> Counted:
    table = binding.table
    is_on = is_ttl_on(connection, binding)
    is_whole = is_on and is_walked(connection, binding)
    # With a limit, a row may be in two parts.
    is_apart = is_on and not is_whole and binding.max_lifetime is None
    walk = walk_of(connection, binding) if is_apart else None
    dialect = connection.dialect
    takes_two = dialect.name in MYSQL_FAMILY
    is_several = takes_two or (walk is not None and dialect.name == "postgresql")
    with (
        prepared(
            connection,
            isolation=_ONE_VIEW if is_several else None,
            settings=_FRESH if is_mysql(connection) else {},
        ),
        reading(connection),
    ):
        rows = estimate(connection, table)
        # In statements of their own, but in one snapshot.
        before = Counted(0, 0)
        if walk is not None:
            before = _walked(connection, binding, walk)
        expired = _select_due(
            connection, binding, is_on=is_on, is_whole=is_whole, but_walked=walk is not None
        )
        if rows is None or rows < _FEW:
            due, all_rows = expired.subquery(), counting(table).scalar_subquery()
            counted, number = _read(connection, select(*due.c, all_rows), binding)
            return replace(_sum(before, counted), rows=number)
        # The estimate may be from before a big sweep, and a fuse would be misled. Looking for a few
        # times as many rows as are due finds that out.
        if takes_two:
            due = expired.subquery()
            counted, _ = _read(connection, select(*due.c, null()), binding)
            counted = _sum(before, counted)
            most = _LOOK * counted.due
            seen = count_rows(connection, table, limit=most) if most else 0
        else:
            due = expired.cte("ttl_found")  # which hides no table of that name
            total = cast(func.sum(due.c.due), BigInteger())
            limit = select(_LOOK * (total + literal(before.due, BigInteger()))).scalar_subquery()
            look = counting(table, limit=limit).scalar_subquery()
            counted, seen = _read(connection, select(*due.c, look), binding)
            counted = _sum(before, counted)
        if seen < _LOOK * counted.due:
            return replace(counted, rows=seen)
        return replace(counted, rows=max(rows, seen), is_estimated=True)


def count_dependents(connection: Connection, binding: Binding) -> dict[str, int]:
    """Count the rows that have expired with rows of a policy, by table; omit tables without any."""
    counted: dict[str, int] = {}
    rules = all_rules_below(binding.table)
    if not rules or not is_ttl_on(connection, binding):
        return counted
    expired = {binding.table: expired_in(connection, binding)}
    with prepared(connection), reading(connection):
        for rule in rules:  # parents come before their dependents
            links = rule.links()
            parents = SweepSelect(*links.theirs).where(expired[links.parent])
            condition = expired[rule.table] = in_subquery(links.own, parents)
            rows = counting(rule.table, condition).options(include_expired())
            number = int(connection.execute(rows).scalar_one())
            if number:
                counted[rule.table.fullname] = number
    return counted


def dependents_of_row(table: Table, source: FromClause) -> ColumnElement[int] | None:
    """Return the number of rows that expire with a row of a source, as SQL; None if none can.

    It counts past the gate, which would hide those that have expired.
    """
    counts = []
    chains: list[tuple[Rule, FromClause, tuple[Any, ...]]]
    chains = [(rule, source, ()) for rule in rules_below(table)]
    for rule, above, joined in chains:  # which grows
        links, own = rule.links(), rule.table
        bare = BareCopy.of(own).alias()
        conditions = [
            bare.c[str(mine.name)] == above.c[theirs.key if above is source else str(theirs.name)]
            for mine, theirs in links.pairs
        ]
        chain = (*joined, (bare, conditions))
        number = select(func.count()).select_from(*(part for part, _ in chain))
        number = number.where(*(one for _, some in chain for one in some))
        counts.append(number.correlate(source).scalar_subquery())
        chains += [(further, bare, chain) for further in rules_below(own)]
    return sum(counts[1:], start=counts[0]) if counts else None


def count_facts(connection: Connection, binding: Binding) -> dict[str, Fact]:
    """Count the dependents of expired rows; see `ttl_odm.sweeper.FactCounting`."""
    rows = count_dependents(connection, binding)
    return {name: fact for one in dependents for name, fact in one.facts(rows).items()}


def _walked(connection: Connection, binding: Binding, walk: Walk) -> Counted:
    """Count the rows that inherit, scope by scope."""
    counted, scoping = Counted(0, 0), binding.source.scoping
    assert scoping is not None  # noqa: S101 (only scopes are walked)
    for criteria in walk.ranges(binding.table).stretches(connection):
        rows = _by_scope(binding, scoping, null(), *criteria).subquery()
        more, _ = _read(connection, select(*rows.c, null()), binding)
        counted = _sum(counted, more)
    return counted


def _sum(some: Counted, others: Counted) -> Counted:
    due = some.due + others.due
    return replace(others, due=due, rows=due, facts=latest(some.facts, others.facts))


def _select_due(
    connection: Connection, binding: Binding, *, is_on: bool, is_whole: bool, but_walked: bool
) -> Any:
    """Return the SELECT of ``due``, and of the age of the ``oldest`` if all rows are read.

    It has a row for each ``scope`` with a default of its own; NULL stands for all others.
    """
    clock, table = clock_of(connection.dialect), binding.table
    parts: list[tuple[ColumnElement[bool], ...]] = []
    if not is_on:
        pass
    elif is_whole or binding.override is None or binding.max_lifetime:
        # With a limit, a row may be in two parts.
        parts = [(expired_in(connection, binding),)]
    else:
        for part in (Part.OWN,) if but_walked else (Part.INHERITING, Part.OWN):
            index = PartIndex(binding, part, clock)
            if index.shortest is not None:
                parts.append(index.criteria(index.shortest))
    scoping = binding.source.scoping
    if scoping is not None:
        age = Predicate(clock).overdue(binding, binding.columns_of(table)) if is_whole else null()
        scopes = [_by_scope(binding, scoping, age, *criteria) for criteria in parts]
        no_scope, zero = null().label("scope"), literal_column("0", BigInteger()).label("due")
        return union_all(*scopes, select(no_scope, zero, null().label("oldest")))
    if is_whole:
        some = measuring(clock, binding, table, *parts[0]).subquery()
        number, oldest = some.c
        return select(null().label("scope"), number.label("due"), oldest.label("oldest"))
    counts = (counting(table, *criteria).scalar_subquery() for criteria in parts)
    due = sum(counts, start=literal_column("0", BigInteger()))
    return select(null().label("scope"), due.label("due"), null().label("oldest"))


def _by_scope(
    binding: Binding, scoping: Scoping, age: ColumnElement[Any], *criteria: ColumnElement[bool]
) -> Select[Any]:
    scope = scoping.of_row(binding.columns_of(binding.table)).label("scope")
    rows = select(scope, age.label("age")).select_from(binding.table).where(*criteria)
    some = rows.options(include_expired()).subquery()
    number, oldest = func.count().label("due"), func.max(some.c.age).label("oldest")
    counts: Any = select(some.c.scope, number, oldest)
    grouped: Select[Any] = counts.group_by(some.c.scope)
    return grouped


def _read(connection: Connection, statement: Any, binding: Binding) -> tuple[Counted, int]:
    """Read the columns of `_select_due`, and one more number, which is the same in all rows."""
    scoping = binding.source.scoping
    rows: Any = connection.execute(statement.options(include_expired())).all()
    due = sum(int(number) for _, number, _, _ in rows)
    by_scope: Counter[str] = Counter()
    for scope, number, _, _ in rows:
        if scope is not None:
            by_scope[scope] += int(number)
    oldest = max((max(0.0, age) for _, _, age, _ in rows if age is not None), default=None)
    facts = {} if scoping is None or not by_scope else scoping.due(by_scope)
    return Counted(due, due, oldest=oldest, facts=facts), int((rows and rows[0][-1]) or 0)


def estimate(connection: Connection, table: Table) -> int | None:
    """Return the database's estimate of a table's rows; None if it keeps none."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        catalog = bare_table(
            "pg_class", column("oid"), column("reltuples"), column("relkind"), schema="pg_catalog"
        )
        # The live statistics include the last sweep, but nothing from before a crash.
        oid, times = catalog.c.oid, ("vacuum", "autovacuum", "analyze", "autoanalyze")
        looked = [getattr(func, f"pg_stat_get_last_{time}_time")(oid) for time in times]
        believed = case(
            (func.coalesce(*looked).is_not(None), func.pg_stat_get_live_tuples(oid)),
            else_=func.greatest(catalog.c.reltuples, 0),
        )
        rows = func.sum(believed, type_=BigInteger())
        relations = select(tree_of(connection, table).c.relid)
        # ANALYZE counts the rows of partitions for the partitioned table once more.
        is_counted_once = catalog.c.relkind != "p"
        estimated = select(rows).where(catalog.c.oid.in_(relations), is_counted_once)
    elif dialect in MYSQL_FAMILY:
        schema, name = name_of(connection, table)
        tables = bare_table(
            "tables",
            column("table_schema", String()),
            column("table_name", String()),
            column("table_rows", BigInteger()),
            schema="information_schema",
        )
        estimated = select(tables.c.table_rows).where(
            tables.c.table_schema == (func.database() if schema is None else literal(schema)),
            tables.c.table_name == name,
        )
    else:
        return None
    number = connection.execute(estimated).scalar_one_or_none()
    return None if number is None else int(number)


def measure(
    connection: Connection,
    binding: Binding,
    source: FromClause,
    *criteria: ColumnElement[bool],
    limit: int | None = None,
) -> tuple[int, float | None]:
    """Count expired rows, up to a limit; return also for how long the first has been expired.

    The age is None for expired rows with NULL, which have no instant.
    """
    clock = clock_of(connection.dialect)
    measured = measuring(clock, binding, source, *criteria, limit=limit)
    row: Any = connection.execute(measured.options(include_expired())).one()
    number, oldest = row
    return int(number), None if oldest is None else max(0.0, oldest)


def measuring(
    clock: Clock,
    binding: Binding,
    source: FromClause,
    *criteria: ColumnElement[bool],
    limit: int | None = None,
) -> Any:
    """Return the SELECT of `measure`: how many rows there are, and the greatest age."""
    overdue = Predicate(clock).overdue(binding, binding.columns_of(source))
    rows = select(overdue.label("overdue")).select_from(source).where(*criteria).limit(limit)
    some = rows.options(include_expired()).subquery()
    return select(func.count(), func.max(some.c.overdue)).select_from(some)
