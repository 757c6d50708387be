"""All that Django's adapter asks of stored defaults: `StoredSource`, of each table with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.apps import apps
from django.db import connections, router

from ttl_odm.django.policy.bindings import bindings
from ttl_odm.django.policy.sources import AgeLookup, Scoping
from ttl_odm.django.sweep.walks import SweptSource
from ttl_odm.stored.django import lookup
from ttl_odm.stored.django.fixed_scopes import fixed_scopes
from ttl_odm.stored.django.locks import lock_row
from ttl_odm.stored.django.scope_index import scope_index
from ttl_odm.stored.django.scope_ranges import ScopedRows
from ttl_odm.stored.rows import POLICIES
from ttl_odm.stored.scopes import deleted_by_scope, due_by_scope
from ttl_odm.sweeper.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model, QuerySet
    from django.db.models.sql import Query

    from ttl_odm.core.policy import TTL
    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.sweeper import Fact


class StoredScopes(Scoping):
    """The scopes of a stored default: the values of `Stored.by`."""

    __slots__ = ("_binding",)

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def of_row(self, connection: BaseDatabaseWrapper, source: str) -> str:
        """The scope as it is stored, where that has a default of its own; else NULL."""
        binding = self._binding
        return lookup.own_scope(connection, binding, _column(connection, binding, source))

    def fixed_in(
        self, query: Query, alias: str, connection: BaseDatabaseWrapper
    ) -> tuple[str, ...]:
        """Those of values that the query's conditions leave to the field."""
        return fixed_scopes(query, alias, self._binding, connection)

    def numbers(self, rows: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        """How many rows are of which of them."""
        return lookup.by_scope(self._binding, rows)

    def is_used(self, using: str) -> bool:
        """Whether one is stored for any."""
        return lookup.has_scopes(connections[using], self._binding)

    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Their expired rows."""
        return due_by_scope(rows)

    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Their rows that a batch has deleted."""
        return deleted_by_scope(rows)


class StoredSource(SweptSource):
    """The default of a table as the database stores it, and those of scopes."""

    is_known: ClassVar[bool] = False

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.scoping = None if binding.scope is None else StoredScopes(binding)

    # In statements

    def looked_up(
        self, connection: BaseDatabaseWrapper, source: str, scopes: Sequence[str] = ()
    ) -> AgeLookup:
        """What the statement itself reads."""
        self.check()
        binding = self._binding
        if self.scoping is None:
            return AgeLookup(lookup.age_of(connection, binding, None), None)
        column = _column(connection, binding, source)
        age = lookup.age_of(connection, binding, column, fixed=scopes)
        if len(scopes) == 1 and lookup.is_identity(connection, binding):
            return AgeLookup(age, None)
        return AgeLookup(age, lookup.shortest_age(connection, binding))

    def row_age(self) -> lookup.StoredAge:
        """The same in a query."""
        return lookup.StoredAge(self._binding)

    # For instances in memory

    def policy_of(self, obj: Model, using: str | None, age: int | None) -> TTL:
        """By what the database has now, or has had when the row was read with it."""
        if age is not None:
            return lookup.policy_by_age(self._binding, age)
        using = using or obj._state.db or router.db_for_read(type(obj), instance=obj)
        return lookup.policy_of(connections[using], self._binding, obj)

    # In transactions that delete

    def lock(self, using: str) -> None:
        """Lock the row that stands for all stored defaults of the table, shared."""
        self.check()
        lock_row(connections[using], self._binding)

    # In sweeps

    def defaults(self, using: str) -> list[int | None]:
        """As the database has them."""
        return lookup.read_all(connections[using], self._binding)

    def shortest_age(self) -> lookup.StoredAge:
        """What looks the age up."""
        return lookup.StoredAge(self._binding, "row" if self.scoping is None else "shortest")

    def walk(self, using: str) -> ScopedRows | None:
        """From scope to scope, where an index leads there."""
        index = scope_index(self._binding, using)
        return None if index is None else ScopedRows(self._binding, using, index)

    # In checks

    def check(self) -> None:
        """Raise TTLConfigurationError where the app that stores defaults isn't installed."""
        lookup.check_app(self._binding)

    def findings(self, connection: BaseDatabaseWrapper) -> Iterator[Finding]:
        """Whether the database has what the default begins with: without it no row expires."""
        if not apps.is_installed(lookup.APP):
            return
        if POLICIES not in connection.introspection.table_names():
            message = f"there is no table {POLICIES}, which stores its default"
        elif None not in lookup.read(connection, self._binding):
            message = "its default isn't stored, so none of its rows expires by default"
        else:
            return
        table, migrate = self._binding.model._meta.db_table, "python manage.py migrate"
        yield Finding(Severity.ERROR, "missing-policy", table, message, migrate)


def stored_bindings() -> list[Binding]:
    """The policies with a stored default, in the order of declaration."""
    return [binding for binding in bindings() if isinstance(binding.source, StoredSource)]


def _column(connection: BaseDatabaseWrapper, binding: Binding, source: str) -> str:
    """The field of the scopes in a table, or its alias, quoted."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    return f"{source}.{connection.ops.quote_name(str(binding.scope.column))}"
