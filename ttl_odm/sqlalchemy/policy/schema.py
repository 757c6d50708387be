"""The policy in the database's schema: a CHECK and two indexes, and the form for views and jobs.

``create_all()`` adds the CHECK and the indexes to a model with the contract columns. The CHECK
rejects invalid ttls, whichever program writes them. The indexes let the sweeper find expired rows
without walking the table: one over the rows that inherit the default, one over the end of life of
rows with their own ttl. If the values of a column have defaults of their own, that column leads the
first one. A model that updates a large part of its rows between two sweeps is better off without
them (``__ttl_sweep__ = "scan"``): on PostgreSQL any index that mentions ``_ts`` ends HOT updates.

A table with a rule gets one index instead, on the columns that lead to the parent.

Views, and jobs by which the database sweeps, get the policy in the form of `whole_policy`, because
a migration sees columns only: no attributes, subclasses or functions. They note its fingerprint.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    DDL,
    CheckConstraint,
    ColumnElement,
    Index,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
    event,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.elements import conv
from sqlalchemy.types import Integer

from ttl_odm.core.policy import TTL, ExpireAfter, default_extension
from ttl_odm.dialects import MYSQL_FAMILY, index_name
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.time.clock import PartEnd, clock_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column, ColumnClause
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import DDLCompiler, IdentifierPreparer

    from ttl_odm.core.extension import DefaultExtension
    from ttl_odm.core.policy import Policy
    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.bindings import Binding


class TTLCheck(CheckConstraint):
    """``CHECK (ttl IS NULL OR ttl = -1 OR ttl > 0)`` inline with its column; stricter on SQLite.

    MariaDB takes no name there; as a table constraint it would copy the table when a migration adds
    it. MySQL gets a name only if its own would be too long.
    """

    def _copy(self, *args: Any, **kw: Any) -> Any:
        """For ``Table.to_metadata()``, which would make a CheckConstraint of it."""
        copy: Any = super()._copy(*args, **kw)
        copy.__class__ = TTLCheck
        return copy


def ttl_condition(check: TTLCheck, dialect: Dialect) -> str:
    """Return the condition of the CHECK on a database, word for word as it is always made."""
    column: Column[object] = check.parent  # type: ignore[assignment]  # it is a column's, not a table's
    return clock_of(dialect).ttl_check(column.name)


@compiles(TTLCheck)
def _render_check(constraint: TTLCheck, compiler: DDLCompiler, **_: object) -> str:
    check = f"CHECK ({ttl_condition(constraint, compiler.dialect)})"
    name = compiler.preparer.quote(str(constraint.name))
    if compiler.dialect.name not in MYSQL_FAMILY:
        return f"CONSTRAINT {name} {check}"
    column: Column[object] = constraint.parent  # type: ignore[assignment]  # as above
    is_mariadb = bool(getattr(compiler.dialect, "is_mariadb", False))
    return MySQL().check_name(column.table.name, name, is_mariadb=is_mariadb) + check


class AddSweepColumns(ExecutableDDLElement):
    """MariaDB's and MySQL's indexes: on virtual columns, since neither has partial indexes."""

    def __init__(
        self,
        table: Table,
        last_modified: Column[object],
        override: Column[object],
        scope: ColumnClause[object] | None = None,
    ) -> None:
        self.table = table
        self.last_modified = last_modified
        self.override = override
        self.scope = scope


@compiles(AddSweepColumns)
def _render_sweep_columns(ddl: AddSweepColumns, compiler: DDLCompiler, **_: object) -> str:
    if isinstance(ddl.target, Table) and ddl.target is not ddl.table:  # a copy by to_metadata()
        ddl = AddSweepColumns(ddl.target, ddl.last_modified, ddl.override, ddl.scope)
    columns = sweep_columns(ddl, compiler.preparer).values()
    parts = [*columns, *sweep_indexes(ddl, compiler.preparer).values()]
    return f"ALTER TABLE {compiler.preparer.format_table(ddl.table)} {', '.join(parts)}"


def sweep_columns(ddl: AddSweepColumns, preparer: IdentifierPreparer) -> dict[str, str]:
    """Return the clauses that add the virtual columns, by the columns' names."""
    return MySQL().virtual_columns(
        preparer.quote(ddl.last_modified.name), preparer.quote(ddl.override.name)
    )


def sweep_indexes(ddl: AddSweepColumns, preparer: IdentifierPreparer) -> dict[str, str]:
    """Return the clauses that add the indexes on the virtual columns, by the indexes' names.

    Separately, since a migration adds the columns at once and the indexes slowly.
    """
    leads = ddl.scope is not None and can_lead(ddl.scope, MySQL())
    scope = f"{preparer.quote(ddl.scope.name)}, " if ddl.scope is not None and leads else ""
    ends = {"ttl_inherited": f"{scope}{INHERITED_END}", "ttl_own": OWN_END}
    names = {index_name(ddl.table.name, suffix): end for suffix, end in ends.items()}
    return {name: f"ADD INDEX {preparer.quote(name)} ({end})" for name, end in names.items()}


