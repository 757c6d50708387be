"""What `ttl-odm check` looks at in the application: other Table objects of a table with a policy.

A Table object that shares the policy is fine. One that lacks a column of the policy isn't filtered,
and one that several policies fit is rejected when a statement names it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, Table
from sqlalchemy.orm import registry

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import INFO_KEY, root_binding_of
from ttl_odm.sqlalchemy.policy.second_tables import ambiguity, is_plain, policies_for
from ttl_odm.sweeper.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.bindings import Binding


def second_tables(
    target: str, binding: Binding, dialect: Dialect, everywhere: Sequence[MetaData]
) -> Iterator[Finding]:
    """Find Table objects in the process that don't get the policy of a table.

    Args:
        target: The table's name in findings.
        binding: Its policy.
        dialect: The database's dialect.
        everywhere: The result of `every_metadata`, which takes too long to compute for each table.
    """
    for table in _others(binding.table, dialect, everywhere):
        policies = policies_for(table, dialect)
        problem = ambiguity(table, policies)
        if problem is not None:
            message, fix = problem.split(". ", 1)
            yield Finding(Severity.WARNING, "ambiguous-table", target, message, fix)
        elif not policies:
            missing = {column.name for column in binding.columns}
            missing -= {column.name for column in table.c}
            yield Finding(
                Severity.WARNING,
                "second-table",
                target,
                f"{_name(table)} is another Table object for {binding.name}'s table and has no "
                f"column {' and '.join(sorted(missing))}, so its statements see and change expired "
                "rows",
                f"use {binding.name}, or declare the column there too; or, if the table is in "
                f"another database, set table.info[{INFO_KEY!r}] = None",
            )


def _others(table: Table, dialect: Dialect, everywhere: Sequence[MetaData]) -> Iterator[Table]:
    """Find Tables of the same schema and name without a policy, unless they opt out of it."""
    schema = table.schema or dialect.default_schema_name
    for metadata in everywhere:
        for other in list(metadata.tables.values()):
            if (
                other.name == table.name
                and (other.schema or dialect.default_schema_name) == schema
                and root_binding_of(other) is None
                and not is_plain(other)
            ):
                yield other


def every_metadata() -> list[MetaData]:
    """Return every MetaData that a module of the process has, if only by a Table or class."""
    every: dict[MetaData, None] = {}
    known: dict[int, object] = {}  # most classes are in several modules
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            kind = type(value)  # the __class__ of a proxy may raise
            holder: Any = value
            if issubclass(kind, type):
                if id(value) in known:
                    continue
                known[id(value)] = value
                names = (vars(base).get("metadata") for base in value.__mro__)
                holder = next((name for name in names if name is not None), None)
            elif issubclass(kind, (Table, registry)):
                holder = value.metadata
            if issubclass(type(holder), MetaData):
                every[holder] = None
    return list(every)


def _name(table: Table) -> str:
    for mapper in compat.mappers():
        if mapper.local_table is table:
            return f"{mapper.class_.__module__}.{mapper.class_.__qualname__}"
    others = sorted(name for name in table.metadata.tables if name != table.key)
    return f"a Table in a MetaData {f'with {others[0]}' if others else 'of its own'}"
