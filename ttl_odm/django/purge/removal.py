"""Removing expired rows for good, for the sweeper and for writes that take their keys.

Rows are *plain* if nothing depends on them: no relation with ``on_delete``, no signal receiver, no
hook, no sink, no recorded row that the database would delete. One DELETE with the predicate removes
plain rows. Others are locked, and Django's own `Collector` deletes them, so that cascades,
``PROTECT``, ``SET_NULL`` and signals work as in any other deletion.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

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

    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.policy.sources import Scoping
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.sweeper.hooks import Reason

T = TypeVar("T")

sweeping_removal: ContextVar[Removal | None] = ContextVar("ttl_odm_sweeping_removal", default=None)
"""A sweep's removal, which counts rows that are removed because they refer to its own."""

displacing: ContextVar[bool] = ContextVar("ttl_odm_displacing", default=False)
"""Whether rows are being deleted because they block a write."""

CHUNK: Final = 500
"""Rows, or keys, in one statement: well below every database's limit of bound values."""

_doomed: ContextVar[frozenset[tuple[Model, object]]] = ContextVar(
    "ttl_odm_doomed", default=frozenset()
)


@contextmanager
def removing(rows: Iterable[tuple[Model, object]]) -> Iterator[None]:
    """Record rows, by model and primary key, while rows that refer to them are removed first.

    So no row of a reference cycle is removed twice.
    """
    token = _doomed.set(_doomed.get().union(rows))
    try:
        yield
    finally:
        _doomed.reset(token)


def being_removed(model: Model) -> set[object]:
    """Return the primary keys of a model's rows that are being removed: see `removing`."""
    return {pk for owner, pk in _doomed.get() if owner is model}


def expired_rows(model: Model, using: str) -> AnyQuerySet:
    """Return all expired rows of a model, without its managers."""
    return options.only_expired(QuerySet(model=model, using=using))


def every(model: Model, using: str) -> AnyQuerySet:
    """Return all rows of a model, expired ones too, without its managers."""
    return options.include_expired(QuerySet(model=model, using=using))


