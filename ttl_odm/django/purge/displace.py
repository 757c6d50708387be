"""Expired rows that are in the way: of a write that takes their keys, or of rows that are deleted.

`install` teaches Django's `Collector` one thing: rows that have expired don't keep those that they
refer to from being deleted; they are purged first.
"""

from __future__ import annotations

import functools
from operator import or_
from typing import TYPE_CHECKING, Any, Final, cast

from django.db import IntegrityError, connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.deletion import Collector, ProtectedError, RestrictedError

from ttl_odm.django.policy import options
from ttl_odm.django.policy.binding import is_historical, table_policy
from ttl_odm.django.policy.following import following_of
from ttl_odm.django.purge.followers import FollowersRemoval, seal_above
from ttl_odm.django.purge.removal import (
    Removal,
    being_removed,
    locked,
    referring,
    removing,
    rows_of,
    sweeping_removal,
    take_file,
    untie,
)
from ttl_odm.sweeper.declarations import hooks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import Model as Instance

    from ttl_odm.django.policy.binding import AnyQuerySet, Model
    from ttl_odm.django.policy.following import Following

_MARK: Final = "_ttl_odm_collector"


def displace(
    model: Model, using: str, conditions: Sequence[Q], *, sweeping: Removal | None = None
) -> int:
    """Remove the expired rows that are in the way of a write, in its transaction; return how many.

    Or in the way of a sweep: it counts those of its own table by scope.

    It raises IntegrityError where a live row refers to one of them and its ``on_delete`` forbids
    it, and HookError where a hook or the archive failed.
    """
    policy = table_policy(model._meta.db_table)
    if policy is None or policy.binding.is_off:
        return 0
    hooks = hooks_of(policy.model, policy.model._meta.db_table)
    removal = Removal(model, using, hooks, reason="displaced")
    removed = 0
    # The database asks what refers to a row, even where Django was told to do nothing about it.
    hangs = removal.is_referred or removal.is_followed
    takes_statements = removal.is_plain and not hangs and policy.follows is None
    for condition in conditions:
        expired = rows_of(model, using).filter(condition)
        if not takes_statements:
            take_file(model, using)
            objs = _with_others(model, using, list(locked(expired, using)))
            if policy.follows is not None and objs:
                seal_above(cast("Following", policy), using, [obj.pk for obj in objs])
            if removal.is_followed:
                followers = FollowersRemoval(using, reason="displaced")
                followers.of(removal.root, [obj.pk for obj in objs])
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


def _with_others(model: Model, using: str, objs: list[Instance]) -> list[Instance]:
    """Rows, and the expired ones of the same table that refer to them, however long the chain.

    Those that can go together, that is; of others each goes before what it refers to.
    """
    is_deferred = connections[using].features.can_defer_constraint_checks
    fields = [
        relation.field
        for relation in referring(model)
        if relation.related_model is model and (is_deferred or relation.field.null)
    ]
    known, layer = being_removed(model) | {obj.pk for obj in objs}, objs
    while fields and layer:
        refers = functools.reduce(or_, (Q((f"{field.name}__in", layer)) for field in fields))
        rows = locked(rows_of(model, using).filter(refers), using)
        layer = [obj for obj in rows if obj.pk not in known]
        known |= {obj.pk for obj in layer}
        objs = [*objs, *layer]
    return objs


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
            for relation in referring(model)
        ]
        if not relations:
            with options.deleting_with_parents(frozenset()):
                return original(self)
        rows = {(model, obj.pk) for model, objs in self.data.items() for obj in objs}
        with removing(rows), transaction.atomic(using=self.using, savepoint=False):
            for relation, instances in relations:
                _make_way(relation, instances, self.using)
            tables = _deleted_with_parents(self)
            if tables:
                _unlink_with_parents(self, tables)
            with options.deleting_with_parents(tables):
                return original(self)

    setattr(delete, _MARK, True)
    Collector.delete = delete  # type: ignore[method-assign]


def _deleted_with_parents(collector: Collector) -> frozenset[str]:
    """The tables of which a collector deletes rows together with rows that these follow."""
    models = {model for model, instances in collector.data.items() if instances}
    models |= {queryset.model for queryset in collector.fast_deletes}
    tables = {model._meta.db_table for model in models}
    followings = (following_of(model) for model in models)
    return frozenset(
        following.model._meta.db_table
        for following in followings
        if following is not None and following.links.parent._meta.db_table in tables
    )


def _unlink_with_parents(collector: Collector, tables: frozenset[str]) -> None:
    """Let a collector's updates of followers take rows that an earlier one has unlinked.

    InnoDB checks foreign keys row by row, so Django sets those that can be NULL to NULL first.
    """
    for (field, _), batches in collector.field_updates.items():
        if following_of(field.model) is None:
            continue
        instances: Any  # a list, or a QuerySet that may not have been run
        for number, instances in enumerate(batches):
            rows = instances
            if not isinstance(rows, QuerySet) or rows._result_cache is not None:
                keys = [obj.pk for obj in instances]
                rows = QuerySet(model=field.model, using=collector.using).filter(pk__in=keys)
            batches[number] = options.with_orphaned(rows, tables)


def _make_way(relation: Any, instances: list[Instance], using: str) -> None:
    """Purge the expired rows that refer to others, but for those that are being removed already.

    InnoDB checks foreign keys row by row, so what can be NULL in these doesn't refer any more.
    """
    model: Model = relation.related_model
    field = relation.field
    doomed = being_removed(model)
    referred = Q((f"{field.name}__in", instances))
    is_deferred = connections[using].features.can_defer_constraint_checks
    if doomed and not is_deferred and field.null and field.db_constraint:
        following = following_of(model)
        if following is not None and field in following.links.own:
            # Live ones stay what they are until Django unlinks them itself.
            untie(rows_of(model, using).filter(referred, pk__in=doomed), field)
        else:
            rows: AnyQuerySet = options.include_expired(QuerySet(model=model, using=using))
            options.after_root(rows.filter(referred, pk__in=doomed)).update(**{field.name: None})
    condition, sweeping = (
        referred & ~Q(pk__in=doomed) if doomed else referred,
        sweeping_removal.get(),
    )
    removed = displace(model, using, [condition], sweeping=sweeping)
    if removed and sweeping is not None:
        sweeping.referring[model._meta.db_table] += removed