def can_lead(scope: ColumnClause[object], family: Family) -> bool:
    """Return whether a column of scopes can lead an index: MariaDB and MySQL index no long text."""
    is_text = isinstance(scope.type, String)
    return not is_text or family.can_lead(getattr(scope.type, "length", None))


def add_check(table: Table, override: Column[object]) -> None:
    """Put the CHECK on the column of the row's own ttl."""
    name = index_name(table.name, "ttl").replace("ix_", "ck_", 1)
    check = TTLCheck(MySQL().ttl_check(override.name), name=conv(name))
    compat.attach(check, override)


def add_indexes(
    table: Table,
    last_modified: Column[object],
    override: Column[object],
    scope: ColumnClause[object] | None = None,
) -> None:
    """Add the sweeper's two indexes for whichever database the table is created on.

    The column of scopes leads the one over the rows that inherit, so that a sweep finds the expired
    rows of each scope by its own default.
    """
    inheriting, own = override.is_(None), type_coerce(override, Integer()) > 0
    leading = [] if scope is None else [scope]
    for suffix, places, rows in (
        ("ttl_inherited", [*leading, PartEnd(last_modified)], inheriting),
        ("ttl_own", [PartEnd(last_modified, override)], own),
    ):
        name = index_name(table.name, suffix)
        index = Index(name, *places, postgresql_where=rows, sqlite_where=rows)
        index.ddl_if(callable_=_WITH_PARTIAL_INDEXES)
    # `propagate`: on copies by to_metadata(), too.
    event.listen(table, "before_create", _restrict_indexes, propagate=True)
    event.listen(
        table,
        "after_create",
        AddSweepColumns(table, last_modified, override, scope).execute_if(
            callable_=_On(MYSQL_FAMILY)
        ),
        propagate=True,
    )


def _restrict_indexes(table: Table, *_: object, **__: object) -> None:
    """Restrict a copy's indexes to their databases again: to_metadata() leaves that out."""
    for index in table.indexes:
        if str(index.name).endswith(("_ttl_inherited", "_ttl_own")):
            index.ddl_if(callable_=_WITH_PARTIAL_INDEXES)


def add_index_on(column: Column[object]) -> None:
    """Add an index for the sweeper on a column of dates, unless an index begins with it already.

    A text without a length gets none, since MariaDB and MySQL can't index it.
    """
    table = column.table
    lists = [list(index.expressions) for index in table.indexes] + _key_columns(table)
    begins_one = any(columns[0] is column for columns in lists if columns)
    is_indexed = column.index or column.unique or begins_one
    if not is_indexed and not (isinstance(column.type, String) and column.type.length is None):
        Index(index_name(table.name, f"{column.name}_ttl"), column)


def link_index_name(table: str) -> str:
    """Return the name of the index on the columns that lead to the parents of a table's rows."""
    return index_name(table, "ttl_follows")


def add_link_index(table: Table, columns: Sequence[Column[object]], original: str) -> None:
    """Add the index on the columns that lead to parents, unless an index begins with them.

    `original` is the name of the table that `to_metadata` may have copied this one from: it copies
    an index with its name, and without the databases that the index is for.
    """
    for index in list(table.indexes):
        if index.name == link_index_name(original) and index.name != link_index_name(table.name):
            table.indexes.discard(index)
    link = link_index(table)
    if link is None:
        if begins_index(table, columns):
            return
        # `conv`: a naming convention leaves it as it is.
        link = Index(conv(link_index_name(table.name)), *in_key_order(table, columns))
    link.ddl_if(callable_=_NotOn(_without_link_index(link)))


def link_index(table: Table) -> Index | None:
    """Return the index that `add_link_index` added to a table; None without one."""
    name = link_index_name(table.name)
    return next((index for index in table.indexes if index.name == name), None)


def is_created_on(link: Index, dialect: str) -> bool:
    """Return whether a database needs the index: InnoDB creates one with each foreign key."""
    return dialect not in _without_link_index(link)


def _without_link_index(link: Index) -> tuple[str, ...]:
    """Return the dialects whose databases have the index already, or can't create it."""
    table, columns = link.table, set(link.columns)
    assert table is not None  # noqa: S101 (`add_link_index` puts it on one)
    is_key = any(set(key.columns) == columns for key in table.foreign_key_constraints)
    is_text = any(isinstance(column.type, String) and not column.type.length for column in columns)
    return tuple(MYSQL_FAMILY) if is_key or is_text else ()


