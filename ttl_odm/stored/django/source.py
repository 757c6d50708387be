"""`StoredSource`: the answers to all that Django's adapter asks about a stored default."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.apps import apps
from django.db import connections, router

from ttl_odm.django.policy.bindings import bindings
from ttl_odm.django.policy.sources import AgeLookup, Scoping
from ttl_odm.django.sweep.walks import SweptSource
from ttl_odm.stored.django import lookup
from ttl_odm.stored.django.fixed_scopes import fixed_scopes
from ttl_odm.stored.django.scope_ranges import ScopedRows, scope_index
from ttl_odm.stored.rows import POLICIES
from ttl_odm.stored.scopes import deleted_by_scope, due_by_scope
from ttl_odm.sweeper.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model
    from django.db.models.sql import Query

    from ttl_odm.core.policy import TTL
    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.sweeper import Fact


class StoredScopes(Scoping):
    """The scopes of a stored default: the values of `Stored.by`."""

    __slots__ = ("_binding",)

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def of_row(self, connection: BaseDatabaseWrapper, source: str) -> str:
        """The scope of a row, as stored, where it has a default of its own; else NULL."""
        binding = self._binding
        return lookup.own_scope(connection, binding, _column(connection, binding, source))

    def fixed_in(
        self, query: Query, alias: str, connection: BaseDatabaseWrapper
    ) -> tuple[str, ...]:
        """The few scopes, as stored, that rows can have by a query's conditions."""
        return fixed_scopes(query, alias, self._binding, connection)

    def numbers(self, rows: AnyQuerySet) -> AnyQuerySet:
        """The number of rows of each scope with a default of its own; None: of all others."""
        return lookup.by_scope(self._binding, rows)

    def is_used(self, using: str) -> bool:
        """Whether any scope has a default of its own in a database."""
        return lookup.has_scopes(connections[using], self._binding)

    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a count reports of the expired rows of each scope."""
        return due_by_scope(rows)

    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a batch reports of the rows of each scope that it has deleted."""
        return deleted_by_scope(rows)


class StoredSource(SweptSource):
    """The default of a table, and those of its scopes, as the database stores them."""

    is_known: ClassVar[bool] = False

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.scoping = None if binding.scope is None else StoredScopes(binding)

    # In statements

    def looked_up(
        self, connection: BaseDatabaseWrapper, source: str, scopes: Sequence[str] = ()
    ) -> AgeLookup:
        """How a statement looks up the default of a row."""
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
        """The age of such a look-up, as an expression of Django's."""
        return lookup.StoredAge(self._binding)

    # For instances in memory

    def policy_of(self, obj: Model, using: str | None, age: int | None) -> TTL:
        """The policy by the default that the database has now, or had when the row was read."""
        if age is not None:
            return lookup.policy_by_age(self._binding, age)
        using = using or obj._state.db or router.db_for_read(type(obj), instance=obj)
        return lookup.policy_of(connections[using], self._binding, obj)

    # In transactions that delete

    def lock(self, using: str) -> None:
        """Lock the row that stands for all stored defaults of the table, shared."""
        self.check()
        lookup.lock_row(connections[using], self._binding)

    # In sweeps

    def defaults(self, using: str) -> list[int | None]:
        """Every default that rows may inherit, as the database stores them."""
        return lookup.read_all(connections[using], self._binding)

    def shortest_age(self) -> lookup.StoredAge:
        """The age at which the first rows that inherit expire; with scopes, the least of all."""
        return lookup.StoredAge(self._binding, "row" if self.scoping is None else "shortest")

    def walk(self, using: str) -> ScopedRows | None:
        """The way from scope to scope; None where no index leads it."""
        index = scope_index(self._binding, using)
        return None if index is None else ScopedRows(self._binding, using, index)

    # In checks

    def check(self) -> None:
        """Raise TTLConfigurationError if the app that stores defaults isn't installed."""
        lookup.check_app(self._binding)

    def findings(self, connection: BaseDatabaseWrapper) -> Iterator[Finding]:
        """Report a default that isn't stored: then no row of the table expires by default."""
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
    """Return the policies with a stored default, in the order of declaration."""
    return [binding for binding in bindings() if isinstance(binding.source, StoredSource)]


def _column(connection: BaseDatabaseWrapper, binding: Binding, source: str) -> str:
    """The column of the scopes in a table, or in its alias, quoted."""
    assert binding.scope is not None  # noqa: S101 (the callers have asked)
    return f"{source}.{connection.ops.quote_name(str(binding.scope.column))}"
