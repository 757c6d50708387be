"""Expired rows that are in the way: of a write that takes their keys, or of rows that are deleted.

`install` teaches Django's `Collector` one thing: rows that have expired don't keep those that they
refer to from being deleted; they are purged first.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from operator import or_
from typing import TYPE_CHECKING, Any, Final, cast

from django.db import IntegrityError, connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.deletion import Collector, ProtectedError, RestrictedError

from ttl_odm.django.policy import options
from ttl_odm.django.policy.binding import is_historical, table_policy
from ttl_odm.django.purge.cascades import (
    NO_HOOKS,
    endangering,
    endangers,
    is_recorded,
    is_silent,
)
from ttl_odm.django.purge.followers import FollowersRemoval, every, seal_above
from ttl_odm.django.purge.removal import (
    Removal,
    locked,
    recorded_error,
    referring,
    rows_of,
    sweeping_removal,
    take_file,
)
from ttl_odm.sweeper.declarations import hooks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import Model as Instance

    from ttl_odm.django.policy.binding import AnyQuerySet, Model
    from ttl_odm.django.policy.following import Following
    from ttl_odm.sweeper import Hooks
    from ttl_odm.sweeper.hooks import Reason

_doomed: ContextVar[frozenset[tuple[Model, Any]]] = ContextVar(
    "ttl_odm_doomed", default=frozenset()
)
"""Rows that are being removed, by model and primary key: a cycle of references comes to its end."""

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
    reason: Reason = "displaced"
    if sweeping is not None:
        hooks, reason = sweeping.hooks_below, "expired"
    own = hooks if policy.follows is None else NO_HOOKS
    removal = Removal(model, using, own, reason=reason, below=hooks)
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
            _remove(removal, objs, sweeping)
            removed += len(objs)
        elif connections[using].vendor != "mysql":
            removed += removal.by_statement(expired)
        # A DELETE that finds nothing leaves locks on the gap where its row would be, which the
        # INSERT of somebody else then waits for. So look without locks, and delete by the keys.
        elif keys := list(expired.values_list("pk", flat=True)):
            by_key = rows_of(model, using).filter(pk__in=keys)
            removed += removal.by_statement(by_key, by_key=True)
    return removed


def _remove(removal: Removal, objs: list[Instance], sweeping: Removal | None) -> None:
    """Remove rows as objects, after what follows them."""
    keys = [obj.pk for obj in objs]
    if removal.is_followed:
        followers = FollowersRemoval(
            removal.using, hooks=removal.hooks_below, reason=removal.reason
        )
        followers.of(removal.root, keys)
        removal.purged += followers.purged
    if sweeping is not None and sweeping.root is removal.root:
        sweeping.by_scope += removal.scopes_of(keys)
    try:
        purged = removal.by_objects(objs)
    except (ProtectedError, RestrictedError) as error:
        raise IntegrityError(
            f"An expired row of {removal.model._meta.label} is in the way of this write and can't "
            f"be deleted: {error.args[0]}"
        ) from error
    if sweeping is not None:
        sweeping.purged += [*removal.purged, *purged]
        removal.purged.clear()


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
            for relation in _in_the_way(model)
        ]
        # Of what goes by one statement nobody but the database would notice.
        relations += [
            (relation, list(rows))
            for rows in self.fast_deletes
            if hasattr(rows, "model") and not is_historical(rows.model)
            for relation in endangering(rows.model, _hooks())
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


def _hooks() -> Hooks:
    """Those of a sweep at work, besides what models declare."""
    sweeping = sweeping_removal.get()
    return NO_HOOKS if sweeping is None else sweeping.hooks_below


def _in_the_way(model: Model) -> list[Any]:
    """The relations by which expired rows may refer to those of a model, at whatever depth."""
    found = referring(model)
    return found + [one for one in endangering(model, _hooks()) if one not in found]


def _make_way(
    relation: Any,
    instances: Sequence[Instance],
    using: str,
    above: frozenset[tuple[Model, Any]] = frozenset(),
) -> None:
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
    condition, sweeping = (
        referred & ~Q(pk__in=doomed) if doomed else referred,
        sweeping_removal.get(),
    )
    removed = displace(model, using, [condition], sweeping=sweeping)
    if removed and sweeping is not None:
        sweeping.referring[model._meta.db_table] += removed
    if is_silent(relation):
        _make_way_below(model, condition, using, above)


def _make_way_below(
    model: Model, condition: Q, using: str, above: frozenset[tuple[Model, Any]]
) -> None:
    """Purge the expired rows that refer to rows which the database is about to delete."""
    sweeping = sweeping_removal.get()
    keeps = sweeping is not None and is_recorded(model, sweeping.hooks_below)
    relations = _in_the_way(model) if endangers(model, _hooks()) else []
    if not (keeps or relations):
        return
    left = every(model, using).filter(condition)
    if keeps and (objs := list(left[:1])):
        raise recorded_error(model, objs)
    rest = [obj for obj in left if (model, obj.pk) not in above]
    below = above | {(model, obj.pk) for obj in rest}
    for relation in relations if rest else ():
        _make_way(relation, rest, using, below)