def chunks(rows: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Divide rows, or keys: databases limit the number of values in a statement."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@dataclass
class Removal:
    """The removal of rows of one model in one transaction.

    Attributes:
        model: The rows' model.
        using: The alias of the database.
        hooks: The hooks for these rows, including those that the model declares.
        reason: Why the rows are removed.
        below: The hooks for rows of other models that are removed before these; None for `hooks`.
        archived: The number of archived rows.
        referring: By table, the number of expired rows that were removed because they referred to
            these rows.
        purged: What the hooks after the commit receive for rows in `referring`.
        loaded: The bytes of the rows that were loaded into Python.
        by_scope: The number of expired rows of each scope with a default of its own.
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
        """The hooks for rows of other models that are removed before these."""
        return self.hooks if self.below is None else self.below

    @property
    def is_referred(self) -> bool:
        """Whether rows that may have expired can refer to these rows."""
        return bool(referring(self.model))

    @property
    def is_plain(self) -> bool:
        """Whether nothing depends on the rows, so that one statement can remove them."""
        reported = self._sink is not None or self.hooks.watches(self._table)
        rows, collector = expired_rows(self.model, self.using), Collector(self.using)
        if reported or endangers(self.model, self.hooks_below):
            return False
        return collector.can_fast_delete(rows) or self._is_plain_without(collector)

    @property
    def has_dependents(self) -> bool:
        """Whether rows of other models expire with these, and are removed before them."""
        return bool(rules_below(self.root))

    def _is_plain_without(self, collector: Collector) -> bool:
        """Whether only rows that are removed before these depend on them."""
        rules = rules_below(self.root)
        if not rules or self.model is not self.root or self.root._meta.parents:
            return False
        links = {own for rule in rules for own in rule.links.own}
        meta = self.root._meta
        return (
            not collector._has_signal_listeners(self.root)  # type: ignore[attr-defined]
            and not any(hasattr(field, "bulk_related_objects") for field in meta.private_fields)
            and all(
                relation.field in links or relation.field.remote_field.on_delete is DO_NOTHING
                for relation in relations_of(self.root)
            )
        )

    def by_statement(self, queryset: AnyQuerySet, *, by_key: bool = False) -> int:
        """Delete expired rows by one statement, and return their number."""
        doomed = options.for_purge(queryset, by_key=by_key)
        scoping = None if by_key or self.reason != "expired" else self._scoping
        if scoping is not None and scoping.is_used(self.using):
            return self._count_scopes(doomed, scoping)
        return int(doomed._raw_delete(self.using) or 0)

    def by_key(self, keys: Sequence[object]) -> int:
        """Delete rows by their keys if they are expired, in one statement; return their number."""
        # MariaDB has no RETURNING for a DELETE with an index hint, and MySQL for no DELETE.
        scopes = self.scopes_of(keys)
        expired = expired_rows(self.model, self.using).filter(pk__in=list(keys))
        deleted = self.by_statement(expired, by_key=True) if keys else 0
        if scopes and deleted < len(keys):  # a default was raised in between
            scopes -= self.scopes_of(keys)
        self.by_scope += scopes
        return deleted

    def _count_scopes(self, doomed: AnyQuerySet, scoping: Scoping) -> int:
        """Delete the rows of a queryset for a purge, and count them by scope."""
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

    def scopes_of(self, keys: Sequence[object]) -> Counter[str]:
        """Count rows, by their keys, in each scope with a default of its own."""
        scoping = self._scoping
        if not keys or scoping is None or not scoping.is_used(self.using):
            return Counter()
        scopes: Counter[str | None] = Counter()
        for some in chunks(keys):
            rows = every(self.root, self.using).filter(pk__in=some)
            scopes.update(dict(scoping.numbers(rows)))
        return _named(scopes)

    def by_objects(self, objs: Sequence[Instance]) -> list[Purged]:
        """Remove rows that this transaction has locked, and report them.

        Returns:
            What the hooks after the commit receive.

        Raises:
            HookError: A hook or the archive failed.
            ProtectedError: Live rows refer to one of them; RestrictedError means the same.
            UndeletedError: One of them survives.
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
        # A trigger may keep rows; a library may only mark them, and count them as deleted.
        undeleted = expired_rows(self.model, self.using)
        if deleted < len(keys):  # some may be live again
            undeleted = options.include_expired(undeleted)
        if any(undeleted.filter(pk__in=some).exists() for some in chunks(keys)):
            raise UndeletedError(self.model)
        if not self.hooks.watches(self._table):
            return []
        self.hooks.call(replace(purged, transaction=connection))
        return [purged]

    def undeleted(self, keys: Sequence[object]) -> list[object]:
        """Return the keys of rows, locked by this transaction, that still exist and are expired."""
        expired = expired_rows(self.model, self.using).filter(pk__in=list(keys))
        return list(expired.values_list("pk", flat=True))

    def _delete(self, objs: Sequence[Instance]) -> int:
        """Delete rows and everything that depends on them; return how many of the rows are gone."""
        collector = Collector(self.using)
        rows: Any = objs  # for which django-stubs requires a narrower Protocol
        family = (self.model, *self.model._meta.all_parents)
        # Rows that go because of displaced rows count for the sweep that displaces these.
        token = None
        is_displacing = displacing.set(self.reason == "displaced")
        if self.reason == "expired":
            self.by_scope += self.scopes_of([obj.pk for obj in objs])
            if sweeping_removal.get() is None:
                token = sweeping_removal.set(self)
        try:
            collector.collect(rows)
            self._check_recorded(collector, family)
            if self._delete_along(collector, family, objs):
                collector = Collector(self.using)
                collector.collect(rows)
            _keep_lifetimes(collector)
            with options.purging(frozenset(model._meta.db_table for model in family)):
                _, deleted = collector.delete()
        except (DatabaseError, InterfaceError, HookError):
            raise
        except Exception as error:  # of a signal's receiver, or the application's own on_delete
            if self.reason == "displaced":  # the application called, and expects its own error
                raise
            message = f"Deleting {self.model._meta.label} failed: {error}"
            raise HookError(message) from error
        finally:
            displacing.reset(is_displacing)
            if token is not None:
                sweeping_removal.reset(token)
        return deleted.get(self.model._meta.label, 0)

    def _check_recorded(self, collector: Collector, family: Sequence[Model]) -> None:
        """Raise if a cascade of Django's would delete live rows of a recorded model."""
        models = [model for model, rows in collector.data.items() if rows]
        models += [rows.model for rows in collector.fast_deletes if hasattr(rows, "model")]
        for model in dict.fromkeys(models):
            if model in family or not is_recorded(model, self.hooks_below.named):
                continue
            objs = list(collector.data.get(model, ()))
            for rows in collector.fast_deletes:
                if not objs and rows.model is model:
                    objs = list(rows[:1])
            if objs:
                raise recorded_error(model, objs)

    def _delete_along(
        self, collector: Collector, family: Sequence[Model], objs: Sequence[Instance]
    ) -> bool:
        """Delete the live rows that refer to expired ones of their own table; return if any did.

        They do so directly or not, by foreign keys with CASCADE, but the DELETEs of a purge take
        only expired rows of these tables. Rows that are being removed already are left out.
        """
        keys, along = {obj.pk for obj in objs}, []
        for model in family:
            others = keys | being_removed(model)
            rest = [obj for obj in collector.data.get(model, ()) if obj.pk not in others]
            along += [rest] if rest else []
        below: Any = Collector(self.using)
        for instances in along:
            model = type(instances[0])
            if is_recorded(model, self.hooks_below.named):
                raise recorded_error(model, instances)
            below.collect(instances)
        if along:
            _keep_lifetimes(below)
            with removing((model, obj.pk) for model in family for obj in objs):
                below.delete()
        return bool(along)

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
    """Return the error for rows that stay, because a cascade would delete the given rows."""
    return RestrictedError(
        f"Rows of {model._meta.label} refer to it, and a cascade would delete them without their "
        "archive or hooks.",
        set(objs),
    )


def _named(scopes: Counter[str | None]) -> Counter[str]:
    """Return the counts without that of rows in no scope with a default of its own."""
    return Counter({scope: rows for scope, rows in scopes.items() if scope is not None})


def _keep_lifetimes(collector: Collector) -> None:
    """Unlink live rows (SET_NULL and its like) without restarting their lifetimes.

    Otherwise it would depend on the time of a sweep when they expire.
    """
    for updates in collector.field_updates.values():
        updates[:] = [
            options.keep_last_modified(rows) if isinstance(rows, QuerySet) else rows
            for rows in updates
        ]


def untie(expired: AnyQuerySet, field: AnyField) -> None:
    """Set a foreign key of expired rows to NULL."""
    with locking():
        keys = list(expired.values_list("pk", flat=True))
    for some in chunks(keys):
        rows = every(expired.model, expired.db).filter(pk__in=some)
        options.after_root(rows).update(**{field.name: None})


def lock_defaults(bindings: Iterable[Binding], using: str) -> None:
    """Keep the default ttls of tables unchanged until the transaction ends.

    Defaults that Python knows need no lock.
    """
    sources = {
        # In quotes, a name may be another schema's: see `schema_and_name`.
        binding.model._meta.db_table.replace('"', ""): binding.source
        for binding in bindings
        if not binding.source.is_known
    }
    if not sources or not connections[using].features.has_select_for_update:
        return
    for name in sorted(sources):  # in one order, or two transactions deadlock
        sources[name].lock(using)


def take_file(model: Model, using: str) -> None:
    """Take SQLite's write lock before rows are read that are then deleted.

    With a write-ahead log, another connection may write in between, and then a transaction that has
    read can't get the lock any more: SQLite doesn't even wait for it.
    """
    connection = connections[using]
    if connection.vendor == "sqlite":
        table = connection.ops.quote_name(model._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {table} WHERE 1 = 0")  # noqa: S608


def locked(queryset: AnyQuerySet, using: str, *, skip: bool = False) -> AnyQuerySet:
    """Return a queryset that locks its rows, if the database can; `skip` rows locked elsewhere."""
    features = connections[using].features
    if not features.has_select_for_update:
        return queryset
    return queryset.select_for_update(
        skip_locked=skip and features.has_select_for_update_skip_locked
    )
