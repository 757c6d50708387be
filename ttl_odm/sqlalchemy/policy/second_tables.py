"""A second Table object of a table has the policy that was declared with the first.

A table that is reflected, mapped by automap, or declared once more with another registry is another
`Table`, which the class with ``__ttl__`` doesn't know. A policy belongs to the table, not to the
Python object: so each Table of that schema and name with the columns that the policy reads gets a
binding of its own when the gate first meets it. (``to_metadata()`` copies the binding itself.)

The gate knows no engines, so the same name in another database counts too, if it has the columns.
``info={"ttl_odm": None}`` of a Table, or of a MetaData, means that it has no policy. If several
policies differ, that is an error: none is guessed.

Migrations read and write all rows. While Alembic runs on a dialect (that is, an engine), no policy
is carried over there; statements compiled meanwhile are compiled again afterwards.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Table, TableClause
from sqlalchemy import column as bare_column
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy.compat import NamedTable, original
from ttl_odm.sqlalchemy.policy.bindings import (
    INFO_KEY,
    Binding,
    SubBinding,
    bind,
    binding_of,
    bound_tables,
    copying,
    may_be_second,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Dialect
    from typing_extensions import Self

    Bindings = Sequence[Binding | SubBinding]


class BareTable(TableClause):
    """A table by its name, for our own statements that must reach every row."""

    inherit_cache = True


class BareCopy(NamedTable, BareTable):
    """A table with the columns of a declared one, without its policy, defaults and ``onupdate``."""

    inherit_cache = True

    @classmethod
    def of(cls, table: Table) -> Self:
        """Return one in the schema of a table, which executions translate alike."""
        columns = (bare_column(column.name, column.type) for column in table.c)
        return cls(table.name, *columns, schema=table.schema)


def is_plain(table: Table) -> bool:
    """Return whether the info of a Table, or of its MetaData, excludes it from policies."""
    return INFO_KEY in table.metadata.info or table.info.get(INFO_KEY, table) is None


def carry_over(table: object, dialect: Dialect | None = None) -> None:
    """Put the policy of its table on a second Table, and on others in the same MetaData.

    Raises:
        TTLConfigurationError: There are several policies, and they differ.
    """
    table = original(table)
    if not isinstance(table, Table) or not may_be_second(table) or is_plain(table):
        return
    declared = policies_for(table, dialect)
    if not declared or is_migrating(dialect):
        return
    if ambiguity(table, declared):
        gc.collect()  # models without references, as of a notebook's old cell, don't count
        problem = ambiguity(table, policies_for(table, dialect))
        if problem:
            raise UnwrappedConfigurationError(problem)
    # The table of a joined subclass has no columns of the policy: its base stands beside it.
    beside = {table, *table.metadata.tables.values()}
    with copying:
        policies = {
            other: policies_for(other, dialect) for other in beside if INFO_KEY not in other.info
        }
        for kind in (Binding, SubBinding):
            for other, declared in policies.items():
                if declared and isinstance(declared[-1], kind) and not ambiguity(other, declared):
                    bind(other, declared[-1].on(other, is_second=True))


def is_migrating(dialect: Dialect | None) -> bool:
    """Return whether Alembic runs on a dialect."""
    proxy = getattr(sys.modules.get("alembic.context"), "_proxy", None)
    migration = getattr(proxy, "_migration_context", None)  # what is public raises without one
    return migration is not None and migration.dialect is dialect


def on_first(criterion: ColumnElement[bool], binding: Binding) -> ColumnElement[bool]:
    """Rewrite a condition on a second Table for the first, whose MetaData has the dependents."""
    if binding.origin is None:
        return criterion
    columns = {column.name: column for column in binding.first.table.c}

    def replaced(element: Any, **_: object) -> Any:
        if element is binding.table:
            return binding.first.table
        if isinstance(element, Column) and original(element.table) is binding.table:
            return columns.get(element.name)
        return None

    return visitors.replacement_traverse(criterion, {}, replaced)


def may_get_policy(table: Table) -> bool:
    """Return whether `carry_over` may put a policy on a Table without one, on any engine."""
    return may_be_second(table) and not is_plain(table) and bool(_with_columns_for(table))


def policies_for(table: Table, dialect: Dialect | None = None) -> list[Binding | SubBinding]:
    """Return the policies of other Table objects for which a Table has the columns."""
    default = None if dialect is None else dialect.default_schema_name
    policies = []
    for binding in _with_columns_for(table):
        if (binding.table.schema or default) != (table.schema or default):
            continue
        if isinstance(binding, SubBinding):  # the base, which has the columns, must be beside it
            base = binding.beside(table)
            own = binding_of(base)
            if base is None or binding.base not in (
                policies_for(base, dialect) if own is None else [own.first]
            ):
                continue
        policies.append(binding)
    return policies


def _with_columns_for(table: Table) -> list[Binding | SubBinding]:
    """Return the policies of tables of this name, in any schema, whose columns a Table has."""
    names = {column.name for column in table.c}
    return [
        binding
        for binding in bound_tables.declared(table)
        if names.issuperset(column.name for column in binding.columns)
    ]


def ambiguity(table: Table, declared: Bindings) -> str | None:
    """Return the error for a Table whose possible policies differ, with the fix; else None."""
    owners = _owners_of_different(declared)
    if owners is None:
        return None
    return (
        f"Table {table.fullname!r} doesn't belong to a model with __ttl__, but {owners} have "
        "different policies for a table of that name. Use the Table of the model you mean; or "
        f"give this one a policy with enable(table, ...), or none with table.info[{INFO_KEY!r}] = "
        "None."
    )


def names_of_different_policies(tables: Iterable[Table]) -> str | None:
    """Return the models that declared the policies of tables; None if the policies agree."""
    bindings = (binding_of(table) or sub_binding_of(table) for table in tables)
    return _owners_of_different([binding for binding in bindings if binding is not None])


def _owners_of_different(declared: Bindings) -> str | None:
    meanings = [_meaning(binding) for binding in declared]
    if all(meaning == meanings[0] for meaning in meanings):
        return None
    bases = [binding.base if isinstance(binding, SubBinding) else binding for binding in declared]
    modules = [getattr(base.default.owner, "__module__", "") for base in bases]
    names = [f"{module}.{base.name}" for module, base in zip(modules, bases, strict=True)]
    return " and ".join(dict.fromkeys(name.lstrip(".") for name in names))


def _meaning(binding: Binding | SubBinding) -> object:
    if isinstance(binding, SubBinding):
        return _meaning(binding.base), [(own.name, root.name) for own, root in binding.keys]
    variants = [(variant.default.policy, variant.identities) for variant in binding.variants]
    return binding.default.policy, [column.name for column in binding.columns], variants
