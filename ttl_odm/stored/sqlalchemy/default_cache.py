"""A process's cache of stored defaults, for rows in memory.

Statements read a default themselves. But Python computes the end of an object in a session, and a
query for each access would cost too much. So statements on such a table read the stored default
into this cache now and then, as `ttl_odm.sqlalchemy.time.clock` does with the database's time. A
default that was read more than `KNOWN_FOR` seconds ago decides nothing: then the database is asked
about the row.

This module must not know sessions.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import event, select

from ttl_odm.core.policy import TTL
from ttl_odm.core.values import lenient_ttl
from ttl_odm.errors import TTLError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.time.clock import monotonic
from ttl_odm.stored.rows import WHOLE_TABLE
from ttl_odm.stored.sqlalchemy.lookup import scope_of
from ttl_odm.stored.sqlalchemy.tables import name_of, row_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection, PoolProxiedConnection
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.bindings import Binding

KNOWN_FOR: Final = 10.0
"""Seconds for which a default that was read decides about objects in memory."""

_SCOPES_A_SECOND: Final = 200
"""The scopes of a table that add a second to `KNOWN_FOR`, since reading thousands takes a while."""


class _Cached(NamedTuple):
    """A table's policy with the default that was read.

    Attributes:
        policy: The policy of rows whose scope has no default of its own.
        until: The instant of the monotonic clock until which it decides.
        of_scopes: The policies of scopes with a default of their own.
    """

    policy: TTL
    until: float
    of_scopes: dict[str, TTL]

    def of(self, binding: Binding, scope: object, dialect: Dialect | None) -> TTL:
        """Return the policy of the rows of a scope, given as the column's value."""
        if not self.of_scopes or scope is None:
            return self.policy
        assert binding.discriminator is not None  # noqa: S101 (else there are no scopes)
        text = scope_of(binding.discriminator, scope, dialect)
        return self.of_scopes.get(text, self.policy)


_BEGUN: Final = "ttl_odm_begun"
_NOTHING: Final[dict[str, _Cached]] = {}
_SEVERAL: Final[Mapping[str, _Cached]] = MappingProxyType({})
"""Of an engine with defaults in several schemas: nothing, for good."""
_latest: Final[dict[str, _Cached]] = {}


def recent_policy(binding: Binding, dialect: Dialect, scope: object = None) -> TTL | None:
    """Return the policy with the default of an engine's database; None unless read recently.

    The scope is the value of its column; None for all other rows.
    """
    cached = _cache_of(dialect).get(name_of(binding.first.table))
    if cached is None or monotonic() > cached.until:
        return None
    return cached.policy if scope is None else cached.of(binding, scope, dialect)


def last_policy(binding: Binding, dialect: Dialect | None, scope: object = None) -> TTL:
    """Return the policy with the default that was read last, however long ago.

    A dialect of None stands for the database that was asked last.

    Raises:
        TTLError: No default was read yet, or the engine has them in several schemas.
    """
    tables = _latest if dialect is None else _cache_of(dialect)
    if tables is _SEVERAL:
        raise TTLError(
            f"The default ttl of {binding.name} isn't known in Python, since the engine serves "
            "several schemas (schema_translate_map), and each may have its own: select "
            "expires_at()."
        )
    cached = tables.get(name_of(binding.first.table))
    if cached is None:
        raise TTLError(
            f"The default ttl of {binding.name} isn't known yet: it is stored in the database, "
            "and this process hasn't read it. Load a row in a session first, or select "
            "expires_at()."
        )
    return cached.of(binding, scope, dialect)


def defaults_now(connection: Connection, binding: Binding) -> list[int | None]:
    """Read every default that rows of a table may inherit.

    A missing row, or a stored value that isn't a ttl, is read as None: TTL is off.
    """
    stored = _read(connection, binding)
    return list({WHOLE_TABLE: None, **stored}.values())


