"""How many rows there are to purge, and how many rows a table has."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from django.db import connections, transaction
from django.db.models import CharField, Exists, Func, IntegerField, OuterRef, Value

from ttl_odm.django.policy.rules import all_rules_below
from ttl_odm.django.purge.removal import every, expired_rows
from ttl_odm.django.sweep.due import ExpiredRows, is_off, parts_of, scalars, union
from ttl_odm.django.sweep.walks import walk_of
from ttl_odm.sweeper import Counted, Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.bindings import Binding


_ALL_ROWS: Final = ""
"""Stands for all rows of the table, live ones too, in place of a scope; scopes are never empty."""


def count(binding: Binding, using: str) -> Counted:
    """Count the rows to purge, and all rows; see `ttl_odm.sweeper.Counting`.

    One statement does it, or several of one snapshot: with a sweep in between, the rest would look
    smaller than it is.
    """
    parts = [] if is_off(binding, using) else parts_of(binding)
    table = every(binding.model, using).order_by()
    number = Func(template="COUNT(*)", output_field=IntegerField())
    scoping = binding.source.scoping
    if scoping is None:
        expired = [ExpiredRows(binding, using, part).all().order_by() for part in parts]
        rows, *due = scalars([query.values_list(number) for query in (table, *expired)], using)
        return Counted(sum(due), rows)
    walk = walk_of(binding, using) if Part.INHERITING in parts else None
    lookups = [table.values_list(Value(_ALL_ROWS, output_field=CharField()), number)]
    lookups += [
        scoping.numbers(ExpiredRows(binding, using, part).all())
        for part in parts
        if walk is None or part is not Part.INHERITING
    ]
    numbers: Counter[str | None] = Counter()
    with nullcontext() if walk is None else _one_snapshot(using):
        if walk is not None:
            for stretch in walk.stretches():
                numbers += Counter(dict(scoping.numbers(stretch)))
        for scope, amount in union(lookups, using):
            numbers[scope] += amount
    rows, others = numbers.pop(_ALL_ROWS), numbers.pop(None, 0)
    by_scope = {str(scope): amount for scope, amount in numbers.items()}
    return Counted(others + numbers.total(), rows, facts=scoping.due(by_scope))


def count_dependents(binding: Binding, using: str) -> dict[str, int]:
    """Count the dependents of expired rows of a policy, by table, without tables that have none."""
    numbers: dict[str, int] = {}
    rules = all_rules_below(binding.model)
    if not rules or is_off(binding, using):
        return numbers
    expired = {binding.model: expired_rows(binding.model, using)}
    for rule in sorted(rules, key=lambda rule: rule.depth):
        links = rule.links
        pairs = {theirs.attname: OuterRef(own.attname) for own, theirs in links.pairs}
        rows = every(rule.model, using).order_by()
        rows = rows.filter(Exists(expired[links.parent].filter(**pairs)))
        expired[rule.model] = rows
        number = rows.count()
        if number:
            numbers[rule.model._meta.db_table] = number
    return numbers


@contextmanager
def _one_snapshot(using: str) -> Iterator[None]:
    """Let all statements see the database as of the first one.

    Inside a transaction of the application, also one with autocommit off, they see the same as
    that: its first statement has decided the isolation, and MySQL rejects a change.
    """
    connection = connections[using]
    is_ours = connection.get_autocommit()
    with transaction.atomic(using=using):
        if is_ours and connection.vendor != "sqlite":  # which always reads one snapshot
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield
