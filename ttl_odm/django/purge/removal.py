"""Removing expired rows for good: for the sweeper, and for writes that take their keys.

Where nothing hangs on a row (no relation with ``on_delete``, no signal receiver, no hook, no sink,
no recorded row that the database would delete) one DELETE takes it, with the predicate in it.
Otherwise the rows are locked, and Django's own `Collector` deletes them, so that cascades,
``PROTECT``, ``SET_NULL`` and signals are what they are on any other deletion.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import DO_NOTHING, QuerySet, RestrictedError
from django.db.models.deletion import Collector
from django.db.models.sql import DeleteQuery

from ttl_odm.django.policy import options
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.policy.rules import rules_below
from ttl_odm.django.policy.sources import locking
from ttl_odm.django.purge.archive import sink_of
from ttl_odm.django.purge.errors import UndeletedError
from ttl_odm.django.purge.references import endangers, is_recorded, referring, relations_of
from ttl_odm.django.time.clock import database_now
from ttl_odm.sweeper import HookError, Hooks, Purged, archive, weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django.db.models import Model as Instance

    from ttl_odm.django.policy.bindings import AnyQuerySet, Model
    from ttl_odm.django.policy.sources import Scoping
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.sweeper.hooks import Reason

sweeping_removal: ContextVar[Removal | None] = ContextVar("ttl_odmsweeping_removal", default=None)
"""Where a sweep counts rows that go because they refer to its own."""

displacing: ContextVar[bool] = ContextVar("ttl_odm_displacing", default=False)
"""Whether rows are being deleted because they are in the way of a write."""

_doomed: ContextVar[frozenset[tuple[Model, Any]]] = ContextVar(
    "ttl_odm_doomed", default=frozenset()
)


@contextmanager
def removing(rows: Iterable[tuple[Model, Any]]) -> Iterator[None]:
    """Note rows, by model and primary key, while rows that refer to them are removed first.

    Of a cycle of references none is removed twice.
    """
    token = _doomed.set(_doomed.get().union(rows))
    try:
        yield
    finally:
        _doomed.reset(token)


def being_removed(model: Model) -> set[Any]:
    """The primary keys of a model's rows that are being removed: see `removing`."""
    return {pk for owner, pk in _doomed.get() if owner is model}


def expired_rows(model: Model, using: str) -> AnyQuerySet:
    """All expired rows of a model, past its managers."""
    return options.only_expired(QuerySet(model=model, using=using))


def every(model: Model, using: str) -> AnyQuerySet:
    """All rows of a model, past its managers."""
    return options.include_expired(QuerySet(model=model, using=using))


