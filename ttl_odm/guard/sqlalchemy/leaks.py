"""Which tables with a policy raw SQL reads or changes, bypassing the gate.

A name in raw SQL means a table by schema and name, as for the gate. The guard only checks that the
query with the name has some condition on the column from which lifetimes are counted: what the
condition says is up to the application.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import Table

from ttl_odm.guard.statements import may_compose
from ttl_odm.guard.tables import RawSQL, Source, parse
from ttl_odm.sqlalchemy.policy.bindings import (
    binding_of,
    first_of,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.references import gated_tables, root_of, rule_of
from ttl_odm.sqlalchemy.policy.second_tables import (
    BareTable,
    is_plain,
    names_of_different_policies,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from sqlalchemy.engine import Dialect

    from ttl_odm.guard.tables import Kind
    from ttl_odm.guard.words import Marks


_ESCAPES: Final = (*((mark, 2 * mark) for mark in '"`]%'), (":", r"\:"))
"""How characters of a name are escaped in SQL, by a database or ``text()``."""


class Replaceable(NamedTuple):
    """A table in raw SQL, and the Table whose live rows can replace it."""

    source: Source
    table: Table


@dataclass(slots=True)
class RawLeaks:
    """The leaks of a piece of raw SQL.

    Attributes:
        sql: The piece.
        tables: The tables with a policy that it names without a condition.
        replaceable: These tables with their positions.
        obstacle: Why subqueries of live rows can't replace them; None if they can.
        problem: Why the tables that it reads are unknown; None if they are known.
        is_reported: Whether its warning was emitted.
    """

    sql: str
    tables: tuple[Table, ...] = ()
    replaceable: tuple[Replaceable, ...] = ()
    obstacle: str | None = None
    problem: str | None = None
    is_reported: bool = False

    def __bool__(self) -> bool:
        """Whether the piece leaks, or may leak."""
        return bool(self.tables or self.problem)


def leaks_in(sql: str, dialect: Dialect, kind: Kind, marks: Marks) -> RawLeaks:
    """Return the leaks of a piece of SQL, which is parsed only if it may name a table."""
    if not may_name_tables(sql) and not (may_compose(sql, dialect.name) and any_tables()):
        return RawLeaks(sql)
    raw = parse(sql, dialect.name, kind, marks)
    problem = raw.problem or _escaped_in(sql)
    if problem is not None:
        tables = tuple(dict.fromkeys(map(first_of, _spelled_in(sql))))
        return RawLeaks(sql, tables, obstacle=problem, problem=problem)
    return leaks_of(sql, raw.sources, dialect)


def leaks_of(sql: str, sources: tuple[Source, ...], dialect: Dialect) -> RawLeaks:
    """Return the leaks: sources that mean tables with a policy, and have no condition on them."""
    leaks = RawLeaks(sql)
    judged = frozenset[Table]().union(*(_asked_about(source, dialect) for source in sources))
    for source in sources:
        tables = _leaking(source, dialect, judged)
        if len(tables) > 1 and _names_of_different(tables):
            gc.collect()  # discards models without references, such as a notebook's old ones
            tables = _leaking(source, dialect, judged)
        if not tables:
            continue
        leaks.tables += tuple(table for table in tables if table not in leaks.tables)
        leaks.replaceable += (Replaceable(source, tables[0]),)
        models = _names_of_different(tables)
        ambiguous = models and f"{models} have different policies for a table of that name"
        hidden = source.pseudo - {column.name.lower() for column in tables[0].columns}
        lost = f"a subquery of live rows has no {min(hidden)}" if hidden else None
        leaks.obstacle = leaks.obstacle or source.obstacle or ambiguous or lost
    return leaks


def _names_of_different(tables: Sequence[Table]) -> str | None:
    """Return the names of the models, if tables differ in when their rows expire; else None."""
    rules = [rule_of(table) for table in tables]
    if not any(rules) or len({rule and rule.meaning() for rule in rules}) == 1:
        return names_of_different_policies(tables)
    bindings = [root_of(table) for table in tables]
    owners: list[type | None] = [
        rule.owner if rule else None if binding is None else binding.default.owner
        for rule, binding in zip(rules, bindings, strict=True)
    ]
    names = (f"{owner.__module__}.{owner.__name__}" for owner in owners if owner is not None)
    return " and ".join(dict.fromkeys(names))


def _leaking(source: Source, dialect: Dialect, judged: Collection[Table]) -> list[Table]:
    """Return the tables that a name means, if no condition is on them or on their parents."""
    return [
        table
        for table in _meant_first(source, dialect)
        if stamp_of(table) not in source.condition_columns
        if rule_of(table) is None or _stamped(table) not in judged
    ]


def _asked_about(source: Source, dialect: Dialect) -> Iterator[Table]:
    """Yield the tables that a name means, and on which there is a condition."""
    for table in _meant_first(source, dialect):
        if rule_of(table) is None and stamp_of(table) in source.condition_columns:
            yield table


def _meant_first(source: Source, dialect: Dialect) -> Iterable[Table]:
    return dict.fromkeys(map(first_of, meant_by(source.name, dialect.default_schema_name)))


def _stamped(table: Table) -> Table | None:
    binding = root_of(table)
    return None if binding is None else first_of(binding.table)


def may_name_tables(sql: str) -> bool:
    """Whether the name of any table with a policy is in a text, in any role."""
    return next(_spelled_in(sql), None) is not None


def any_tables() -> bool:
    """Whether any table has a policy."""
    return next(iter(gated_tables), None) is not None


def _escaped_in(sql: str) -> str | None:
    """Return the problem if a name is written with escapes of ``text()`` or a driver; else None."""
    for table in _spelled_in(sql):
        if table.name.lower() not in sql.lower() and any(mark in table.name for mark in "%:"):
            return f"{table.name} is written with escapes"
    return None


def _spelled_in(sql: str) -> Iterator[Table]:
    """Yield the tables with a policy whose names are in a text, even in literals and comments."""
    lowered = sql.lower()
    for table in gated_tables:
        name = table.name.lower()
        if name in lowered or any(
            mark in name and name.replace(mark, escaped) in lowered for mark, escaped in _ESCAPES
        ):
            yield table


def tables_named(sql: str, raw: RawSQL) -> Iterator[Table]:
    """Yield the tables with a policy that raw SQL reads or changes, or may read or change."""
    if raw.problem is None:
        for source in raw.sources:
            yield from meant_by(source.name)
    else:
        yield from _spelled_in(sql)


def meant_by(name: tuple[str, ...], default_schema: str | None = None) -> list[Table]:
    """Return the TTL tables that a name, in lower case, can mean.

    A name without a schema means the table without one; if there is none, it can mean a table of
    any schema, because only the database knows the search path. A table without a schema is in the
    default schema, or in any as long as that is unknown.
    """
    *qualifiers, last = name
    tables = [table for table in gated_tables if table.name.lower() == last]
    schema = qualifiers[-1] if qualifiers else None
    exact = [table for table in tables if (table.schema and table.schema.lower()) == schema]
    if exact:
        return exact
    if schema and default_schema and schema != default_schema.lower():
        return []
    return [table for table in tables if not (table.schema and schema)]


def stamp_of(table: Table) -> str | None:
    """Return the column of the last modification, of a table or its parent, in lower case."""
    binding = root_of(table)
    return None if binding is None else binding.last_modified.name.lower()


def is_unknown(table: object) -> bool:
    """Whether the gate doesn't recognize a table that may have a policy under its name.

    Such tables are ``table()``, and a Table that lacks a column of the policy.
    """
    return (
        binding_of(table) is None
        and sub_binding_of(table) is None
        and rule_of(table) is None
        and not (isinstance(table, BareTable) or (isinstance(table, Table) and is_plain(table)))
    )
