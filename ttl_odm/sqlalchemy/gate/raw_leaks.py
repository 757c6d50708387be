"""Which tables with a policy raw SQL reads, or changes, behind the gate's back.

A name in raw SQL means a table by schema and name, as it does to the gate. Whether the query that
has it asks for anything of the column that lives are counted from, is all that is looked at: what
it asks is the application's business.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Table

from ttl_odm.sqlalchemy.policy.binding import (
    binding_of,
    first_of,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.following import following_of, gated_tables, root_of
from ttl_odm.sqlalchemy.policy.second_tables import (
    BareTable,
    is_plain,
    names_of_different_policies,
)
from ttl_odm.sqlalchemy.rewrite.raw_sql import RawSQL, Source, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.rewrite.raw_sql import Kind
    from ttl_odm.sqlalchemy.rewrite.raw_words import Marks


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
        replaceable: The same, where they stand.
        obstacle: Why no subquery of live rows can stand in their place; None if one can.
        is_reported: Whether its warning was given.
    """

    sql: str
    tables: tuple[Table, ...] = ()
    replaceable: tuple[Replaceable, ...] = ()
    obstacle: str | None = None
    is_reported: bool = False


def leaks_in(sql: str, dialect: Dialect, kind: Kind, marks: Marks) -> RawLeaks:
    """Look for leaks in a piece of SQL; it is parsed only if a table's name is in it."""
    if not may_name_tables(sql):
        return RawLeaks(sql)
    raw = parse(sql, dialect.name, kind, marks)
    if raw.problem is not None:
        tables = [
            table for table in gated_tables if table.name.lower() in raw.names or not raw.names
        ]
        return RawLeaks(sql, tuple(dict.fromkeys(map(first_of, tables))), (), raw.problem)
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
        leaks.obstacle = leaks.obstacle or source.obstacle or ambiguous
    return leaks


def _names_of_different(tables: Sequence[Table]) -> str | None:
    """The models that say different things of when rows of some tables expire; or None."""
    followings = [following_of(table) for table in tables]
    meanings = {
        following and (following.declared.orphan, tuple(map(str, following.links().theirs)))
        for following in followings
    }
    if not any(followings) or len(meanings) == 1:
        return names_of_different_policies(tables)
    bindings = [root_of(table) for table in tables]
    owners: list[Any] = [
        following.owner if following else binding and binding.default.owner
        for following, binding in zip(followings, bindings, strict=True)
    ]
    names = (f"{owner.__module__}.{owner.__name__}" for owner in owners if owner is not None)
    return " and ".join(dict.fromkeys(names))


def _leaking(source: Source, dialect: Dialect, judged: Collection[Table]) -> list[Table]:
    """The tables that a name means, without a condition on them or on what their rows follow."""
    return [
        table
        for table in _meant_first(source, dialect)
        if stamp_of(table) not in source.asked
        if following_of(table) is None or _stamped(table) not in judged
    ]


def _asked_about(source: Source, dialect: Dialect) -> Iterator[Table]:
    """The tables that a name means, and that a condition is about."""
    for table in _meant_first(source, dialect):
        if following_of(table) is None and stamp_of(table) in source.asked:
            yield table


def _meant_first(source: Source, dialect: Dialect) -> Iterable[Table]:
    return dict.fromkeys(map(first_of, meant_by(source.name, dialect.default_schema_name)))


def _stamped(table: Table) -> Table | None:
    binding = root_of(table)
    return None if binding is None else first_of(binding.table)


def may_name_tables(sql: str) -> bool:
    """Whether a text has the name of any table with a policy in it, as whatever."""
    lowered = sql.lower()
    return any(table.name.lower() in lowered for table in gated_tables)


def tables_named(raw: RawSQL) -> Iterator[Table]:
    """The tables with a policy that raw SQL reads, updates or deletes from, or may."""
    if raw.problem is None:
        for source in raw.sources:
            yield from meant_by(source.name)
    else:
        yield from (table for table in gated_tables if table.name.lower() in raw.names)


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
    """The column that says when a row of a table, or what it follows, was last modified.

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
        and following_of(table) is None
        and not (isinstance(table, BareTable) or (isinstance(table, Table) and is_plain(table)))
    )
