"""What a query can ask of the gate; stored on Django's own Query, whose clones keep it.

A queryset of any model, ours or not, can have these options: `include_expired`, `only_expired` and
`keep_last_modified` return a copy with one.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from django.db.models import QuerySet
    from django.db.models.sql import Query

    AnyQuerySet: TypeAlias = QuerySet[Any, Any]

Q = TypeVar("Q", bound="AnyQuerySet")

Rows = Literal["live", "all", "expired"]

Kind = Literal["live", "expired"]
"""What a condition requires of a row."""

_ROWS = "_ttl_odm_rows"
_KEEPS = "_ttl_odm_keeps"
_PURGES = "_ttl_odm_purges"
_ROOT_WRITTEN = "_ttl_odm_root_written"
_ORPHANED = "_ttl_odm_orphaned"

_purged: ContextVar[frozenset[str]] = ContextVar("ttl_odm_purged", default=frozenset())
_orphaned: ContextVar[frozenset[str]] = ContextVar("ttl_odm_orphaned", default=frozenset())


def include_expired(queryset: Q) -> Q:
    """Return a queryset (of any manager) that reads expired rows too, also those of joined tables.

    Only reads are affected: writes still can't revive an expired row.
    """
    return _marked(queryset, _ROWS, "all")


def only_expired(queryset: Q) -> Q:
    """Return a queryset that reads only expired rows that have not been purged yet."""
    return _marked(queryset, _ROWS, "expired")


def keep_last_modified(queryset: Q) -> Q:
    """Return a queryset whose ``update()`` and ``bulk_update()`` leave ``_ts`` unchanged.

    For view counters and background corrections; all other writes reset it.
    """
    return _marked(queryset, _KEEPS, value=True)


def for_purge(queryset: Q, *, by_key: bool = False) -> Q:
    """Return a queryset whose DELETE takes only expired rows; `by_key` if it selects by keys."""
    return _marked(queryset, _PURGES, "by key" if by_key else "any")


def after_root(queryset: Q) -> Q:
    """Return a queryset whose ``update()`` follows a write of the same row at its root.

    So it writes the row of a subclass table without another condition or stamp.
    """
    return _marked(queryset, _ROOT_WRITTEN, value=True)


def rows_of(query: Query) -> Rows:
    """Return which rows a query reads."""
    rows: Rows = getattr(query, _ROWS, "live")
    return rows


def keeps_last_modified(query: Query) -> bool:
    """Whether an UPDATE leaves ``_ts`` unchanged."""
    return hasattr(query, _KEEPS)


def purges(query: Query) -> Literal["by key", "any"] | None:
    """Return how a DELETE of expired rows finds them; None for any other DELETE."""
    how: Literal["by key", "any"] | None = getattr(query, _PURGES, None)
    return how


def root_written(query: Query) -> bool:
    """Whether the row has just been checked, and stamped, at its root: see `after_root`."""
    return hasattr(query, _ROOT_WRITTEN)


@contextmanager
def purging(tables: frozenset[str]) -> Iterator[None]:
    """Let DELETEs from these tables take only expired rows."""
    token = _purged.set(tables)
    try:
        yield
    finally:
        _purged.reset(token)


def purged_tables() -> frozenset[str]:
    """Return the tables of `purging`."""
    return _purged.get()


@contextmanager
def deleting_with_parents(tables: frozenset[str]) -> Iterator[None]:
    """Let DELETEs take rows of these tables even if their parents are gone.

    Django's `Collector` has chosen the rows while they had parents, and may delete the parents
    first. Rows whose parent has expired since then are left alone, as by any other DELETE.
    """
    token = _orphaned.set(tables)
    try:
        yield
    finally:
        _orphaned.reset(token)


def orphaned_tables() -> frozenset[str]:
    """Return the tables of `deleting_with_parents`."""
    return _orphaned.get()


def with_orphaned(queryset: Q, tables: frozenset[str]) -> Q:
    """Return a queryset whose ``update()`` takes such rows too: see `deleting_with_parents`."""
    return _marked(queryset, _ORPHANED, tables)


def orphaned_for(query: Query) -> frozenset[str]:
    """Return the tables of `with_orphaned`."""
    tables: frozenset[str] = getattr(query, _ORPHANED, frozenset())
    return tables


def _marked(queryset: Q, name: str, value: object) -> Q:
    marked = queryset.all()
    setattr(marked.query, name, value)
    return marked
