"""Removing expired rows for good: for the sweeper, and for writes that take their keys.

Where nothing hangs on a row (no relation with ``on_delete``, no signal receiver, no hook, no sink)
one DELETE takes it, with the predicate in it. Otherwise the rows are locked, and Django's own
`Collector` deletes them, so that cascades, ``PROTECT``, ``SET_NULL`` and signals are what they
are on any other deletion.

`install` teaches the Collector one thing: rows that have expired don't keep those that they refer
to from being deleted; they are purged first.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, IntegrityError, InterfaceError, connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.deletion import Collector, ProtectedError, RestrictedError
from django.db.models.deletion import get_candidate_relations_to_delete as relations_of
from django.db.models.sql import DeleteQuery

from ttl_odm.django.policy import options, stored
from ttl_odm.django.policy.binding import binding_of, is_historical, table_policy
from ttl_odm.django.purge.archive import sink_of
from ttl_odm.django.time.clock import database_now
from ttl_odm.sweeper import HookError, Hooks, Purged, archive, weight
from ttl_odm.sweeper.declarations import hooks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.db.models import Model as Instance

    from ttl_odm.django.policy.binding import AnyQuerySet, Binding, Model
    from ttl_odm.sweeper.hooks import Reason

_doomed: ContextVar[frozenset[tuple[Model, Any]]] = ContextVar(
    "ttl_odm_doomed", default=frozenset()
)
"""Rows that are being removed, by model and primary key: a cycle of references comes to its end."""

_sweeping: ContextVar[Removal | None] = ContextVar("ttl_odm_sweeping", default=None)
"""Where a sweep counts rows that go because they refer to its own."""

_MARK: Final = "_ttl_odm_collector"


def rows_of(model: Model, using: str) -> AnyQuerySet:
    """All expired rows of a model, past its managers."""
    return options.only_expired(QuerySet(model=model, using=using))


@dataclass
class Removal:
    """Rows of one model that one transaction removes.

    `hooks` get a report, those that the model declares included; `archived` counts rows, `loaded`
    the bytes of those that came to Python, and `referring` the rows of other tables that had
    expired too and went because they referred to these. `by_scope` counts those that have expired
    and are of a scope with a default of its own.
    """

    model: Model
    using: str
    hooks: Hooks
    reason: Reason = "expired"
    archived: int = 0
    referring: Counter[str] = field(default_factory=Counter)
    loaded: int = 0
    by_scope: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._binding = binding = binding_of(self.model)
        self.root = self.model if binding is None else binding.model
        self._sink = sink_of(self.root, self.using)
        self._table = self.root._meta.db_table

    @property
    def is_referred(self) -> bool:
        """Whether rows that may have expired can refer to these."""
        return bool(_referring(self.model))

    @property
    def is_plain(self) -> bool:
        """Whether nothing hangs on the rows, so that one statement will do."""
        reported = self._sink is not None or self.hooks.watches(self._table)
        rows = rows_of(self.model, self.using)
        return not reported and Collector(self.using).can_fast_delete(rows)

    def by_statement(self, queryset: AnyQuerySet, *, by_key: bool = False) -> int:
        """Delete expired rows by one statement, and return how many."""
        doomed = options.for_purge(queryset, by_key=by_key)
        counted = None if by_key or self.reason != "expired" else self._binding
        if counted is not None and stored.has_scopes(connections[self.using], counted):
            return self._count_scopes(doomed, counted)
        return int(doomed._raw_delete(self.using) or 0)

    def by_key(self, keys: Sequence[Any]) -> int:
        """Delete those of some rows that have expired by one statement, and return how many."""
        # MariaDB returns nothing of a DELETE that is told its index, and MySQL of none.
        scopes = self.scopes_of(keys)
        expired = rows_of(self.model, self.using).filter(pk__in=list(keys))
        deleted = self.by_statement(expired, by_key=True) if keys else 0
        if scopes and deleted < len(keys):  # somebody raised the default in between
            scopes -= self.scopes_of(keys)
        self.by_scope += scopes
        return deleted

    def _count_scopes(self, doomed: AnyQuerySet, binding: Binding) -> int:
        """Delete what a queryset for a purge finds, and count it by scope."""
        assert binding.scope is not None  # noqa: S101 (or there are no scopes)
        connection = connections[self.using]
        query = doomed.query.clone()
        query.__class__ = DeleteQuery
        statement, values = query.get_compiler(self.using).as_sql()
        names = (self._table, str(binding.scope.column))
        column = ".".join(map(connection.ops.quote_name, names))
        statement += f" RETURNING {stored.own_scope(connection, binding, column)} AS ttl_scope"
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
        binding = self._binding
        if not keys or binding is None or not stored.has_scopes(connections[self.using], binding):
            return Counter()
        every: AnyQuerySet = options.include_expired(QuerySet(model=self.root, using=self.using))
        return _named(Counter(dict(stored.by_scope(binding, every.filter(pk__in=list(keys))))))

    def by_objects(self, objs: Sequence[Instance]) -> list[Purged]:
        """Remove rows that this transaction has locked, and report them.

        It returns what the hooks after the commit are to get, and raises HookError where a hook or
        the archive failed, ProtectedError or RestrictedError where live rows refer to one of them.
        """
        if not objs:
            return []
        self.loaded += sum(weight(vars(obj).values()) for obj in objs)
        purged = self._purged(objs)
        connection = connections[self.using]
        if self._sink is not None:
            archive(self._sink, replace(purged, transaction=connection))
            self.archived += len(objs)
        collector = Collector(self.using)
        rows: Any = objs  # whose kind of collection django-stubs has a Protocol for
        family = (self.model, *self.model._meta.all_parents)
        # What goes because of rows that were displaced counts with what they are displaced for.
        token = None
        if self.reason == "expired":
            self.by_scope += self.scopes_of([obj.pk for obj in objs])
            token = _sweeping.set(self)
        try:
            collector.collect(rows)
            with options.purging(frozenset(model._meta.db_table for model in family)):
                collector.delete()
        except (DatabaseError, InterfaceError, HookError):
            raise
        except Exception as error:  # a signal's receiver, an on_delete of the application's
            if self.reason == "displaced":  # the application has called it, and wants its own
                raise
            message = f"Deleting {self.model._meta.label} failed: {error}"
            raise HookError(message) from error
        finally:
            if token is not None:
                _sweeping.reset(token)
        if not self.hooks.watches(self._table):
            return []
        self.hooks.call(replace(purged, transaction=connection))
        return [purged]

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


def _named(scopes: Counter[str | None]) -> Counter[str]:
    """The counts without that of rows that have no scope with a default of its own."""
    return Counter({scope: rows for scope, rows in scopes.items() if scope is not None})


def displace(
    model: Model, using: str, conditions: Sequence[Q], *, sweeping: Removal | None = None
) -> int:
    """Remove the expired rows that are in the way of a write, in its transaction; return how many.

    Or in the way of a sweep: it counts those of its own table by scope.

    It raises IntegrityError where a live row refers to one of them and its ``on_delete`` forbids
    it, and HookError where a hook or the archive failed.
    """
    binding = binding_of(model)
    if binding is None or binding.is_off:
        return 0
    hooks = hooks_of(binding.model, binding.model._meta.db_table)
    removal = Removal(model, using, hooks, reason="displaced")
    removed = 0
    # The database asks what refers to a row, even where Django was told to do nothing about it.
    takes_statements = removal.is_plain and not removal.is_referred
    for condition in conditions:
        expired = rows_of(model, using).filter(condition)
        if not takes_statements:
            take_file(model, using)
            objs = _with_referring(model, using, list(locked(expired, using)))
            if sweeping is not None and sweeping.root is removal.root:
                sweeping.by_scope += removal.scopes_of([obj.pk for obj in objs])
            try:
                removal.by_objects(objs)
            except (ProtectedError, RestrictedError) as error:
                raise IntegrityError(
                    f"An expired row of {model._meta.label} is in the way of this write and can't "
                    f"be deleted: {error.args[0]}"
                ) from error
            removed += len(objs)
        elif connections[using].vendor != "mysql":
            removed += removal.by_statement(expired)
        # A DELETE that finds nothing leaves locks on the gap where its row would be, which the
        # INSERT of somebody else then waits for. So look without locks, and delete by the keys.
        elif keys := list(expired.values_list("pk", flat=True)):
            by_key = rows_of(model, using).filter(pk__in=keys)
            removed += removal.by_statement(by_key, by_key=True)
    return removed


def _with_referring(model: Model, using: str, objs: list[Instance]) -> list[Instance]:
    """Rows, and the expired ones of the same table that refer to them, however long the chain.

    Those that can go together, that is; of others each goes before what it refers to.
    """
    is_deferred = connections[using].features.can_defer_constraint_checks
    fields = [
        relation.field
        for relation in _referring(model)
        if relation.related_model is model and (is_deferred or relation.field.null)
    ]
    known, layer = _being_removed(model) | {obj.pk for obj in objs}, objs
    while fields and layer:
        refers = functools.reduce(or_, (Q((f"{field.name}__in", layer)) for field in fields))
        rows = locked(rows_of(model, using).filter(refers), using)
        layer = [obj for obj in rows if obj.pk not in known]
        known |= {obj.pk for obj in layer}
        objs = [*objs, *layer]
    return objs


def _being_removed(model: Model) -> set[Any]:
    return {pk for owner, pk in _doomed.get() if owner is model}


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


def install() -> None:
    """Let Django's Collector purge what has expired before it deletes what that refers to."""
    original = Collector.delete
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def delete(self: Collector) -> tuple[int, dict[str, int]]:
        # How rows that may have expired can refer to what is about to be deleted.
        relations = [
            (relation, list(instances))
            for model, instances in self.data.items()
            if instances and not is_historical(model)
            for relation in _referring(model)
        ]
        if not relations:
            return original(self)
        rows = {(model, obj.pk) for model, objs in self.data.items() for obj in objs}
        token = _doomed.set(_doomed.get() | rows)
        try:
            with transaction.atomic(using=self.using, savepoint=False):
                for relation, instances in relations:
                    _make_way(relation, instances, self.using)
                return original(self)
        finally:
            _doomed.reset(token)

    setattr(delete, _MARK, True)
    Collector.delete = delete  # type: ignore[method-assign]


def _referring(model: Model) -> list[Any]:
    relations: Iterable[Any] = relations_of(model._meta)
    return [
        relation
        for relation in relations
        if table_policy(relation.related_model._meta.db_table) is not None
    ]


def _make_way(relation: Any, instances: list[Instance], using: str) -> None:
    """Purge the expired rows that refer to others, but for those that are being removed already.

    InnoDB checks foreign keys row by row, so what can be NULL in these doesn't refer any more.
    """
    model: Model = relation.related_model
    field = relation.field
    doomed = _being_removed(model)
    referred = Q((f"{field.name}__in", instances))
    is_deferred = connections[using].features.can_defer_constraint_checks
    if doomed and not is_deferred and field.null and field.db_constraint:
        rows: AnyQuerySet = options.include_expired(QuerySet(model=model, using=using))
        options.after_root(rows.filter(referred, pk__in=doomed)).update(**{field.name: None})
    condition, sweeping = referred & ~Q(pk__in=doomed) if doomed else referred, _sweeping.get()
    removed = displace(model, using, [condition], sweeping=sweeping)
    if removed and sweeping is not None:
        sweeping.referring[model._meta.db_table] += removed
