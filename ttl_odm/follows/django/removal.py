"""Removing the rows that follow others before those, the deepest first.

In the transaction that removes the parents, which it has locked, or in some before it: no reader
sees followers of expired rows. Those rows stay expired, see `seal`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.db import connections, transaction
from django.db.models import Exists, OuterRef, Q

from ttl_odm.django.policy.predicate import inherits_in
from ttl_odm.django.purge import removal
from ttl_odm.django.purge.errors import UndeletedError
from ttl_odm.django.purge.references import referring
from ttl_odm.follows import check_options, sealing_ttl
from ttl_odm.follows.django.following import Following, followers_of, is_one_of
from ttl_odm.sweeper import Hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.sweeper import Purged
    from ttl_odm.sweeper.hooks import Reason

_CHUNK: Final = 500
"""Keys in one statement: well below every database's limit of bound values."""

_READ: Final = 100_000
"""Keys that are read at once, some 10 MB."""


def seal(binding: Binding, using: str, keys: Sequence[Any]) -> None:
    """Give expired rows that inherit the default a ttl of their own, with which they stay expired.

    Otherwise a default that is raised after some of their followers were removed would bring them
    back with the others. Where rows can't have their own ttl, this does nothing.
    """
    own, connection = binding.own, connections[using]
    if own is None or not keys:
        return
    quote, meta = connection.ops.quote_name, binding.model._meta
    seconds = sealing_ttl(binding.nevers)
    table, column = quote(meta.db_table), quote(str(own.column))
    inherits = inherits_in(connection, binding, table)
    pk: Any = meta.pk
    for start in range(0, len(keys), _CHUNK):
        values = [pk.get_db_prep_value(key, connection) for key in keys[start : start + _CHUNK]]
        places = ", ".join(["%s"] * len(values))
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {table} SET {column} = {seconds} "  # noqa: S608 (names that Django quotes)
                f"WHERE {quote(str(pk.column))} IN ({places}) AND ({inherits})",
                values,
            )


def seal_above(following: Following, using: str, keys: Sequence[Any]) -> None:
    """Seal the expired rows at the end that some rows follow, which go before these."""
    model: Model = following.model
    above: Any = following
    while isinstance(above, Following) and keys:
        links = above.links
        names = [own.attname for own in links.own]
        named = removal.every(model, using).filter(pk__in=list(keys)).values_list(*names)
        model = links.parent
        parents = [key for key in set(named) if None not in key]
        keys = list(
            removal.every(model, using)
            .filter(is_one_of(links.theirs, parents))
            .values_list("pk", flat=True)
        )
        above = links.policy
    binding = following.binding
    doomed = removal.expired_rows(binding.model, using).filter(pk__in=list(keys))
    seal(binding, using, list(doomed.values_list("pk", flat=True)))


@dataclass
class FollowersRemoval:
    """The followers of rows, to be removed.

    Args:
        limit: How many rows may go; None for all.
        hooks: Those of rows that refer to followers, and are removed before.
        undeleted: Where to note rows that survive their DELETE; None to raise UndeletedError, so
            that the rows that they follow stay too.
    """

    using: str
    limit: int | None = None
    hooks: Hooks = field(default_factory=Hooks)
    reason: Reason = "expired"
    removed: Counter[str] = field(default_factory=Counter)
    purged: list[Purged] = field(default_factory=list)
    undeleted: dict[Model, set[Any]] | None = None

    @property
    def is_done(self) -> bool:
        """Whether none is left; otherwise the limit was reached."""
        return self.limit is None or self.removed.total() < self.limit

    def of(self, model: Model, keys: Sequence[Any]) -> None:
        """Remove those of expired rows of a model, by primary keys."""
        with removal.removing((model, key) for key in keys):
            self._of(model, keys)

    def _of(self, model: Model, keys: Sequence[Any]) -> None:
        for following in followers_of(model):
            links = following.links
            for start in range(0, len(keys), _CHUNK):
                some: Any = [(key,) for key in keys[start : start + _CHUNK]]
                if links.theirs != [model._meta.pk]:
                    names = [theirs.attname for theirs in links.theirs]
                    rows = removal.every(model, self.using).filter(pk__in=[key for (key,) in some])
                    some = list(rows.values_list(*names))
                if some:
                    self.of_rows(following.model, is_one_of(links.own, some))

    def of_rows(self, model: Model, condition: Q) -> None:
        """Remove expired rows of a model that follows another, after what follows them."""
        check_options(model)  # an archive may be declared after the model
        while (size := self._next_size(model)) > 0:
            keys = self._choose(model, condition, size)
            for start in range(0, len(keys), _CHUNK):
                some = keys[start : start + _CHUNK]
                self.of(model, some)
                if not self.is_done:
                    return
                if not self._remove(model, some):  # the default was raised meanwhile
                    return
            if not keys or (len(keys) < size and not _bound_references(model)):
                return

    def _next_size(self, model: Model) -> int:
        """How many rows to choose next; 0 where the limit was reached.

        Many at once: each choice walks over the index entries of all rows that this transaction has
        deleted. Of rows that refer to one another, those left after each DELETE are chosen anew.
        """
        most = _CHUNK if _bound_references(model) else _READ
        return most if self.limit is None else min(self.limit - self.removed.total(), most)

    def _choose(self, model: Model, condition: Q, size: int) -> list[Any]:
        """Lock some rows; of those that refer to one another the ones that nothing refers to."""
        rows = removal.expired_rows(model, self.using).filter(condition)
        doomed = removal.being_removed(model).union((self.undeleted or {}).get(model, ()))
        if doomed:
            rows = rows.exclude(pk__in=doomed)
        bound = _bound_references(model)
        leaves = rows
        for reference in bound:
            others = removal.every(model, self.using).filter(**{reference.name: OuterRef("pk")})
            leaves = leaves.filter(~Exists(others.exclude(pk=OuterRef("pk"))))
        for chosen in (leaves, rows) if bound else (rows,):
            keys = list(removal.locked(chosen.values_list("pk", flat=True), self.using)[:size])
            if keys:
                return keys
        return []

    def _remove(self, model: Model, keys: Sequence[Any]) -> int:
        """Remove rows; return how many of them need not be chosen again."""
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

    def _remove_objects(self, model: Model, keys: Sequence[Any]) -> tuple[int, list[Any]]:
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

    def _remove_halves(self, model: Model, keys: Sequence[Any]) -> tuple[int, list[Any]]:
        """Remove rows of which some survive, until each of these stands alone."""
        if len(keys) == 1:
            self._leave(model, keys)
            return 0, list(keys)
        half = len(keys) // 2
        deleted, stay = self._remove_objects(model, keys[:half])
        more, others = self._remove_objects(model, keys[half:])
        return deleted + more, stay + others

    def _leave(self, model: Model, keys: Sequence[Any]) -> None:
        if self.undeleted is None:
            raise UndeletedError(model)
        self.undeleted.setdefault(model, set()).update(keys)

    def _untie(self, model: Model, relation: Any, keys: Sequence[Any]) -> None:
        """Let expired rows no longer refer to rows that go before them.

        Those of the same table, and the ones that these rows follow.
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


def _bound_references(model: Model) -> list[Any]:
    """The foreign keys of a model to itself that the database enforces, and that can't be NULL."""
    return [
        each
        for each in model._meta.local_fields
        if each.is_relation and each.related_model is model and getattr(each, "db_constraint", True)
        if not each.null
    ]
