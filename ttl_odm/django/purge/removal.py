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
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.db import IntegrityError, connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.deletion import Collector, ProtectedError, RestrictedError
from django.db.models.deletion import get_candidate_relations_to_delete as relations_of

from ttl_odm.django.policy import options
from ttl_odm.django.policy.binding import binding_of, is_historical, place_of
from ttl_odm.django.time.clock import database_now
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import ArchiveSink, Hooks, Purged, archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttl_odm.sweeper.hooks import Reason

_doomed: ContextVar[frozenset[tuple[Any, Any]]] = ContextVar("ttl_odm_doomed", default=frozenset())
"""Rows that are being removed, by model and primary key: a cycle of references comes to its end."""

_MARK: Final = "_ttl_odm_collector"


def rows_of(model: Any, using: str) -> Any:
    """All expired rows of a model, past its managers."""
    return options.only_expired(QuerySet(model=model, using=using))


def hooks_of(model: Any) -> Hooks:
    """What a model declares as ``__ttl_on_purged__``, for its table."""
    declared = Hooks.of(getattr(model, "__ttl_on_purged__", None))
    table = model._meta.db_table
    return Hooks(tuple((table, hook) for _, hook in declared.entries))


def sink_of(model: Any) -> ArchiveSink | None:
    """Where a model's rows go before they are deleted; None for nowhere.

    Raises:
        TTLConfigurationError: ``__ttl_purge__`` is something else.
    """
    declared: Any = getattr(model, "__ttl_purge__", "delete")
    if declared == "delete":
        return None
    if isinstance(declared, ArchiveSink):
        return declared
    raise TTLConfigurationError(
        f"{model._meta.label}.__ttl_purge__ = {declared!r}: give 'delete', or an object with "
        "write(purged)."
    )


@dataclass
class Removal:
    """Rows of one model that one transaction removes.

    Attributes:
        model: Whose.
        using: The alias of the database.
        hooks: Whom to tell, those that the model declares included.
        reason: Why the rows go.
        archived: How many went to the sink.
    """

    model: Any
    using: str
    hooks: Hooks
    reason: Reason = "expired"
    archived: int = 0

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        binding = binding_of(self.model)
        self._root = self.model if binding is None else binding.model
        self._sink = sink_of(self._root)
        self._table = self._root._meta.db_table

    @property
    def is_plain(self) -> bool:
        """Whether nothing hangs on the rows, so that one statement will do."""
        told = self._sink is not None or self.hooks.watches(self._table)
        return not told and Collector(self.using).can_fast_delete(self.model)

    def by_statement(self, queryset: Any, *, by_key: bool = False) -> int:
        """Delete expired rows by one statement, and return how many."""
        return int(options.for_purge(queryset, by_key=by_key)._raw_delete(self.using) or 0)

    def by_objects(self, objs: Sequence[Any]) -> list[Purged]:
        """Remove rows that this transaction has locked, and tell.

        Returns:
            What the hooks after the commit are to be told.

        Raises:
            HookError: A hook or the sink failed.
            ProtectedError, RestrictedError: Live rows refer to one of them.
        """
        if not objs:
            return []
        purged = self._purged(objs)
        connection = connections[self.using]
        if self._sink is not None:
            archive(self._sink, replace(purged, transaction=connection))
            self.archived += len(objs)
        collector = Collector(self.using)
        collector.collect(objs)
        with options.purging(_family(self.model)):
            collector.delete()
        if not self.hooks.watches(self._table):
            return []
        self.hooks.call(replace(purged, transaction=connection))
        return [purged]

    def _purged(self, objs: Sequence[Any]) -> Purged:
        shows = self._sink is not None or self.hooks.wants_rows(self._table)
        pk_fields = self._root._meta.pk_fields
        return Purged(
            self._table,
            keys=[tuple(getattr(obj, field.attname) for field in pk_fields) for obj in objs],
            count=len(objs),
            as_of=database_now(connections[self.using]),
            rows=[_values(obj) for obj in objs] if shows else None,
            duration=time.monotonic() - self._began,
            reason=self.reason,
        )


