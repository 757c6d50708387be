"""No row is put under a parent that has expired.

Before an INSERT one look at the parents, which locks them, so that no sweeper takes one away until
the transaction is over. An UPDATE carries the condition, where a foreign key does the rest; with
values for several rows, or without a foreign key, there is a look before it too. A row stays where
it is if the new parent that the database computes for it has expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.constants import OnConflict

from ttl_odm.django.keys.conditions import unique_sets
from ttl_odm.django.policy.options import keeps_last_modified, only_expired
from ttl_odm.django.policy.predicate import Predicate, RowCondition
from ttl_odm.django.purge.errors import error_of
from ttl_odm.django.purge.removal import take_file
from ttl_odm.follows import under_expired
from ttl_odm.follows.django.following import Following, is_one_of
from ttl_odm.follows.django.links import keys_of, named_in, set_by, stored_fields
from ttl_odm.follows.django.locks import share
from ttl_odm.follows.django.parent_ends import before_update, know_parents
from ttl_odm.follows.django.renewals import parents_matched, renew

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model as Instance
    from django.db.models.sql import DeleteQuery, InsertQuery, UpdateQuery
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.bindings import AnyQuerySet, Model
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.follows.django.following import Key

_CHUNK: Final = 500
"""Keys in one statement."""

_MOST: Final = 200
"""Keys of several fields in one condition; SQLite stops at expressions deeper than 1,000."""


def insert(following: Following, query: InsertQuery, using: str, write: Callable[[], Any]) -> Any:
    """Run an INSERT, unless a parent of its rows has expired: then `ExpiredError`."""
    keys = keys_of(following, query.objs, using)
    with transaction.atomic(using=using, savepoint=False):
        take_file(following.model, using)
        if following.declared.renews:
            renewed = keys
            if getattr(query, "on_conflict", None) == OnConflict.IGNORE:
                written = _without_held(following.model, query.objs, using)
                renewed = keys_of(following, written, using)
            # First: of a row that two share InnoDB would let neither write.
            renew(following, using, renewed)
        check(following, using, keys)
        return write()


def update(following: Following, query: UpdateQuery, using: str, write: Callable[[], Any]) -> Any:
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


def delete(following: Following, query: DeleteQuery, using: str, run: Callable[[], Any]) -> Any:
    """Run a DELETE of rows that renew their parents."""
    with transaction.atomic(using=using, savepoint=False):
        take_file(following.model, using)
        renew(following, using, parents_matched(following, query, using))
        return run()


def _moving(following: Following, using: str, keys: list[Key], write: Callable[[], Any]) -> Any:
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
    """Whether parents that an UPDATE names are looked at before it, and locked."""
    return len(keys) > 1 or (bool(keys) and not following.is_enforced(using))


def check(following: Following, using: str, keys: Sequence[Key], *, shared: bool = True) -> None:
    """Raise `ExpiredError` where one of some parents has expired; `shared` locks the others."""
    links = following.links
    if following.binding.is_off:
        return
    for start in range(0, len(keys), _CHUNK):
        some = keys[start : start + _CHUNK]
        names = [theirs.attname for theirs in links.theirs]
        parents: AnyQuerySet = QuerySet(model=links.parent, using=using)
        parents = parents.filter(is_one_of(links.theirs, some))
        found = parents.values_list(*names)
        alive = {tuple(row) for row in (share(found) if shared else found)}
        if len(alive) == len(some):
            continue
        for key in only_expired(parents).values_list(*names):
            if tuple(key) not in alive:
                raise error_of(links.parent)(
                    under_expired(following.model.__name__, links.parent.__name__, tuple(key)),
                    model=following.model._meta.label,
                    key=key[0] if len(key) == 1 else tuple(key),
                )


class NotUnderExpired(RowCondition):
    """Whether the parent that an UPDATE gives a row has not expired."""

    def __init__(self, following: Following, query: UpdateQuery) -> None:
        """Take it from what the UPDATE sets."""
        super().__init__()
        self._following = following
        written = {field for field, _, _ in query.values}
        self.is_needed = not written.isdisjoint(stored_fields(following))

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        """Render it."""
        links, quote = self._following.links, connection.ops.quote_name
        alias, ties = "ttl_new_parent", []
        params: list[Any] = []
        query: Any = compiler.query
        values = [compiler.compile(v) for v in set_by(query, self._following, connection)]
        for (_, theirs), (sql, bound) in zip(links.pairs, values, strict=True):
            named, given = f"({sql})", list(bound)
            if connection.vendor == "mysql":
                named, given = self._moved(quote, values, named, given)
            ties.append(f"{quote(alias)}.{quote(str(theirs.column))} = {named}")
            params += given
        expired, _ = Predicate(links.policy, alias, "expired", writing=True).as_sql(
            compiler, connection
        )
        rows = f"{quote(links.parent._meta.db_table)} {quote(alias)}"
        condition = " AND ".join([*ties, expired])
        sql = f"NOT EXISTS (SELECT 1 FROM {rows} WHERE {condition})"  # noqa: S608
        # MySQL would make a join of it, and read the parent first.
        return (f"(SELECT {sql}) = 1" if connection.vendor == "mysql" else sql), params

    def _moved(
        self, quote: Callable[[str], str], values: list[Any], named: str, given: list[Any]
    ) -> tuple[str, list[Any]]:
        """The key of a row's new parent; NULL if it is the present one, which is judged anyway.

        InnoDB would read, and lock, the row of a constant key before the rows to be written.
        """
        table = quote(self._following.model._meta.db_table)
        stays, params = [], list[Any]()
        for own, (sql, bound) in zip(self._following.links.own, values, strict=True):
            stays.append(f"{table}.{quote(str(own.column))} <=> ({sql})")
            params += bound
        return f"(CASE WHEN {' AND '.join(stays)} THEN NULL ELSE {named} END)", [*params, *given]


def _without_held(model: Model, objs: Sequence[Instance], using: str) -> list[Instance]:
    """The objects that an INSERT writes which ignores conflicts: none of their keys is taken.

    Neither by a live row nor by an object before them. Where that is in doubt, as with values that
    the database computes or compares in its own way, an object counts as written.
    """
    left = list(objs)
    for fields, condition in unique_sets(model):
        if condition is None and not any(field.generated for field in fields):
            left = _without_key(model, fields, left, using)
    return left


def _without_key(
    model: Model, fields: tuple[AnyField, ...], objs: list[Instance], using: str
) -> list[Instance]:
    names = [field.attname for field in fields]
    keys: dict[int, tuple[Any, ...]] = {}
    for number, obj in enumerate(objs):
        values = [getattr(obj, name) for name in names]
        if not any(value is None or hasattr(value, "resolve_expression") for value in values):
            pairs = zip(fields, values, strict=True)
            keys[number] = tuple(field.to_python(value) for field, value in pairs)
    every, taken = list(dict.fromkeys(keys.values())), set[tuple[Any, ...]]()
    for start in range(0, len(every), _MOST):
        rows: Any = QuerySet(model=model, using=using)
        some = rows.filter(is_one_of(fields, every[start : start + _MOST]))
        taken |= set(some.values_list(*names))
    left = []
    for number, obj in enumerate(objs):
        if keys.get(number) not in taken:
            left.append(obj)
            taken |= {keys[number]} if number in keys else set()
    return left
