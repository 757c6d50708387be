"""Which tables with a policy raw SQL reads, or changes, behind the gate's back.

A name in raw SQL means a table by schema and name, as it does to the gate. Whether the query that
has it asks for anything of the column that lives are counted from, is all that is looked at: what
it asks is the application's business.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
"""How a character of a name is written in SQL, by a database or by ``text()``."""


class Replaceable(NamedTuple):
    """A table in raw SQL, and the Table whose live rows may stand in its place."""

    source: Source
    table: Table


@dataclass(slots=True)
class RawLeaks:
    """What a piece of raw SQL leaks.

    Attributes:
        sql: The piece.
        tables: The tables with a policy that it names without a condition.
        problem: Why nobody can tell what it reads; None if that is known.
        replaceable: The same, where they stand.
        obstacle: Why no subquery of live rows can stand in their place; None if one can.
        is_reported: Whether its warning was given.
    """

    sql: str
    tables: tuple[Table, ...] = ()
    replaceable: tuple[Replaceable, ...] = ()
    obstacle: str | None = None
    problem: str | None = None
    is_reported: bool = False

    def __bool__(self) -> bool:
        """Whether it leaks, or may."""
        return bool(self.tables or self.problem)


def leaks_in(sql: str, dialect: Dialect, kind: Kind, marks: Marks) -> RawLeaks:
    """Look for leaks in a piece of SQL; it is parsed only if a table's name is in it."""
    if not may_name_tables(sql) and not (may_compose(sql, dialect.name) and any_tables()):
        return RawLeaks(sql)
    raw = parse(sql, dialect.name, kind, marks)
    problem = raw.problem or _escaped_in(sql)
    if problem is not None:
        tables = tuple(dict.fromkeys(map(first_of, _spelled_in(sql))))
        return RawLeaks(sql, tables, obstacle=problem, problem=problem)
    return leaks_of(sql, raw.sources, dialect)


def leaks_of(sql: str, sources: tuple[Source, ...], dialect: Dialect) -> RawLeaks:
    """The tables among some that have a policy, and no condition."""
    leaks = RawLeaks(sql)
    judged = frozenset[Table]().union(*(_asked_about(source, dialect) for source in sources))
    for source in sources:
        tables = _leaking(source, dialect, judged)
        if len(tables) > 1 and _names_of_different(tables):
            gc.collect()  # models that nobody has any more, as of a cell of a notebook, have no say
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
    """The models that say different things of when rows of some tables expire; or None."""
    rules = [rule_of(table) for table in tables]
    if not any(rules) or len({rule and rule.meaning() for rule in rules}) == 1:
        return names_of_different_policies(tables)
    bindings = [root_of(table) for table in tables]
    owners: list[Any] = [
        rule.owner if rule else binding and binding.default.owner
        for rule, binding in zip(rules, bindings, strict=True)
    ]
    names = (f"{owner.__module__}.{owner.__name__}" for owner in owners if owner is not None)
    return " and ".join(dict.fromkeys(names))


def _leaking(source: Source, dialect: Dialect, judged: Collection[Table]) -> list[Table]:
    """The tables that a name means, without a condition on them or on their parents."""
    return [
        table
        for table in _meant_first(source, dialect)
        if stamp_of(table) not in source.asked
        if rule_of(table) is None or _stamped(table) not in judged
    ]


def _asked_about(source: Source, dialect: Dialect) -> Iterator[Table]:
    """The tables that a name means, and that a condition is about."""
    for table in _meant_first(source, dialect):
        if rule_of(table) is None and stamp_of(table) in source.asked:
            yield table


def _meant_first(source: Source, dialect: Dialect) -> Iterable[Table]:
    return dict.fromkeys(map(first_of, meant_by(source.name, dialect.default_schema_name)))


def _stamped(table: Table) -> Table | None:
    binding = root_of(table)
    return None if binding is None else first_of(binding.table)


def may_name_tables(sql: str) -> bool:
    """Whether a text has the name of any table with a policy in it, as whatever."""
    return next(_spelled_in(sql), None) is not None


def any_tables() -> bool:
    """Whether any table has a policy."""
    return next(iter(gated_tables), None) is not None


def _escaped_in(sql: str) -> str | None:
    """Say that a name is written with escapes of ``text()`` or a driver, if one is."""
    for table in _spelled_in(sql):
        if table.name.lower() not in sql.lower() and any(mark in table.name for mark in "%:"):
            return f"{table.name} is written with escapes"
    return None


def _spelled_in(sql: str) -> Iterator[Table]:
    """The tables with a policy whose names are in a text, also in literals and comments."""
    lowered = sql.lower()
    return (table for table in gated_tables if _is_spelled_in(table.name.lower(), lowered))


def _is_spelled_in(name: str, sql: str) -> bool:
    return name in sql or any(
        mark in name and name.replace(mark, escaped) in sql for mark, escaped in _ESCAPES
    )


def tables_named(sql: str, raw: RawSQL) -> Iterator[Table]:
    """The tables with a policy that raw SQL reads, updates or deletes from, or may."""
    if raw.problem is None:
        for source in raw.sources:
            yield from meant_by(source.name)
    else:
        yield from _spelled_in(sql)


def meant_by(name: tuple[str, ...], default_schema: str | None = None) -> list[Table]:
    """The TTL tables that SQL means by a name, in lower case.

    A name without a schema is that of the table without one; where there is none, any will do:
    a search path says which, and only the database knows it. A table without a schema is in the
    default schema, and anywhere as long as nobody has asked which that is.
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
    """The column that says when a row of a table, or its parent, was last modified.

    In lower case.
    """
    binding = root_of(table)
    return None if binding is None else binding.last_modified.name.lower()


def is_unknown(table: object) -> bool:
    """Whether the gate doesn't know of a table, of that name, that it has a policy.

    Of ``table()``, and a Table that lacks a column of the policy.
    """
    return (
        binding_of(table) is None
        and sub_binding_of(table) is None
        and rule_of(table) is None
        and not (isinstance(table, BareTable) or (isinstance(table, Table) and is_plain(table)))
    )
