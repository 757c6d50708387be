"""Several querysets in one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.django.policy.bindings import AnyQuerySet


def fetched(
    lookups: list[AnyQuerySet], using: str, form: Callable[[str], str] = str
) -> tuple[Any, ...]:
    """What each of some querysets finds, by scalar subqueries of one statement.

    Django would give that a FROM. `form` is what becomes of each.
    """
    subqueries, values = _compiled(lookups, using)
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(form(f"({sql})") for sql in subqueries), values)
        found: tuple[Any, ...] = cursor.fetchone()
    return found


def union(lookups: list[AnyQuerySet], using: str) -> list[tuple[Any, ...]]:
    """All rows of some querysets, by one statement."""
    subqueries, values = _compiled(lookups, using)
    parts = [f"SELECT * FROM ({sql}) AS part" for sql in subqueries]  # noqa: S608 (of Django's)
    with connections[using].cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts), values)
        return list(cursor.fetchall())


def _compiled(lookups: list[AnyQuerySet], using: str) -> tuple[list[str], list[Any]]:
    compiled = [lookup.query.get_compiler(using).as_sql() for lookup in lookups]
    return [sql for sql, _ in compiled], [value for _, values in compiled for value in values]
