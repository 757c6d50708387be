"""Expired rows that are in the way: of a write that takes their keys, or of rows that are deleted.

`install` teaches Django's `Collector` one thing: rows that have expired don't keep those that they
refer to from being deleted; they are purged first.
"""

from __future__ import annotations

import functools
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from django.db import IntegrityError, connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.deletion import Collector, ProtectedError, RestrictedError
from django.db.models.sql import Query

from ttl_odm.django.policy import options
from ttl_odm.django.policy.bindings import is_historical, table_policy
from ttl_odm.django.policy.rules import remove_dependents, rule_of
from ttl_odm.django.policy.sources import lock_defaults, locking
from ttl_odm.django.purge.references import (
    NO_HOOKS,
    endangering,
    endangers,
    is_recorded,
    is_silent,
    referring,
)
from ttl_odm.django.purge.removal import (
    Removal,
    being_removed,
    displacing,
    every,
    expired_rows,
    locked,
    recorded_error,
    removing,
    sweeping_removal,
    take_file,
    untie,
)
from ttl_odm.sweeper.declarations import hooks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django.db.models import Model as Instance
    from django.db.models.sql import UpdateQuery

    from ttl_odm.django.policy.bindings import AnyQuerySet, Model, TablePolicy
    from ttl_odm.sweeper import Hooks
    from ttl_odm.sweeper.hooks import Reason

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
    rule = rule_of(model)
    own = hooks if rule is None else NO_HOOKS
    removal = Removal(model, using, own, reason=reason, below=hooks)
    removed = 0
    # The database asks what refers to a row, even where Django was told to do nothing about it.
    hangs = removal.is_referred or removal.has_dependents
    takes_statements = removal.is_plain and not hangs and rule is None
    for expired in _with_default_locked(policy, model, using, conditions):
        if not takes_statements:
            take_file(model, using)
            with locking():
                rows = list(locked(expired, using))
            objs = _with_others(model, using, rows)
            if rule is not None and objs:
                rule.seal(using, [obj.pk for obj in objs])
            _remove(removal, objs, sweeping)
            removed += len(objs)
        elif connections[using].vendor != "mysql":
            removed += removal.by_statement(expired)
        # A DELETE that finds nothing leaves locks on the gap where its row would be, which the
        # INSERT of somebody else then waits for. So look without locks, and delete by the keys.
        elif keys := list(expired.values_list("pk", flat=True)):
            by_key = expired_rows(model, using).filter(pk__in=keys)
            removed += removal.by_statement(by_key, by_key=True)
    return removed


def give_way(query: UpdateQuery, using: str, written: Sequence[tuple[Any, Any, Any]]) -> None:
    """Remove the expired rows that keep the rows of an UPDATE from getting other keys.

    `written` is what refers to rows, which of their fields, and what that is set to.
    """
    for foreign_key, target, value in written:
        rows: Any = query.chain(klass=Query)
        rows.clear_ordering(force=True)
        rows.add_q(~Q((target.name, value)))  # a key that stays as it is needs no room
        rows.set_values([target.attname])
        displace(foreign_key.model, using, [Q((f"{foreign_key.attname}__in", rows))])


def give_way_to_upsert(
    model: Model, using: str, held: Iterable[Q], written: Sequence[tuple[Any, Any]]
) -> None:
    """Remove the expired rows that keep the rows which an upsert updates from getting other keys.

    `held` are conditions for these rows; `written` is what refers to them, and which of their
    fields.
    """
    for condition in held:
        rows: AnyQuerySet = QuerySet(model=model, using=using).filter(condition)
        for foreign_key, target in written:
            keys = rows.values(target.attname)
            displace(foreign_key.model, using, [Q((f"{foreign_key.attname}__in", keys))])


def _with_default_locked(
    policy: TablePolicy, model: Model, using: str, conditions: Sequence[Q]
) -> Iterator[AnyQuerySet]:
    """The expired rows that meet each of the conditions.

    A default that others may change is locked, once there is a row to delete by it.
    """
    locks = not policy.binding.source.is_known and connections[using].vendor != "sqlite"
    for condition in conditions:
        expired = expired_rows(model, using).filter(condition)
        if locks:
            if not expired.exists():
                continue
            lock_defaults([policy.binding], using)
            locks = False
        yield expired


