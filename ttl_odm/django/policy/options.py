"""What a query may ask of the gate; kept on Django's own Query, which hands it on to its clones.

A queryset of any model, ours or not, can carry these: `include_expired`, `only_expired` and
`keep_last_modified` return a copy that does.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet
    from django.db.models.sql import Query

Q = TypeVar("Q", bound="QuerySet[Any, Any]")

Rows = Literal["live", "all", "expired"]

Kind = Literal["live", "expired"]
"""What a condition asks of a row."""

_ROWS = "_ttl_odm_rows"
_KEEPS = "_ttl_odm_keeps"
_PURGES = "_ttl_odm_purges"
_ROOT_WRITTEN = "_ttl_odm_root_written"

_ORPHANED = "_ttl_odm_orphaned"

_purged: ContextVar[frozenset[str]] = ContextVar("ttl_odm_purged", default=frozenset())


def include_expired(queryset: Q) -> Q:
    """Return a queryset (of any manager) that reads expired rows too, also those of joined tables.

    Reads only: nothing brings an expired row back to life.
    """
    return _marked(queryset, _ROWS, "all")


def only_expired(queryset: Q) -> Q:
    """Return a queryset that reads only expired rows that have not been purged yet."""
    return _marked(queryset, _ROWS, "expired")


def keep_last_modified(queryset: Q) -> Q:
    """Return a queryset whose ``update()`` and ``bulk_update()`` leave ``_ts`` unchanged.

    For view counters and background fix-ups; all other writes reset it.
    """
    return _marked(queryset, _KEEPS, value=True)


def for_purge(queryset: Q, *, by_key: bool = False) -> Q:
    """A queryset whose DELETE takes expired rows only, by their keys where `by_key` says so."""
    return _marked(queryset, _PURGES, "by key" if by_key else "any")


def after_root(queryset: Q) -> Q:
    """A queryset whose ``update()`` writes a subclass table of a row just written at its root."""
    return _marked(queryset, _ROOT_WRITTEN, value=True)


def rows_of(query: Query) -> Rows:
    """Which rows a query reads."""
    rows: Rows = getattr(query, _ROWS, "live")
    return rows


def keeps_last_modified(query: Query) -> bool:
    """Whether an UPDATE leaves ``_ts`` alone."""
    return hasattr(query, _KEEPS)


def purges(query: Query) -> Literal["by key", "any"] | None:
    """Whether a DELETE takes expired rows, and how it finds them."""
    how: Literal["by key", "any"] | None = getattr(query, _PURGES, None)
    return how


def root_written(query: Query) -> bool:
    """Whether the row was checked, and stamped, at its root a moment ago."""
    return hasattr(query, _ROOT_WRITTEN)


@contextmanager
def purging(tables: frozenset[str]) -> Iterator[None]:
    """Let DELETEs from these tables take expired rows, and those only."""
    token = _purged.set(tables)
    try:
        yield
    finally:
        _purged.reset(token)


def purged_tables() -> frozenset[str]:
    """Those of `purging`."""
    return _purged.get()


_orphaned: ContextVar[frozenset[str]] = ContextVar("ttl_odm_orphaned", default=frozenset())


@contextmanager
def deleting_with_parents(tables: frozenset[str]) -> Iterator[None]:
    """Let DELETEs take rows of these tables that have no parent any more.

    Django's `Collector` has chosen them while they had one, and may delete that first. Rows whose
    parent has expired since then are left alone, as by any other DELETE.
    """
    token = _orphaned.set(tables)
    try:
        yield
    finally:
        _orphaned.reset(token)


def orphaned_tables() -> frozenset[str]:
    """Those of `deleting_with_parents`."""
    return _orphaned.get()


def with_orphaned(queryset: Q, tables: frozenset[str]) -> Q:
    """A queryset whose ``update()`` takes them too: see `deleting_with_parents`."""
    return _marked(queryset, _ORPHANED, tables)


def orphaned_for(query: Query) -> frozenset[str]:
    """The tables of `with_orphaned`."""
    tables: frozenset[str] = getattr(query, _ORPHANED, frozenset())
    return tables


def _marked(queryset: Q, name: str, value: object) -> Q:
    marked = queryset.all()
    setattr(marked.query, name, value)
    return marked
