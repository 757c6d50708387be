"""The scopes that a statement's own conditions leave to its rows.

An application of many tenants writes ``filter(tenant=t)`` in nearly every query. The default of
that tenant is then the same for all rows, so the statement looks it up once.

Only conditions that hold for every row of the result count: an exact or a short ``in`` lookup of
plain values, joined by AND alone, on the table's own column or one that inner joins equate with it.
Such a condition is false for NULL, so it also holds for the rows of an outer join.

This module must not know the SQL that looks a default up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.db import models
from django.db.models.expressions import Col
from django.db.models.fields.related_lookups import RelatedExact, RelatedIn
from django.db.models.lookups import Exact, In, IntegerFieldExact
from django.db.models.sql.constants import INNER
from django.db.models.sql.where import AND, WhereNode

from ttl_odm.django.policy.indexes import target_of
from ttl_odm.stored.scope_columns import is_encodable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql import Query

    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.time.fields import AnyField, AnyLookup

_MOST: Final = 5
"""The most scopes that are looked up once for a statement: each makes the statement longer."""

_EQUAL: Final = (Exact, IntegerFieldExact, RelatedExact)
_ONE_OF: Final = (In, RelatedIn)
"""Django's own classes: a subclass may compare differently."""

Column = tuple[str, str]
"""An alias in a query and a column of its table."""


def fixed_scopes(
    query: Query, alias: str, binding: Binding, connection: BaseDatabaseWrapper
) -> tuple[str, ...]:
    """Return the scopes, as stored, that rows of an alias have; empty if they may have any."""
    source = query.alias_map.get(alias)
    if source is None or source.table_name != binding.model._meta.db_table or not query.where:
        return ()  # a table whose rows follow those of another
    lookups = {
        (lookup.lhs.alias, lookup.lhs.target.column): lookup for lookup in _lookups(query.where)
    }
    if not lookups:
        return ()
    assert binding.scope is not None  # noqa: S101 (the caller has asked)
    for column in _equal_columns(query, (alias, str(binding.scope.column))):
        if column in lookups:
            scopes = _scopes_of(lookups[column], binding.scope, connection)
            if scopes:
                return scopes
    return ()


def _lookups(where: WhereNode) -> Iterator[AnyLookup]:
    """Yield the lookups of plain values that hold for each row; the shortest come last."""
    if where.negated or where.connector != AND:
        return
    lookups: list[AnyLookup] = []
    children: list[Any] = where.children
    for child in children:
        if type(child) is WhereNode:
            lookups += _lookups(child)
        elif type(child) in (*_EQUAL, *_ONE_OF):
            is_of_column = type(child.lhs) is Col and not child.bilateral_transforms
            if is_of_column and child.rhs_is_direct_value() and _length(child) <= _MOST:
                lookups.append(child)
    yield from sorted(lookups, key=_length, reverse=True)


def _length(lookup: AnyLookup) -> int:
    return len(lookup.rhs) if type(lookup) in _ONE_OF else 1


def _equal_columns(query: Query, column: Column) -> Iterator[Column]:
    """Yield a column, and those that inner joins equate with it."""
    columns = [column]
    for known in columns:
        yield known
        for left, right in _join_columns(query):
            other = right if known == left else left if known == right else known
            if other not in columns:
                columns.append(other)


def _join_columns(query: Query) -> Iterator[tuple[Column, Column]]:
    """Yield the pairs of columns that inner joins equate."""
    sources: Any = query.alias_map  # also of the gate's joins, which aren't Django's
    for alias, join in sources.items():
        above = join.parent_alias
        if join.join_type == INNER and query.alias_refcount[alias] and query.alias_refcount[above]:
            yield from (((above, theirs), (alias, own)) for theirs, own in join.join_cols)


def _scopes_of(
    lookup: AnyLookup, scope: AnyField, connection: BaseDatabaseWrapper
) -> tuple[str, ...]:
    """Return the scopes that a lookup names; empty if a value of it may name none."""
    field = target_of(lookup.lhs.target)
    if _kind(field) is not _kind(target_of(scope)):
        return ()
    values = lookup.rhs if type(lookup) in _ONE_OF else [lookup.rhs]
    scopes = [_scope_of(field, value, connection) for value in values if value is not None]
    certain = [text for text in scopes if text is not None]
    return tuple(dict.fromkeys(certain)) if len(certain) == len(scopes) else ()


def _kind(field: AnyField) -> type | None:
    kinds = (models.IntegerField, models.UUIDField, models.CharField, models.TextField)
    kind = next((kind for kind in kinds if isinstance(field, kind)), None)
    return models.CharField if kind is models.TextField else kind


def _scope_of(field: AnyField, value: object, connection: BaseDatabaseWrapper) -> str | None:
    """Return a value of a field as scopes are stored; None if that isn't certain."""
    stored = field.get_db_prep_value(value, connection, prepared=True)
    if isinstance(stored, int):
        return str(int(stored))  # it may be of a class of psycopg's
    if type(stored) is UUID:
        return str(stored)
    is_text = type(stored) is str and "\0" not in stored and is_encodable(stored)
    return stored if is_text else None
