"""Removing the rows that follow others before those others, the deepest first.

This happens in the transaction that removes the parents, or in earlier ones, so no reader sees
followers of expired rows. The transaction has locked the parents, and they stay expired: see
`seal`.

Orphans are rows whose parent is missing, as it was deleted past the gate or never existed. They are
expired, unless ``orphan="live"``, but no sweep of their parents finds them. If the database
enforces a foreign key for the link, the only orphans are rows with a NULL in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from django.db import connections, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.sql import Query

from ttl_odm.django.policy.options import include_expired
from ttl_odm.django.policy.predicate import inherits_in
from ttl_odm.django.purge import removal
from ttl_odm.django.purge.errors import UndeletedError
from ttl_odm.django.purge.references import referring
from ttl_odm.django.sweep.transactions import under_origin
from ttl_odm.follows import check_options, sealing_ttl
from ttl_odm.follows.django.follower import Following, all_followers, followers_of, is_one_of
from ttl_odm.follows.sweep import Removal
from ttl_odm.sweeper import BatchResult, Hooks, Skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.purge.references import Relation
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.follows.django.follower import Key
    from ttl_odm.sweeper import BatchRequest, Purged
    from ttl_odm.sweeper.hooks import Reason

_READ: Final = 100_000
"""Keys that are read at once, some 10 MB."""


def seal(binding: Binding, using: str, keys: Sequence[object]) -> None:
    """Give expired rows that inherit the default a ttl of their own, with which they stay expired.

    Otherwise a default that is raised after some of their followers were removed would bring them
    back with the other followers only. Does nothing if rows can't have their own ttl.
    """
    own, connection = binding.own, connections[using]
    if own is None or not keys:
        return
    quote, meta = connection.ops.quote_name, binding.model._meta
    seconds = sealing_ttl(binding.nevers)
    table, column = quote(meta.db_table), quote(str(own.column))
    inherits = inherits_in(connection, binding, table)
    compiler = Query(binding.model).get_compiler(using)
    for some in removal.chunks(keys):
        chosen, values = compiler.compile(compiler.query.build_where(Q(pk__in=some)))
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {table} SET {column} = {seconds} "  # noqa: S608 (names that Django quotes)
                f"WHERE {chosen} AND ({inherits})",
                values,
            )


def seal_above(following: Following, using: str, keys: Sequence[object]) -> None:
    """Seal the expired rows at the root of rows that are about to be removed."""
    for some in removal.chunks(keys):
        above = list(some)
        for rule in following.chain():
            links = rule.links
            names = [own.attname for own in links.own]
            rows = removal.every(rule.model, using).filter(pk__in=above).values_list(*names)
            parents = is_one_of(links.theirs, [key for key in set(rows) if None not in key])
            roots = removal.every(links.parent, using).filter(parents)
            above = list(roots.values_list("pk", flat=True))
        binding = following.binding
        doomed = removal.expired_rows(binding.model, using).filter(pk__in=above)
        seal(binding, using, list(doomed.values_list("pk", flat=True)))


@dataclass
class FollowersRemoval(Removal):
    """Removes followers of rows, up to a limit.

    Args:
        using: The alias of the database, with a transaction.
        limit: How many rows may be removed; None for any number.
        hooks: Those of rows that refer to followers, and are removed before.
        reason: Why the rows go, for hooks.
        undeleted: Collects rows that survive their DELETE; None to raise UndeletedError, so that
            the rows that they follow stay too.
    """

    using: str
    limit: int | None = None
    hooks: Hooks = field(default_factory=Hooks)
    reason: Reason = "expired"
    removed: Counter[str] = field(default_factory=Counter)
    purged: list[Purged] = field(default_factory=list)
    undeleted: dict[Model, set[object]] | None = None

    def of(self, model: Model, keys: Sequence[object]) -> None:
        """Remove the followers of expired rows of a model, by the primary keys of these rows."""
        with removal.removing((model, key) for key in keys):
            self._below(model, keys)

    def _below(self, model: Model, keys: Sequence[object]) -> None:
        for following in followers_of(model):
            links = following.links
            for chunk in removal.chunks(keys):
                some: list[Key] = [(key,) for key in chunk]
                if links.theirs != [model._meta.pk]:
                    names = [theirs.attname for theirs in links.theirs]
                    rows = removal.every(model, self.using).filter(pk__in=chunk)
                    some = list(rows.values_list(*names))
                if some:
                    self.of_rows(following.model, is_one_of(links.own, some))

    def of_rows(self, model: Model, condition: Q) -> None:
        """Remove expired rows of a model that follows another, after their own followers."""
        check_options(model)  # an archive may be declared after the model
        # Many at once: each choice walks over the index entries of all rows that this transaction
        # has deleted. Of rows that refer to each other, the rest is chosen anew after each DELETE.
        has_rings = bool(_bound_references(model))
        while (size := self.next_size(removal.CHUNK if has_rings else _READ)) > 0:
            keys = self._choose(model, condition, size)
            for some in removal.chunks(keys):
                self.of(model, some)
                if not self.is_done:
                    return
                if not self._remove(model, some):  # the default was raised meanwhile
                    return
            if not keys or (len(keys) < size and not has_rings):
                return

    def _choose(self, model: Model, condition: Q, size: int) -> list[object]:
        """Lock some rows and return their keys; first those to which no other row refers."""
        rows = removal.expired_rows(model, self.using).filter(condition)
        doomed = removal.being_removed(model).union((self.undeleted or {}).get(model, ()))
        bound = _bound_references(model)
        free = rows
        for reference in bound:
            others = removal.every(model, self.using).filter(**{reference.name: OuterRef("pk")})
            free = free.filter(~Exists(others.exclude(pk=OuterRef("pk"))))
        for chosen in (free, rows) if bound else (rows,):
            # Left out here: databases limit the number of values in a statement.
            locked = removal.locked(chosen.values_list("pk", flat=True), self.using)
            keys = [key for key in locked[: size + len(doomed)] if key not in doomed]
            if keys:
                return keys[:size]
        return []

    def _remove(self, model: Model, keys: Sequence[object]) -> int:
        """Remove rows; return how many of them needn't be chosen again."""
        for relation in referring(model):
            self._untie(model, relation, keys)
        doomed = removal.Removal(model, self.using, Hooks(), reason=self.reason, below=self.hooks)
        if doomed.is_plain:
            deleted = doomed.by_key(keys)
            stay = doomed.undeleted(keys) if deleted < len(keys) else []
            if stay:
                self._leave(model, stay)
        else:
            deleted, stay = self._remove_objects(model, keys)
        self.removed[model._meta.db_table] += deleted
        return deleted + len(stay)

    def _remove_objects(self, model: Model, keys: Sequence[object]) -> tuple[int, list[object]]:
        """Remove rows as objects; return how many, and the keys of those that survive."""
        doomed = removal.Removal(model, self.using, Hooks(), reason=self.reason, below=self.hooks)
        objs = list(removal.expired_rows(model, self.using).filter(pk__in=list(keys)))
        if self.undeleted is None:
            purged = doomed.by_objects(objs)
        else:
            try:
                with transaction.atomic(using=self.using):
                    purged = doomed.by_objects(objs)
            except UndeletedError:
                return self._remove_halves(model, keys)
        self.purged += [*purged, *doomed.purged]
        self.removed += doomed.referring
        return len(objs), []

    def _remove_halves(self, model: Model, keys: Sequence[object]) -> tuple[int, list[object]]:
        """Remove rows of which some survive, in halves, until each survivor is alone."""
        if len(keys) == 1:
            self._leave(model, keys)
            return 0, list(keys)
        half = len(keys) // 2
        deleted, stay = self._remove_objects(model, keys[:half])
        more, others = self._remove_objects(model, keys[half:])
        return deleted + more, stay + others

    def _leave(self, model: Model, keys: Sequence[object]) -> None:
        if self.undeleted is None:
            raise UndeletedError(model)
        self.undeleted.setdefault(model, set()).update(keys)

    def _untie(self, model: Model, relation: Relation, keys: Sequence[object]) -> None:
        """Let expired rows no longer refer to rows that are removed before them.

        These are rows of the same table, and rows that the removed rows follow.
        """
        field, owner = relation.field, relation.related_model
        above = removal.being_removed(owner)
        is_enforced = getattr(field, "db_constraint", False)
        if not (field.null and is_enforced and (owner is model or above)):
            return
        referring = removal.expired_rows(owner, self.using).filter(**{f"{field.name}__in": keys})
        if owner is not model:
            referring = referring.filter(pk__in=above)
        removal.untie(referring, field)