def in_key_order(table: Table, columns: Sequence[Column[object]]) -> list[Column[object]]:
    """Put the columns of a foreign key first, so that one index serves the key and the link."""
    keys = [set(key.columns) for key in table.foreign_key_constraints]
    covered = max((key for key in keys if key.issubset(columns)), key=len, default=set())
    return sorted(columns, key=lambda column: column not in covered)


def begins_index(table: Table, columns: Sequence[Column[object]]) -> bool:
    """Return whether an index, unique constraint or primary key begins with columns, in any order.

    A partial index of PostgreSQL counts if it leaves out only rows without a value.
    """
    lists = _key_columns(table)
    for index in table.indexes:
        options = index.dialect_kwargs
        condition = options.get("postgresql_where")
        is_whole = condition is None or (
            isinstance(condition, ColumnElement) and condition.compare(columns[0].is_not(None))
        )
        is_whole = is_whole and options.get("sqlite_where") is None
        if is_whole and (options.get("postgresql_using") or "btree") in ("btree", "hash"):
            lists.append([_unsorted(expression) for expression in index.expressions])
    return any(set(ordered[: len(columns)]) == set(columns) for ordered in lists)


def _unsorted(expression: Any) -> Any:
    """Return the column in an expression with the order of an index."""
    while getattr(expression, "modifier", None) is not None:
        expression = expression.element
    return expression


def _key_columns(table: Table) -> list[list[Column[object]]]:
    """Return the columns of the primary key and of each unique constraint, in order."""
    return [
        list(constraint.columns)
        for constraint in table.constraints
        if isinstance(constraint, (UniqueConstraint, PrimaryKeyConstraint))
    ]


@dataclass(frozen=True)
class _On:
    """True for DDL that is emitted for one of these dialects (a class, so that it pickles)."""

    names: tuple[str, ...]

    def __call__(self, *_: object, dialect: Dialect, **__: object) -> bool:
        return dialect.name in self.names


_WITH_PARTIAL_INDEXES: Final = _On(("postgresql", "sqlite"))


@dataclass(frozen=True)
class _NotOn(_On):
    """True for DDL that is emitted for any dialect but these."""

    def __call__(self, *_: object, dialect: Dialect, **__: object) -> bool:
        return dialect.name not in self.names


def as_ddl(statement: str) -> DDL:
    """Return a statement as DDL, protecting its percent signs from the driver."""
    return DDL(statement.replace("%", "%%"))  # type: ignore[no-untyped-call]  # SQLAlchemy's


LOOKED_UP: Final = "stored"
"""Stands for the seconds in a fingerprint if a view or a policy of the database looks them up."""


def whole_policy(binding: Binding) -> Policy:
    """Return the policy of a table over its columns, with the numbers of this moment."""
    policy, limit = binding.default.policy, binding.max_lifetime
    if not isinstance(policy, TTL):
        return replace(policy, field=binding.last_modified.name)
    own, kind = binding.override, binding.discriminator
    kinds = {
        identity: variant.default()
        for variant in binding.variants
        for identity in variant.identities
    }
    default: Any = default_now(binding)
    declared: dict[str, Any] = {"default": default}
    if kinds and kind is not None:
        declared = {"default": kinds, "by": kind.name, "other": default}
    return TTL(
        **declared,
        last_modified=binding.last_modified.name,
        override=None if own is None else own.name,
        never=policy.never,
        max_lifetime=None if limit is None else limit.seconds,
        created=None if limit is None else limit.created.name,
        values=policy.values,
        timezone=policy.timezone,
        unit=policy.unit,
    )


def default_now(binding: Binding) -> int | DefaultExtension | None:
    """Return the default of a table at this moment, or the declaration of one not in code."""
    declared, column = default_extension(binding.default.policy), binding.discriminator
    if declared is None:
        return binding.default()
    return declared if declared.by is None or column is None else declared.by_column(column.name)


def note_of(policy: Policy) -> str:
    """Return the fingerprint of a policy: its seconds, with a checksum if it isn't a usual one.

    The checksum covers everything else, such as columns of the application's own.
    """
    if not isinstance(policy, TTL):
        seconds = policy.seconds if isinstance(policy, ExpireAfter) else 0
        return f"{seconds}_{_checksum(policy)}"
    declared = default_extension(policy)
    default = str(policy.default) if declared is None else LOOKED_UP
    now = policy.settled if declared is None else policy.with_default(declared.shape)
    is_usual = now == TTL(now.declared_default) and (declared is None or declared.by is None)
    return default if is_usual else f"{default}_{_checksum(now)}"


def _checksum(policy: Policy) -> str:
    return f"{zlib.crc32(repr(policy).encode()):08x}"