def _remove(removal: Removal, objs: list[Instance], sweeping: Removal | None) -> None:
    """Remove rows as objects, after what goes before them."""
    keys = [obj.pk for obj in objs]
    if removal.has_dependents:
        removal.purged += remove_dependents(removal, keys).purged
    if sweeping is not None and sweeping.root is removal.root:
        sweeping.by_scope += removal.scopes_of(keys)
    try:
        purged = removal.by_objects(objs)
    except (ProtectedError, RestrictedError) as error:
        raise IntegrityError(
            f"An expired row of {removal.model._meta.label} blocks this write and can't be "
            f"deleted: {error.args[0]}"
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
    known, layer = being_removed(model) | {obj.pk for obj in objs}, objs
    while fields and layer:
        refers = functools.reduce(or_, (Q((f"{field.name}__in", layer)) for field in fields))
        with locking():
            rows = list(locked(expired_rows(model, using).filter(refers), using))
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
        relations: list[tuple[Any, Any]] = [
            (relation, list(instances))
            for model, instances in self.data.items()
            if instances and not is_historical(model)
            for relation in _in_the_way(model)
        ]
        # Of what goes by one statement nobody but the database would notice.
        for doomed in self.fast_deletes:
            if not hasattr(doomed, "model") or is_historical(doomed.model):
                continue
            endangered = list(endangering(doomed.model, _hooks()))
            relations += [(relation, list(doomed)) for relation in endangered]
            relations += [
                (relation, doomed)
                for relation in referring(doomed.model)
                if relation not in endangered and is_silent(relation)
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
    """The tables of which a collector deletes rows together with their parents, by a rule."""
    models = {model for model, instances in collector.data.items() if instances}
    models |= {queryset.model for queryset in collector.fast_deletes}
    tables = {model._meta.db_table for model in models}
    rules = filter(None, map(rule_of, models))
    return frozenset(
        rule.model._meta.db_table for rule in rules if rule.links.parent._meta.db_table in tables
    )


def _unlink_with_parents(collector: Collector, tables: frozenset[str]) -> None:
    """Let a collector's updates take rows that an earlier one has unlinked from their parents.

    InnoDB checks foreign keys row by row, so Django sets those that can be NULL to NULL first.
    """
    batches: Any  # of lists of instances, or of QuerySets
    for (field, _), batches in collector.field_updates.items():
        if rule_of(field.model) is None:
            continue
        instances: Any  # a list, or a QuerySet that may not have been run
        for number, instances in enumerate(batches):
            rows = instances
            if not isinstance(rows, QuerySet) or rows._result_cache is not None:
                keys = [obj.pk for obj in instances]
                rows = QuerySet(model=field.model, using=collector.using).filter(pk__in=keys)
            batches[number] = options.with_orphaned(rows, tables)


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
    instances: Sequence[Instance] | AnyQuerySet,
    using: str,
    above: frozenset[tuple[Model, Any]] = frozenset(),
) -> None:
    """Purge the expired rows that refer to others, but for those that are being removed already.

    InnoDB checks foreign keys row by row, so what can be NULL in these doesn't refer any more.
    """
    model: Model = relation.related_model
    field = relation.field
    doomed = being_removed(model)
    referred = Q((f"{field.name}__in", instances))
    is_deferred = connections[using].features.can_defer_constraint_checks
    if doomed and not is_deferred and field.null and field.db_constraint:
        rule = rule_of(model)
        if rule is not None and rule.is_link(field):
            # Live ones stay what they are until Django unlinks them itself.
            untie(expired_rows(model, using).filter(referred, pk__in=doomed), field)
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
    if is_silent(relation):
        _make_way_below(model, condition, using, above)


def _make_way_below(
    model: Model, condition: Q, using: str, above: frozenset[tuple[Model, Any]]
) -> None:
    """Purge the expired rows that refer to rows which the database is about to delete.

    A live row of a recorded model keeps the others, unless somebody is deleting a live one.
    """
    purges = displacing.get() or sweeping_removal.get() is not None
    keeps = purges and is_recorded(model, _hooks())
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
