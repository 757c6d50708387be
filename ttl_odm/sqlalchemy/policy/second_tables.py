"""A second Table object of a table: it has the policy that was declared with the first.

A table that is reflected, mapped by automap, or declared once more with another registry is another
`Table`, of which the class with ``__ttl__`` knows nothing. A policy is the table's, not the Python
object's: so each Table of that schema and name which has the columns that the policy reads gets a
binding of its own, when the gate meets it first. (A copy by ``to_metadata()`` brings it along.)

The gate knows no engines, so the same name in another database counts too, if the columns are
there. ``info={"ttl_odm": None}`` of a Table, or of a MetaData, says that it has no policy. Where
several policies differ, none is guessed.

Migrations read and write all rows. While Alembic runs on a dialect (that is, an engine), nothing is
carried over there.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Table
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy.compat import original
from ttl_odm.sqlalchemy.policy.binding import (
    INFO_KEY,
    Binding,
    SubBinding,
    bind,
    binding_of,
    bound_tables,
    may_be_second,
)
from ttl_odm.sqlalchemy.time.column_types import UnwrappedConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Dialect

    Bindings = Sequence[Binding | SubBinding]


def is_plain(table: Table) -> bool:
    """Whether a Table, or its MetaData, says that it has no policy."""
    return INFO_KEY in table.metadata.info or table.info.get(INFO_KEY, table) is None


def carry_over(table: object, dialect: Dialect | None = None) -> None:
    """Put the policy of its table on a Table that has none, and on those beside it.

    Raises:
        TTLConfigurationError: There are several, and they differ.
    """
    table = original(table)
    if not isinstance(table, Table) or not may_be_second(table) or is_plain(table):
        return
    declared = policies_for(table, dialect)
    if not declared or _is_migrating(dialect):
        return
    if not _agree(declared):
        gc.collect()  # models that nobody has any more, as of a cell of a notebook, have no say
        declared = policies_for(table, dialect)
        if not _agree(declared):
            raise UnwrappedConfigurationError(ambiguity(table, declared))
    # The table of a joined subclass has no columns of the policy: its base stands beside it.
    beside = {table, *table.metadata.tables.values()}
    found = {other: _single(other, dialect) for other in beside if INFO_KEY not in other.info}
    for kind in (Binding, SubBinding):
        for other, binding in found.items():
            if isinstance(binding, kind):
                bind(other, binding.on(other, is_second=True))


def on_first(criterion: ColumnElement[bool], binding: Binding) -> ColumnElement[bool]:
    """A condition on a second Table as one on the first, whose MetaData knows what hangs on it."""
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


def policies_for(table: Table, dialect: Dialect | None = None) -> list[Binding | SubBinding]:
    """The policies of other Table objects that a Table has the columns for."""
    default = None if dialect is None else dialect.default_schema_name
    names = {column.name for column in table.c}
    return [
        binding
        for binding in bound_tables.declared(table)
        if (binding.table.schema or default) == (table.schema or default)
        and names.issuperset(column.name for column in binding.columns)
        and (isinstance(binding, Binding) or _has_base(table, binding, dialect))
    ]


def _has_base(table: Table, binding: SubBinding, dialect: Dialect | None) -> bool:
    """Whether the base of a joined subclass's table, which has the columns, stands beside it."""
    base = binding.beside(table)
    if base is None:
        return False
    own = binding_of(base)
    return binding.base in ([own.first] if own is not None else policies_for(base, dialect))


def ambiguity(table: Table, declared: Bindings) -> str:
    """What is wrong with a Table that may be one of several, and what to do."""
    owners = " and ".join(dict.fromkeys(_owner(binding) for binding in declared))
    return (
        f"Table {table.fullname!r} is none of a model with __ttl__, but {owners} have different "
        "policies for a table of that name. Use the Table of the model that is meant; or say what "
        f"holds by enable(table, ...), or that nothing does by table.info[{INFO_KEY!r}] = None."
    )


def _single(table: Table, dialect: Dialect | None) -> Binding | SubBinding | None:
    """The policy of a Table; None where there is no single one."""
    declared = policies_for(table, dialect)
    return declared[-1] if declared and _agree(declared) else None


def _agree(declared: Bindings) -> bool:
    """Whether policies mean the same."""
    meanings = [_meaning(binding) for binding in declared]
    return all(meaning == meanings[0] for meaning in meanings)


def _meaning(binding: Binding | SubBinding) -> object:
    if isinstance(binding, SubBinding):
        return _meaning(binding.base), [(own.name, root.name) for own, root in binding.keys]
    variants = [(variant.default.policy, variant.identities) for variant in binding.variants]
    return binding.default.policy, [column.name for column in binding.columns], variants


def _owner(binding: Binding | SubBinding) -> str:
    base = binding.base if isinstance(binding, SubBinding) else binding
    owner = base.default.owner
    return f"{getattr(owner, '__module__', '')}.{base.name}".lstrip(".")


def _is_migrating(dialect: Dialect | None) -> bool:
    context = sys.modules.get("alembic.context")
    if context is None or dialect is None:
        return False
    proxy = getattr(context, "_proxy", None)  # its functions raise where no migration runs
    migration = getattr(proxy, "_migration_context", None)
    return migration is not None and migration.dialect is dialect
