"""Expired rows that block a write, because they hold its keys, or the deletion of other rows.

`install` teaches Django's `Collector` one thing: expired rows don't prevent the deletion of the
rows that they refer to; they are purged first.
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
from ttl_odm.django.policy.sources import locking
from ttl_odm.django.purge.references import (
    NO_HOOKS,
    endangering,
    endangers,
    is_enforced,
    is_recorded,
    is_silent,
    referring,
)
from ttl_odm.django.purge.removal import (
    Removal,
    being_removed,
    chunks,
    displacing,
    every,
    expired_rows,
    lock_defaults,
    locked,
    recorded_error,
    removing,
    sweeping_removal,
    take_file,
    untie,
)
from ttl_odm.sweeper.hooks import hooks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django.db.models import Model as Instance
    from django.db.models.sql import UpdateQuery

    from ttl_odm.django.policy.bindings import Model, TablePolicy
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.purge.references import Relation
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.sweeper import Hooks
    from ttl_odm.sweeper.hooks import Reason

_MARK: Final = "_ttl_odm_collector"

_FEW: Final = 500
"""Keys that a statement may name in addition to rows: see `chunks`."""


def displace(
    model: Model, using: str, conditions: Sequence[Q], *, sweeping: Removal | None = None
) -> int:
    """Remove the expired rows that block a write, in its transaction; return their number.

    Args:
        model: The rows' model.
        using: The alias of the database.
        conditions: Each of them selects rows.
        sweeping: The removal of a sweep that the rows block, instead of a write; it counts the rows
            of its own table by scope.

    Raises:
        IntegrityError: A live row refers to one of them, and its ``on_delete`` forbids the removal.
        HookError: A hook or the archive failed.
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
    # The database checks references to a row even if Django's on_delete is DO_NOTHING.
    has_others = removal.is_referred or removal.has_dependents
    goes_by_statement = removal.is_plain and not has_others and rule is None
    for expired in _with_default_locked(policy, model, using, conditions):
        if not goes_by_statement:
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
        # A DELETE that finds no row leaves a lock on the gap where the row would be, and another
        # transaction's INSERT waits for it. So read without locks, and delete by the keys.
        elif keys := list(expired.values_list("pk", flat=True)):
            by_key = expired_rows(model, using).filter(pk__in=keys)
            removed += removal.by_statement(by_key, by_key=True)
    return removed


def give_way(
    query: UpdateQuery, using: str, written: Sequence[tuple[AnyField, AnyField, object]]
) -> None:
    """Remove the expired rows whose foreign keys forbid an UPDATE of the keys of its rows.

    `written` has foreign keys to the rows, the fields that they refer to, and these fields' new
    values.
    """
    for foreign_key, target, value in written:
        rows = query.chain(klass=Query)
        rows.clear_ordering(force=True)
        rows.add_q(~Q((target.name, value)))  # an unchanged key needs no removal
        rows.set_values([target.attname])
        displace(foreign_key.model, using, [Q((f"{foreign_key.attname}__in", rows))])


def give_way_to_upsert(
    model: Model, using: str, conflicts: Iterable[Q], written: Sequence[tuple[AnyField, AnyField]]
) -> None:
    """Remove the expired rows whose foreign keys forbid an upsert's update of keys.

    `conflicts` has conditions on the updated rows; `written` has foreign keys to them, and the
    fields that they refer to.
    """
    for condition in conflicts:
        rows: AnyQuerySet = QuerySet(model=model, using=using).filter(condition)
        for foreign_key, target in written:
            keys = rows.values(target.attname)
            displace(foreign_key.model, using, [Q((f"{foreign_key.attname}__in", keys))])


def _with_default_locked(
    policy: TablePolicy, model: Model, using: str, conditions: Sequence[Q]
) -> Iterator[AnyQuerySet]:
    """Yield the expired rows of each condition.

    A default that other transactions may change is locked before the first rows are yielded.
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
    """Remove rows as objects, after their dependents."""
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
    """Add the expired rows of the same table that refer to these rows, directly or indirectly.

    Only references that allow a joint deletion count; otherwise a referring row is removed before
    the row that it refers to.
    """
    is_deferred = connections[using].features.can_defer_constraint_checks
    fields = [
        relation.field
        for relation in referring(model)
        if relation.related_model is model and (is_deferred or relation.field.null)
    ]
    keys, layer = being_removed(model) | {obj.pk for obj in objs}, objs
    while fields and layer:
        above, layer = layer, []
        for some in chunks(above):
            refers = functools.reduce(or_, (Q((f"{field.name}__in", some)) for field in fields))
            with locking():
                rows = list(locked(expired_rows(model, using).filter(refers), using))
            layer += [obj for obj in rows if obj.pk not in keys]
            keys |= {obj.pk for obj in rows}
        objs = [*objs, *layer]
    return objs


def install() -> None:
    """Make Django's Collector purge expired rows before it deletes rows that they refer to."""
    original = Collector.delete
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def delete(self: Collector) -> tuple[int, dict[str, int]]:
        # The relations by which expired rows may refer to the rows that are about to be deleted.
        relations: list[tuple[Relation, list[Instance] | AnyQuerySet]] = [
            (relation, list(instances))
            for model, instances in self.data.items()
            if instances and not is_historical(model)
            for relation in _blocking(model)
        ]
        # Fast deletes are single statements, in which only the database notices references.
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
                _purge_referring(relation, instances, self.using)
            tables = _deleted_with_parents(self)
            if tables:
                _unlink_with_parents(self, tables)
            with options.deleting_with_parents(tables):
                return original(self)

    setattr(delete, _MARK, True)
    Collector.delete = delete  # type: ignore[method-assign]