@dataclass
class Removal:
    """Rows of one model that one transaction removes.

    `hooks` get a report, those that the model declares included, and `below` one of rows of other
    models that go before these (None: the same hooks); `archived` counts rows, `loaded`
    the bytes of those that came to Python, and `referring` the rows of other tables that had
    expired too and went because they referred to these; `purged` is what hooks after the commit are
    to get of these. `by_scope` counts those that have expired and are of a scope with a default of
    its own.
    """

    model: Model
    using: str
    hooks: Hooks
    reason: Reason = "expired"
    below: Hooks | None = None
    archived: int = 0
    referring: Counter[str] = field(default_factory=Counter)
    purged: list[Purged] = field(default_factory=list)
    loaded: int = 0
    by_scope: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        binding = binding_of(self.model)
        self._scoping = None if binding is None else binding.source.scoping
        self.root = self.model if binding is None else binding.model
        self._sink = sink_of(self.root, self.using)
        self._table = self.root._meta.db_table

    @property
    def hooks_below(self) -> Hooks:
        """Those of rows of other models that go before these."""
        return self.hooks if self.below is None else self.below

    @property
    def is_referred(self) -> bool:
        """Whether rows that may have expired can refer to these."""
        return bool(referring(self.model))

    @property
    def is_plain(self) -> bool:
        """Whether nothing hangs on the rows, so that one statement will do."""
        reported = self._sink is not None or self.hooks.watches(self._table)
        rows, collector = expired_rows(self.model, self.using), Collector(self.using)
        if reported or endangers(self.model, self.hooks_below):
            return False
        return collector.can_fast_delete(rows) or self._is_plain_without(collector)

    @property
    def has_dependents(self) -> bool:
        """Whether rows of other models expire with these, and go before them."""
        return bool(rules_below(self.root))

    def _is_plain_without(self, collector: Collector) -> bool:
        """Whether nothing hangs on the rows but what goes before them."""
        rules = rules_below(self.root)
        if not rules or self.model is not self.root or self.root._meta.parents:
            return False
        links = {own for rule in rules for own in rule.links.own}
        meta: Any = self.root._meta
        return (
            not collector._has_signal_listeners(self.root)  # type: ignore[attr-defined]
            and not any(hasattr(field, "bulk_related_objects") for field in meta.private_fields)
            and all(
                relation.field in links or relation.field.remote_field.on_delete is DO_NOTHING
                for relation in relations_of(self.root)
            )
        )

    def by_statement(self, queryset: AnyQuerySet, *, by_key: bool = False) -> int:
        """Delete expired rows by one statement, and return how many."""
        doomed = options.for_purge(queryset, by_key=by_key)
        scoping = None if by_key or self.reason != "expired" else self._scoping
        if scoping is not None and scoping.is_used(self.using):
            return self._count_scopes(doomed, scoping)
        return int(doomed._raw_delete(self.using) or 0)

    def by_key(self, keys: Sequence[Any]) -> int:
        """Delete those of some rows that have expired by one statement, and return how many."""
        # MariaDB returns nothing of a DELETE that is told its index, and MySQL of none.
        scopes = self.scopes_of(keys)
        expired = expired_rows(self.model, self.using).filter(pk__in=list(keys))
        deleted = self.by_statement(expired, by_key=True) if keys else 0
        if scopes and deleted < len(keys):  # somebody raised the default in between
            scopes -= self.scopes_of(keys)
        self.by_scope += scopes
        return deleted

    def _count_scopes(self, doomed: AnyQuerySet, scoping: Scoping) -> int:
        """Delete what a queryset for a purge finds, and count it by scope."""
        connection = connections[self.using]
        query = doomed.query.clone()
        query.__class__ = DeleteQuery
        statement, values = query.get_compiler(self.using).as_sql()
        scope = scoping.of_row(connection, connection.ops.quote_name(self._table))
        statement += f" RETURNING {scope} AS ttl_scope"
        scopes: Counter[str | None] = Counter()
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                grouped = "SELECT ttl_scope, COUNT(*) FROM deleted GROUP BY ttl_scope"
                cursor.execute(f"WITH deleted AS ({statement}) {grouped}", values)
                scopes.update(dict(cursor.fetchall()))
            else:
                cursor.execute(statement, values)
                scopes.update(scope for (scope,) in cursor.fetchall())
        self.by_scope += _named(scopes)
        return scopes.total()

    def scopes_of(self, keys: Sequence[Any]) -> Counter[str]:
        """How many of some rows are of which scope with a default of its own."""
        scoping = self._scoping
        if not keys or scoping is None or not scoping.is_used(self.using):
            return Counter()
        every: AnyQuerySet = options.include_expired(QuerySet(model=self.root, using=self.using))
        return _named(Counter(dict(scoping.numbers(every.filter(pk__in=list(keys))))))

    def by_objects(self, objs: Sequence[Instance]) -> list[Purged]:
        """Remove rows that this transaction has locked, and report them.

        It returns what the hooks after the commit are to get, and raises HookError where a hook or
        the archive failed, ProtectedError or RestrictedError where live rows refer to one of them,
        UndeletedError where one of them survives.
        """
        if not objs:
            return []
        self.loaded += sum(weight(vars(obj).values()) for obj in objs)
        purged = self._purged(objs)
        connection = connections[self.using]
        if self._sink is not None:
            archive(self._sink, replace(purged, transaction=connection))
            self.archived += len(objs)
        keys = [obj.pk for obj in objs]
        deleted = self._delete(objs)
        # A trigger may keep rows; a library may mark them, and count them as deleted.
        undeleted = expired_rows(self.model, self.using)
        if deleted < len(keys):  # or they don't count as expired any more
            undeleted = options.include_expired(undeleted)
        if undeleted.filter(pk__in=keys).exists():
            raise UndeletedError(self.model)
        if not self.hooks.watches(self._table):
            return []
        self.hooks.call(replace(purged, transaction=connection))
        return [purged]

    def undeleted(self, keys: Sequence[Any]) -> list[Any]:
        """Those of some rows, locked by this transaction, that are there and still expired."""
        expired = expired_rows(self.model, self.using).filter(pk__in=list(keys))
        return list(expired.values_list("pk", flat=True))

    def _delete(self, objs: Sequence[Instance]) -> int:
        """Delete rows with all that hangs on them, and return how many of these were deleted."""
        collector = Collector(self.using)
        rows: Any = objs  # whose kind of collection django-stubs has a Protocol for
        family = (self.model, *self.model._meta.all_parents)
        # What goes because of rows that were displaced counts with what they are displaced for.
        token = None
        is_displacing = displacing.set(self.reason == "displaced")
        if self.reason == "expired":
            self.by_scope += self.scopes_of([obj.pk for obj in objs])
            if sweeping_removal.get() is None:
                token = sweeping_removal.set(self)
        try:
            collector.collect(rows)
            self._check_recorded(collector, family)
            with options.purging(frozenset(model._meta.db_table for model in family)):
                _, deleted = collector.delete()
        except (DatabaseError, InterfaceError, HookError):
            raise
        except Exception as error:  # a signal's receiver, an on_delete of the application's
            if self.reason == "displaced":  # the application has called it, and wants its own
                raise
            message = f"Deleting {self.model._meta.label} failed: {error}"
            raise HookError(message) from error
        finally:
            displacing.reset(is_displacing)
            if token is not None:
                sweeping_removal.reset(token)
        return deleted.get(self.model._meta.label, 0)

    def _check_recorded(self, collector: Any, family: Sequence[Model]) -> None:
        """Let no cascade of Django's delete live rows of a model with an archive or hooks."""
        found = [model for model, rows in collector.data.items() if rows]
        found += [rows.model for rows in collector.fast_deletes if hasattr(rows, "model")]
        for model in dict.fromkeys(found):
            if model in family or not is_recorded(model, self.hooks_below.named):
                continue
            objs = list(collector.data.get(model, ()))
            for rows in collector.fast_deletes:
                if not objs and rows.model is model:
                    objs = list(rows[:1])
            if objs:
                raise recorded_error(model, objs)

    def _purged(self, objs: Sequence[Instance]) -> Purged:
        with_rows = self._sink is not None or self.hooks.wants_rows(self._table)
        rows = [
            {str(field.column): getattr(obj, field.attname) for field in obj._meta.concrete_fields}
            for obj in (objs if with_rows else ())
        ]
        keys = [field.attname for field in self.root._meta.pk_fields]
        return Purged(
            self._table,
            keys=[tuple(getattr(obj, attname) for attname in keys) for obj in objs],
            count=len(objs),
            as_of=database_now(connections[self.using]),
            rows=rows if with_rows else None,
            duration=time.monotonic() - self._began,
            reason=self.reason,
        )