def _bound_references(model: Model) -> list[AnyField]:
    """Return the enforced foreign keys of a model to itself that can't be NULL."""
    return [
        own
        for own in model._meta.local_fields
        if own.is_relation and own.related_model is model and getattr(own, "db_constraint", True)
        if not own.null
    ]


# Orphans


def has_orphans(binding: Binding, using: str) -> bool:
    """Return whether the models that follow a model have orphans."""
    return any(
        removal.expired_rows(following.model, using).filter(orphaned).exists()
        for following, orphaned in _orphans(binding, using)
    )


def purge_orphans(binding: Binding, using: str, request: BatchRequest) -> BatchResult:
    """Delete a batch of orphans and their followers."""
    undeleted: dict[Model, set[object]] = {}
    followers = FollowersRemoval(using, request.size, request.hooks, undeleted=undeleted)
    with transaction.atomic(using=using, durable=True):
        removal.take_file(binding.model, using)
        with under_origin(using, replicate=request.replicate):
            for following, orphaned in _orphans(binding, using):
                followers.of_rows(following.model, orphaned)
            if connections[using].vendor == "postgresql":
                connections[using].check_constraints()
    # Every batch finds rows that survive; the last one finds all of them.
    survivors = sum(map(len, undeleted.values())) if followers.is_done else 0
    return BatchResult(
        0,
        followers.resume(request),
        skipped={Skip.REFUSED: survivors} if survivors else {},
        notes=[str(UndeletedError(model)) for model in undeleted],
        referring=followers.removed,
        purged=followers.purged,
    )


def _orphans(binding: Binding, using: str) -> Iterator[tuple[Following, Q]]:
    """Yield the models that follow a model, each with the condition for its orphans."""
    for following in all_followers(binding.model):
        if following.declared.orphan == "live":
            continue
        orphaned = Q(pk__in=[])
        links = following.links
        for own in links.own:
            if own.null:
                orphaned |= Q((f"{own.attname}__isnull", True))
        if not following.is_enforced(using):
            parents: AnyQuerySet = include_expired(QuerySet(model=links.parent, using=using))
            same_key = {theirs.attname: OuterRef(own.attname) for own, theirs in links.pairs}
            orphaned |= Q(~Exists(parents.filter(**same_key)))
        if orphaned != Q(pk__in=[]):
            yield following, orphaned