def _deleted_with_parents(collector: Collector) -> frozenset[str]:
    """Return the tables whose rows a collector deletes together with their parents by a rule."""
    models = {model for model, instances in collector.data.items() if instances}
    models |= {queryset.model for queryset in collector.fast_deletes}
    tables = {model._meta.db_table for model in models}
    rules = filter(None, map(rule_of, models))
    return frozenset(
        rule.model._meta.db_table for rule in rules if rule.links.parent._meta.db_table in tables
    )


def _unlink_with_parents(collector: Collector, tables: frozenset[str]) -> None:
    """Let a collector's updates include rows that an earlier update has unlinked from parents.

    InnoDB checks foreign keys row by row, so Django first sets foreign keys to NULL where it can.
    """
    batches: Any  # a list of lists of instances, or of QuerySets
    for (field, _), batches in collector.field_updates.items():
        if rule_of(field.model) is None:
            continue
        instances: Sequence[Instance] | AnyQuerySet  # which may not have been evaluated
        for number, instances in enumerate(batches):
            rows = instances
            if not isinstance(rows, QuerySet) or rows._result_cache is not None:
                keys = [obj.pk for obj in instances]
                rows = QuerySet(model=field.model, using=collector.using).filter(pk__in=keys)
            batches[number] = options.with_orphaned(rows, tables)


def _hooks() -> Hooks:
    """Return the hooks of the present sweep, if there is one; models declare others."""
    sweeping = sweeping_removal.get()
    return NO_HOOKS if sweeping is None else sweeping.hooks_below


def _blocking(model: Model) -> list[Relation]:
    """Return the relations by which expired rows may refer to rows of a model, at any depth."""
    relations = referring(model)
    further = (relation for relation in endangering(model, _hooks()) if relation not in relations)
    return [*relations, *further]


def _purge_referring(
    relation: Relation,
    instances: Sequence[Instance] | AnyQuerySet,
    using: str,
    above: frozenset[tuple[Model, object]] = frozenset(),
) -> None:
    """Purge the expired rows that refer to instances, except rows that are being removed already.

    InnoDB checks foreign keys row by row, so the foreign keys of those become NULL if they can.
    """
    doomed = being_removed(relation.related_model)
    parts = [instances] if isinstance(instances, QuerySet) else chunks(instances)
    for some in parts:
        _purge_referring_to(relation, some, using, doomed, above)


def _purge_referring_to(
    relation: Relation,
    instances: Sequence[Instance] | AnyQuerySet,
    using: str,
    doomed: set[object],
    above: frozenset[tuple[Model, object]],
) -> None:
    model, field = relation.related_model, relation.field
    referred = Q((f"{field.name}__in", instances))
    is_deferred = connections[using].features.can_defer_constraint_checks
    if doomed and not is_deferred and field.null and is_enforced(field):
        rule = rule_of(model)
        if rule is not None and rule.is_link(field):
            # Live rows stay unchanged until Django unlinks them itself.
            untie(expired_rows(model, using).filter(referred, pk__in=doomed), field)
        else:
            rows = every(model, using).filter(referred, pk__in=doomed)
            options.after_root(rows).update(**{field.name: None})
    conditions = _except(doomed, model, referred, using)
    sweeping = sweeping_removal.get()
    removed = displace(model, using, conditions, sweeping=sweeping)
    if removed and sweeping is not None:
        sweeping.referring[model._meta.db_table] += removed
    if is_silent(relation):
        for condition in conditions:
            _purge_below(model, condition, using, above)


def _except(doomed: set[object], model: Model, referred: Q, using: str) -> list[Q]:
    """Return conditions that select the referring rows, except the doomed ones."""
    if not doomed:
        return [referred]
    if len(doomed) <= _FEW:
        return [referred & ~Q(pk__in=doomed)]
    rows = every(model, using).filter(referred).values_list("pk", flat=True)
    return [Q(pk__in=some) for some in chunks([key for key in rows if key not in doomed])]


def _purge_below(
    model: Model, condition: Q, using: str, above: frozenset[tuple[Model, object]]
) -> None:
    """Purge the expired rows that refer to rows which the database is about to delete.

    In a purge, a live row of a recorded model keeps the others; not if the application deletes.
    """
    purges = displacing.get() or sweeping_removal.get() is not None
    keeps = purges and is_recorded(model, _hooks())
    relations = _blocking(model) if endangers(model, _hooks()) else []
    if not (keeps or relations):
        return
    rows = every(model, using).filter(condition)
    if keeps and (objs := list(rows[:1])):
        raise recorded_error(model, objs)
    rest = [obj for obj in rows if (model, obj.pk) not in above]
    below = above | {(model, obj.pk) for obj in rest}
    for relation in relations if rest else ():
        _purge_referring(relation, rest, using, below)
