"""No row is put under a parent that has expired.

Before an INSERT one look at the parents, which locks them, so that no sweeper takes one away until
the transaction is over. An UPDATE carries the condition, where a foreign key does the rest; with
values for several rows, or without a foreign key, there is a look before it too. Which parent the
database computes isn't known by then: such a row stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import connections, models, transaction
from django.db.models import QuerySet, Value
from django.db.models.expressions import Expression

from ttl_odm.core.follows import under_expired
from ttl_odm.django.keys.conditions import is_plain, values_in
from ttl_odm.django.keys.renewals import parents_matched, renew
from ttl_odm.django.policy.following import Following, is_one_of
from ttl_odm.django.policy.options import keeps_last_modified, only_expired
from ttl_odm.django.policy.predicate import Predicate
from ttl_odm.django.purge.errors import error_of
from ttl_odm.django.purge.removal import take_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql import DeleteQuery, InsertQuery, UpdateQuery
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.binding import AnyQuerySet
    from ttl_odm.django.policy.following import Key
    from ttl_odm.django.time.fields import AnyField

_CHUNK: Final = 500
"""Keys in one statement."""

_SHARED: Final = {"postgresql": " FOR KEY SHARE", "mysql": " LOCK IN SHARE MODE"}
"""What locks rows as a foreign key does that is written."""


def insert(following: Following, query: InsertQuery, using: str, write: Callable[[], Any]) -> Any:
    """Run an INSERT, unless a parent of its rows has expired: then `ExpiredError`."""
    keys = following.keys_of(query.objs)
    with transaction.atomic(using=using, savepoint=False):
        take_file(following.model, using)
        if (
            following.follows.renews
        ):  # first: of a row that two share InnoDB would let neither write
            renew(following, using, keys)
        check(following, using, keys)
        return write()


def update(following: Following, query: UpdateQuery, using: str, write: Callable[[], Any]) -> Any:
    """Run an UPDATE, unless it moves rows to a parent that has expired: then `ExpiredError`."""
    keys = _named(following, query)
    if following.follows.renews and not keeps_last_modified(query):
        with transaction.atomic(using=using, savepoint=False):
            take_file(following.model, using)
            renew(following, using, [*parents_matched(following, query, using), *keys])
            return _moving(following, using, keys, write)
    return _moving(following, using, keys, write)


def delete(following: Following, query: DeleteQuery, using: str, run: Callable[[], Any]) -> Any:
    """Run a DELETE of rows that renew their parents."""
    with transaction.atomic(using=using, savepoint=False):
        take_file(following.model, using)
        renew(following, using, parents_matched(following, query, using))
        return run()


def _moving(following: Following, using: str, keys: list[Key], write: Callable[[], Any]) -> Any:
    if not keys:
        return write()
    if len(keys) == 1 and following.is_enforced(using):
        written = write()
        if not written:
            check(following, using, keys, shared=False)
        return written
    with transaction.atomic(using=using, savepoint=False):
        take_file(following.model, using)
        check(following, using, keys)
        return write()


def _named(following: Following, query: UpdateQuery) -> list[Key]:
    """The parents that an UPDATE names, by their keys: not those that the database computes."""
    written = {field: value for field, _, value in query.values}
    pairs = following.links.pairs
    values = [written[own] for own, _ in pairs if own in written]
    if len(values) < len(pairs) or not all(map(is_plain, values)):
        return []
    if len(pairs) > 1:
        plain = [value.value if isinstance(value, Value) else value for value in values]
        is_one = not any(hasattr(value, "resolve_expression") for value in plain)
        return [tuple(plain)] if is_one and None not in plain else []
    [theirs] = following.links.theirs
    named = (
        getattr(value, theirs.attname) if isinstance(value, models.Model) else value
        for value in values_in(values[0], by_key=False)
    )
    return list(dict.fromkeys((theirs.to_python(value),) for value in named))


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
        live = (
            _locked(parents.values_list(*names), using) if shared else parents.values_list(*names)
        )
        alive = {tuple(row) for row in live}
        if len(alive) == len(some):
            continue
        for key in only_expired(parents).values_list(*names):
            if tuple(key) not in alive:
                raise error_of(links.parent)(
                    under_expired(following.model.__name__, links.parent.__name__, tuple(key)),
                    model=following.model._meta.label,
                    key=key[0] if len(key) == 1 else tuple(key),
                )


def _locked(rows: AnyQuerySet, using: str) -> list[tuple[Any, ...]]:
    """What a queryset finds, locked for others' writes, but not for their foreign keys."""
    compiler: Any = rows.query.get_compiler(using)
    suffix, as_sql = _SHARED.get(connections[using].vendor, ""), compiler.as_sql

    def with_suffix(*args: Any, **kwargs: Any) -> Any:
        sql, params = as_sql(*args, **kwargs)
        return sql + suffix, params

    compiler.as_sql = with_suffix
    return list(compiler.results_iter(tuple_expected=True))


class NotUnderExpired(Expression):
    """Whether the parent that an UPDATE gives a row has not expired."""

    def __init__(self, following: Following, query: UpdateQuery) -> None:
        """Take it from what the UPDATE sets."""
        super().__init__(output_field=models.BooleanField())
        self._following = following
        written = {field: value for field, _, value in query.values}
        self.is_needed = any(own in written for own in following.links.own)
        self._values = [written.get(own, models.F(own.attname)) for own, _ in following.links.pairs]

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> Any:
        """Render it."""
        links, quote = self._following.links, connection.ops.quote_name
        alias, ties = "ttl_new_parent", []
        params: list[Any] = []
        for (_, theirs), value in zip(links.pairs, self._values, strict=True):
            sql, bound = compiler.compile(_resolved(value, theirs, compiler.query))
            ties.append(f"{quote(alias)}.{quote(str(theirs.column))} = {sql}")
            params += bound
        expired, _ = Predicate(links.policy, alias, "expired", writing=True).as_sql(
            compiler, connection
        )
        rows = f"{quote(links.parent._meta.db_table)} {quote(alias)}"
        condition = " AND ".join([*ties, expired])
        return f"NOT EXISTS (SELECT 1 FROM {rows} WHERE {condition})", params  # noqa: S608


def _resolved(value: Any, field: AnyField, query: Any) -> Any:
    """What an UPDATE sets a field to, as an expression of its query."""
    if isinstance(value, models.Model):
        value = getattr(value, field.attname)
    if not hasattr(value, "resolve_expression"):
        value = Value(value, output_field=field)
    return value.resolve_expression(query, allow_joins=False, for_save=True)