def _read(connection: Connection, binding: Binding) -> dict[str, int | None]:
    """Read the stored defaults of a table, by scope."""
    table = binding.first.table
    c = tables_of(table).policies.c
    conditions = row_of(table)[: 2 if binding.source.scoping is None else 1]
    rows = connection.execute(select(c.scope, c.ttl).where(*conditions))
    return {scope: lenient_ttl(ttl) for scope, ttl in rows}


def refresh(connection: Connection, binding: Binding, options: Mapping[str, object]) -> None:
    """Read the stored defaults of a table into the cache, unless that was done a moment ago.

    A transaction may see the database as of its begin, so what it reads is as old as itself. It
    reads nothing where one engine serves several schemas by translating their names: each schema
    may have defaults of its own, and of an object only the engine is known. One such statement
    also ends the use of what other statements of the engine have read.
    """
    known = _cache_of(connection.dialect)
    if known is _SEVERAL:
        return
    if options.get("schema_translate_map"):
        policies = tables_of(binding.first.table).policies
        if compat.place_of(options, policies)[0] != policies.schema:
            connection.dialect.ttl_odm_defaults = _SEVERAL  # type: ignore[attr-defined]
            return
    now, name = monotonic(), name_of(binding.first.table)
    cached = known.get(name)
    if cached is not None and now <= cached.until:  # most statements end here
        return
    since = _begun(connection)
    if cached is not None and now > since + KNOWN_FOR:
        return  # an old transaction would read nothing newer
    policy = binding.policy
    assert isinstance(policy, TTL)  # noqa: S101 (no other has a stored default)
    stored = _read(connection, binding)
    # Thousands of scopes share few different values.
    of_values = {ttl: policy.with_default(ttl) for ttl in {None, *stored.values()}}
    of_scopes = {scope: of_values[ttl] for scope, ttl in stored.items() if scope != WHOLE_TABLE}
    until = since + KNOWN_FOR + len(of_scopes) / _SCOPES_A_SECOND
    cached = _Cached(of_values[stored.get(WHOLE_TABLE)], until, of_scopes)
    dialect = connection.dialect
    dialect.ttl_odm_defaults = {**_cache_of(dialect), name: cached}  # type: ignore[attr-defined]
    _latest[name] = cached


def _begun(connection: Connection) -> float:
    """When a connection's transaction began, by the monotonic clock; minus infinity if unknown.

    The begins of an engine's transactions are noted from the first call on, so that of the first
    one is unknown.
    """
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return monotonic()
    dialect: Any = connection.dialect
    if not isinstance(dialect.do_begin, _TimedBegin):
        dialect.do_begin = _TimedBegin(dialect.do_begin)
        dialect.do_begin_twophase = _TimedBegin(dialect.do_begin_twophase)
    begun: float = connection.info.get(_BEGUN, -math.inf)
    return begun


class _TimedBegin:
    """Replaces a `do_begin` of a dialect, and so of its engine, to note when transactions begin.

    A listener to `begin` could do so too. But once an engine has a listener, SQLAlchemy searches
    for listeners at each of its statements, which takes longer than a look-up of a default.
    """

    def __init__(self, begin: Callable[..., None]) -> None:
        self._begin = begin

    def __call__(self, begun: Connection | PoolProxiedConnection, *xid: object) -> None:
        begun.info[_BEGUN] = monotonic()
        self._begin(begun, *xid)


def invalidate(connection: Connection) -> None:
    """Empty the cache of an engine after a change, so that the next statement reads the default.

    Empty it again at the commit. Until then, other transactions read the old value, and what this
    one reads must not be cached.
    """

    def clear(changed: Connection, *_: object) -> None:
        if _cache_of(changed.dialect) is not _SEVERAL:
            changed.dialect.ttl_odm_defaults = {}  # type: ignore[attr-defined]

    clear(connection)
    if connection.in_transaction():
        connection.info[_BEGUN] = -math.inf
        for name in ("commit", "commit_twophase"):
            event.listen(connection, name, clear, once=True)


def _cache_of(dialect: Any) -> Mapping[str, _Cached]:
    cache: Mapping[str, _Cached] = getattr(dialect, "ttl_odm_defaults", _NOTHING)
    return cache
