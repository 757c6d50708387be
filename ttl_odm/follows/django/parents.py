"""No row is put under a parent that has expired.

Before an INSERT, a SELECT reads the parents and locks them, so that no sweeper deletes one before
the transaction ends. An UPDATE has a condition on the new parent, and relies on the foreign key for
the rest; if it has values for several rows, or there is no foreign key, a SELECT comes first too. A
row stays where it is if the database computes an expired parent for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.constants import OnConflict

from ttl_odm.django.keys.conditions import unique_sets
from ttl_odm.django.policy.options import keeps_last_modified, only_expired
from ttl_odm.django.policy.predicate import Predicate, RowCondition
from ttl_odm.django.purge.errors import error_of
from ttl_odm.django.purge.removal import chunks, take_file
from ttl_odm.follows import under_expired
from ttl_odm.follows.django.follower import Following, is_one_of
from ttl_odm.follows.django.links import keys_of, named_in, set_by, stored_fields
from ttl_odm.follows.django.parent_locks import before_update, know_parents, share
from ttl_odm.follows.django.renewals import parents_matched, renew

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model as Instance
    from django.db.models.sql import DeleteQuery, InsertQuery, UpdateQuery
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.time.fields import AnyField, BoundSQL
    from ttl_odm.follows.django.follower import Key

R = TypeVar("R")

_MOST: Final = 200
"""Keys of several fields in one condition; SQLite stops at expressions deeper than 1,000."""


def insert(following: Following, query: InsertQuery, using: str, write: Callable[[], R]) -> R:
    """Run an INSERT, unless a parent of its rows has expired: then `ExpiredError`."""
    keys = keys_of(following, query.objs, using)
    with transaction.atomic(using=using, savepoint=False):
        take_file(following.model, using)
        if following.declared.renews:
            renewed = keys
            if getattr(query, "on_conflict", None) == OnConflict.IGNORE:
                written = _without_conflicts(following.model, query.objs, using)
                renewed = keys_of(following, written, using)
            # First: if two transactions held a parent in shared mode, neither could write it.
            renew(following, using, renewed)
        check(following, using, keys)
        return write()


def update(following: Following, query: UpdateQuery, using: str, write: Callable[[], R]) -> R:
    """Run an UPDATE, unless it moves rows to a parent that has expired: then `ExpiredError`."""
    keys = named_in(following, query, using)
    if following.declared.renews and not keeps_last_modified(query):
        with transaction.atomic(using=using, savepoint=False):
            take_file(following.model, using)
            renew(following, using, [*parents_matched(following, query, using), *keys])
            return _moving(following, using, keys, write)
    is_checked = _is_checked(following, using, keys)
    ends = before_update(following, query, using, keys, looks_anyway=is_checked)
    know_parents(query, ends)
    return _moving(following, using, [] if is_checked and ends.stay else keys, write)


def delete(following: Following, query: DeleteQuery, using: str, run: Callable[[], R]) -> R:
    """Run a DELETE of rows that renew their parents."""
    with transaction.atomic(using=using, savepoint=False):
        take_file(following.model, using)
        renew(following, using, parents_matched(following, query, using))
        return run()


def _moving(following: Following, using: str, keys: list[Key], write: Callable[[], R]) -> R:
    """Run an UPDATE that moves rows to parents with these keys."""
    if not keys:
        return write()
    if not _is_checked(following, using, keys):
        written = write()
        if not written:
            check(following, using, keys, shared=False)
        return written
    with transaction.atomic(using=using, savepoint=False):
        take_file(following.model, using)
        check(following, using, keys)
        return write()


def _is_checked(following: Following, using: str, keys: list[Key]) -> bool:
    """Return whether parents that an UPDATE names are read and locked before it."""
    return len(keys) > 1 or (bool(keys) and not following.is_enforced(using))


def check(following: Following, using: str, keys: Sequence[Key], *, shared: bool = True) -> None:
    """Raise `ExpiredError` if one of these parents has expired; `shared` locks live parents."""
    links = following.links
    if following.binding.is_off:
        return
    for some in chunks(keys):
        names = [theirs.attname for theirs in links.theirs]
        parents: AnyQuerySet = QuerySet(model=links.parent, using=using)
        parents = parents.filter(is_one_of(links.theirs, some))
        keys_of_live = parents.values_list(*names)
        live = {tuple(row) for row in (share(keys_of_live) if shared else keys_of_live)}
        if len(live) == len(some):
            continue
        for key in only_expired(parents).values_list(*names):
            if tuple(key) not in live:
                raise error_of(links.parent)(
                    under_expired(following.model.__name__, links.parent.__name__, tuple(key)),
                    model=following.model._meta.label,
                    key=key[0] if len(key) == 1 else tuple(key),
                )


class NotUnderExpired(RowCondition):
    """Whether the parent that an UPDATE gives a row has not expired."""

    def __init__(self, following: Following, query: UpdateQuery) -> None:
        """Take the UPDATE; `is_needed` says whether it sets fields of the link."""
        super().__init__()
        self._following = following
        written = {field for field, _, _ in query.values}
        self.is_needed = not written.isdisjoint(stored_fields(following))

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> BoundSQL:
        """Render it."""
        links, quote = self._following.links, connection.ops.quote_name
        alias, same_key = "ttl_new_parent", []
        params: list[object] = []
        link = set_by(compiler.query, self._following, connection)
        values: list[BoundSQL] = [compiler.compile(value) for value in link]
        for (_, theirs), (sql, bound) in zip(links.pairs, values, strict=True):
            key, key_params = f"({sql})", list[object](bound)
            if connection.vendor == "mysql":
                key, key_params = self._if_moved(quote, values, key, key_params)
            same_key.append(f"{quote(alias)}.{quote(str(theirs.column))} = {key}")
            params += key_params
        expired, _ = Predicate(links.policy, alias, "expired", writing=True).as_sql(
            compiler, connection
        )
        rows = f"{quote(links.parent._meta.db_table)} {quote(alias)}"
        condition = " AND ".join([*same_key, expired])
        sql = f"NOT EXISTS (SELECT 1 FROM {rows} WHERE {condition})"  # noqa: S608
        # MySQL would turn it into a join, and read the parent first.
        return (f"(SELECT {sql}) = 1" if connection.vendor == "mysql" else sql), params

    def _if_moved(
        self,
        quote: Callable[[str], str],
        values: list[BoundSQL],
        key: str,
        key_params: list[object],
    ) -> tuple[str, list[object]]:
        """Return the key of a row's new parent; NULL for its present one, which is judged anyway.

        InnoDB would read and lock the row of a constant key before the rows to be written.
        """
        table = quote(self._following.model._meta.db_table)
        stays, params = [], list[object]()
        for own, (sql, bound) in zip(self._following.links.own, values, strict=True):
            stays.append(f"{table}.{quote(str(own.column))} <=> ({sql})")
            params += bound
        sql = f"(CASE WHEN {' AND '.join(stays)} THEN NULL ELSE {key} END)"
        return sql, [*params, *key_params]


def _without_conflicts(model: Model, objs: Sequence[Instance], using: str) -> list[Instance]:
    """Return the objects that an INSERT with ``ignore_conflicts`` will write.

    A key of the others belongs to a live row, or to an object before them. If that is in doubt, as
    with values that the database computes or compares in its own way, an object counts as written.
    """
    written = list(objs)
    for unique in unique_sets(model):
        if unique.condition is None and not any(field.generated for field in unique.fields):
            written = _without_conflicts_in(model, unique.fields, written, using)
    return written


def _without_conflicts_in(
    model: Model, fields: tuple[AnyField, ...], objs: list[Instance], using: str
) -> list[Instance]:
    """Return the objects without a conflict in one unique key."""
    names = [field.attname for field in fields]
    keys: dict[int, Key] = {}
    for number, obj in enumerate(objs):
        values = [getattr(obj, name) for name in names]
        if not any(value is None or hasattr(value, "resolve_expression") for value in values):
            pairs = zip(fields, values, strict=True)
            keys[number] = tuple(field.to_python(value) for field, value in pairs)
    distinct, taken = list(dict.fromkeys(keys.values())), set[tuple[object, ...]]()
    for some in chunks(distinct, _MOST):
        rows: AnyQuerySet = QuerySet(model=model, using=using)
        taken |= set(rows.filter(is_one_of(fields, some)).values_list(*names))
    written = []
    for number, obj in enumerate(objs):
        if keys.get(number) not in taken:
            written.append(obj)
            taken |= {keys[number]} if number in keys else set()
    return written