def displace(model: Any, using: str, conditions: Sequence[Q]) -> int:
    """Remove expired rows that are in the way of a write, in the write's transaction.

    Args:
        model: Whose.
        using: The alias of the database.
        conditions: Which rows, besides that they have expired.

    Returns:
        How many.

    Raises:
        IntegrityError: A live row refers to one of them, and its ``on_delete`` forbids it.
        HookError: A hook or the sink failed.
    """
    binding = binding_of(model)
    if binding is None or binding.is_off:
        return 0
    removal = Removal(model, using, hooks_of(binding.model), reason="displaced")
    queries = [rows_of(model, using).filter(condition) for condition in conditions]
    if removal.is_plain and connections[using].vendor != "mysql":
        return sum(removal.by_statement(query) for query in queries)
    if removal.is_plain:
        return sum(_looked_up(removal, query) for query in queries)
    removed = 0
    for query in queries:
        objs = list(locked(query, using))
        try:
            removal.by_objects(objs)
        except (ProtectedError, RestrictedError) as error:
            raise IntegrityError(
                f"An expired row of {model._meta.label} is in the way of this write and can't be "
                f"deleted: {error.args[0]}"
            ) from error
        removed += len(objs)
    return removed


def _looked_up(removal: Removal, query: Any) -> int:
    """Look without locks, and delete what was found by its key.

    A DELETE that finds nothing leaves locks on the gap where its row would be, which the INSERT of
    somebody else then waits for.
    """
    found = list(query.values_list("pk", flat=True))
    if not found:
        return 0
    rows = rows_of(removal.model, removal.using).filter(pk__in=found)
    return removal.by_statement(rows, by_key=True)


def locked(queryset: Any, using: str, *, skip: bool = False) -> Any:
    """A queryset that locks its rows, where the database has such locks.

    Args:
        queryset: Of one table, or of a multi-table subclass.
        using: The alias of the database.
        skip: Leave rows that somebody holds, instead of waiting for them.
    """
    features = connections[using].features
    if not features.has_select_for_update:
        return queryset
    return queryset.select_for_update(
        skip_locked=skip and features.has_select_for_update_skip_locked
    )


def _values(obj: Any) -> dict[str, Any]:
    return {field.column: getattr(obj, field.attname) for field in obj._meta.concrete_fields}


def _family(model: Any) -> frozenset[str]:
    """The tables that hold parts of a row of this model."""
    meta = model._meta.concrete_model._meta
    return frozenset(each._meta.db_table for each in (meta.model, *meta.all_parents))


def install() -> None:
    """Let Django's Collector purge what has expired before it deletes what that refers to."""
    original = Collector.delete
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def delete(self: Any) -> Any:
        referring = list(_referring(self))
        if not referring:
            return original(self)
        with transaction.atomic(using=self.using, savepoint=False), _dooming(self):
            for model, condition in referring:
                displace(model, self.using, [condition])
            return original(self)

    setattr(delete, _MARK, True)
    Collector.delete = delete


def _referring(collector: Any) -> Iterator[tuple[Any, Q]]:
    """Rows that may have expired and refer to what is about to be deleted."""
    for model, instances in collector.data.items():
        if not instances or is_historical(model):
            continue
        for relation in relations_of(model._meta):
            other, field = relation.related_model, relation.field
            if place_of(other._meta.db_table) is None:
                continue
            known = {pk for each, pk in _doomed.get() if each is other}
            known |= {obj.pk for obj in collector.data.get(other, ())}
            referred = Q((f"{field.name}__in", list(instances)))
            yield other, referred & ~Q(pk__in=known) if known else referred


@contextmanager
def _dooming(collector: Any) -> Iterator[None]:
    rows = {(model, obj.pk) for model, objs in collector.data.items() for obj in objs}
    token = _doomed.set(_doomed.get() | rows)
    try:
        yield
    finally:
        _doomed.reset(token)
