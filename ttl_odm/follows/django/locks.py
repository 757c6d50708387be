"""Locks on rows that others may refer to meanwhile, but not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import connections

if TYPE_CHECKING:
    from ttl_odm.django.policy.bindings import AnyQuerySet

_SHARED: Final = {"postgresql": " FOR KEY SHARE", "mysql": " LOCK IN SHARE MODE"}
"""What locks rows as a foreign key does that is written."""


def share(rows: AnyQuerySet) -> list[tuple[Any, ...]]:
    """What a queryset finds, locked for others' writes, but not for their foreign keys."""
    compiler: Any = rows.query.get_compiler(rows.db)
    suffix, as_sql = _SHARED.get(connections[rows.db].vendor, ""), compiler.as_sql

    def with_suffix(*args: Any, **kwargs: Any) -> Any:
        sql, params = as_sql(*args, **kwargs)
        return sql + suffix, params

    compiler.as_sql = with_suffix
    return list(compiler.results_iter(tuple_expected=True))