def recorded_error(model: Model, objs: Sequence[Instance]) -> RestrictedError:
    """The error for rows that stay for the sake of others, which a cascade would delete."""
    return RestrictedError(
        f"Rows of {model._meta.label} refer to it, and a cascade would delete them without their "
        "archive or hooks.",
        set(objs),
    )


def _named(scopes: Counter[str | None]) -> Counter[str]:
    """The counts without that of rows that have no scope with a default of its own."""
    return Counter({scope: rows for scope, rows in scopes.items() if scope is not None})


def untie(expired: AnyQuerySet, field: AnyField) -> None:
    """Set a foreign key of expired rows to NULL."""
    with locking():
        keys = list(expired.values_list("pk", flat=True))
    if keys:
        rows: AnyQuerySet = QuerySet(model=expired.model, using=expired.db)
        rows = options.include_expired(rows).filter(pk__in=keys)
        options.after_root(rows).update(**{field.name: None})


def take_file(model: Model, using: str) -> None:
    """Take SQLite's lock for writing, before rows are read that are then deleted.

    With a write-ahead log others may delete them in between, and a transaction that has read by
    then can't get the lock any more: SQLite doesn't even wait for it.
    """
    connection = connections[using]
    if connection.vendor == "sqlite":
        table = connection.ops.quote_name(model._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {table} WHERE 1 = 0")  # noqa: S608


def locked(queryset: AnyQuerySet, using: str, *, skip: bool = False) -> AnyQuerySet:
    """A queryset that locks its rows, where the database can; `skip` those that somebody holds."""
    features = connections[using].features
    if not features.has_select_for_update:
        return queryset
    return queryset.select_for_update(
        skip_locked=skip and features.has_select_for_update_skip_locked
    )
