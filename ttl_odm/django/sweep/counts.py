"""How many rows there are to purge, and how many there are at all."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from django.db import connections, transaction
from django.db.models import CharField, Exists, Func, IntegerField, OuterRef, QuerySet, Value

from ttl_odm.django.policy import options
from ttl_odm.django.policy.rules import all_rules_below
from ttl_odm.django.purge.removal import every, expired_rows
from ttl_odm.django.sweep.due import ExpiredRows, is_off, parts_of, scalars, union
from ttl_odm.django.sweep.walks import walk_of
from ttl_odm.sweeper import Counted, Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.bindings import AnyQuerySet, Binding


_ALL_ROWS: Final = ""
"""In the place of a scope, which are never empty: all rows of the table, live ones too."""


def count(binding: Binding, using: str) -> Counted:
    """Count what there is to purge, and all rows; see `ttl_odm.sweeper.Counting`.

    In one statement, or of one view of the database: a sweep between two would make the rest look
    smaller than it is.
    """
    parts = [] if is_off(binding, using) else parts_of(binding)
    every: AnyQuerySet = QuerySet(model=binding.model, using=using)
    every = options.include_expired(every).order_by()
    number = Func(template="COUNT(*)", output_field=IntegerField())
    scoping = binding.source.scoping
    if scoping is None:
        expired = [ExpiredRows(binding, using, part).all().order_by() for part in parts]
        rows, *due = scalars([query.values_list(number) for query in (every, *expired)], using)
        return Counted(sum(due), rows)
    walk = walk_of(binding, using) if Part.INHERITING in parts else None
    lookups = [every.values_list(Value(_ALL_ROWS, output_field=CharField()), number)]
    lookups += [
        scoping.numbers(ExpiredRows(binding, using, part).all())
        for part in parts
        if walk is None or part is not Part.INHERITING
    ]
    found: Counter[str | None] = Counter()
    with nullcontext() if walk is None else _one_view(using):
        if walk is not None:
            for stretch in walk.stretches():
                found += Counter(dict(scoping.numbers(stretch)))
        for scope, amount in union(lookups, using):
            found[scope] += amount
    rows, others = found.pop(_ALL_ROWS), found.pop(None, 0)
    by_scope = {str(scope): amount for scope, amount in found.items()}
    return Counted(others + found.total(), rows, facts=scoping.due(by_scope))


def count_dependents(binding: Binding, using: str) -> dict[str, int]:
    """Count the rows that go before expired ones of a policy, by table, as far as there are any."""
    found: dict[str, int] = {}
    rules = all_rules_below(binding.model)
    if not rules or is_off(binding, using):
        return found
    expired = {binding.model: expired_rows(binding.model, using)}
    for rule in sorted(rules, key=lambda rule: rule.depth):
        links = rule.links
        pairs = {theirs.attname: OuterRef(own.attname) for own, theirs in links.pairs}
        rows = every(rule.model, using).order_by()
        rows = rows.filter(Exists(expired[links.parent].filter(**pairs)))
        expired[rule.model] = rows
        number = rows.count()
        if number:
            found[rule.model._meta.db_table] = number
    return found


@contextmanager
def _one_view(using: str) -> Iterator[None]:
    """Let statements see the database as it is at the first one.

    In a transaction of the application's, also where Django begins none itself, they see what
    that sees: how is settled by its first statement, and MySQL refuses to change it.
    """
    connection = connections[using]
    is_ours = connection.get_autocommit()
    with transaction.atomic(using=using):
        if is_ours and connection.vendor != "sqlite":  # where it is so in any transaction
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield
