"""What a process knows of stored defaults, for rows that are in memory.

Statements read a default themselves. But an object in a session ends by what Python counts, and a
query for each look at one would be too much. So statements with such a table note now and then
what is stored, as `ttl_odm.sqlalchemy.time.clock` notes the database's time. What was noted more
than `KNOWN_FOR` seconds ago decides nothing: then the database is asked for the row.

This module must not know sessions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import event, select

from ttl_odm.core.policy import TTL
from ttl_odm.core.values import lenient_ttl
from ttl_odm.errors import TTLError
from ttl_odm.sqlalchemy.time.clock import monotonic
from ttl_odm.stored.rows import WHOLE_TABLE
from ttl_odm.stored.sqlalchemy.lookup import scope_of
from ttl_odm.stored.sqlalchemy.tables import name_of, row_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, PoolProxiedConnection
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.bindings import Binding

KNOWN_FOR: Final = 10.0
"""Seconds for which what was noted decides about objects in memory."""

_SCOPES_A_SECOND: Final = 200
"""For each so many scopes of a table a second longer, since to read thousands takes a while."""


class _Noted(NamedTuple):
    """A table's policy with what was stored in place of where it is, and until when it counts.

    `of_scopes` has the policies of scopes with a default of their own.
    """

    policy: TTL
    until: float
    of_scopes: dict[str, TTL]

    def of(self, binding: Binding, scope: object, dialect: Dialect | None) -> TTL:
        """The policy of the rows of a scope, as the column has it."""
        if not self.of_scopes or scope is None:
            return self.policy
        assert binding.discriminator is not None  # noqa: S101 (else there are no scopes)
        text = scope_of(binding.discriminator, scope, dialect)
        return self.of_scopes.get(text, self.policy)


_BEGUN: Final = "ttl_odm_begun"
_NOTHING: Final[dict[str, _Noted]] = {}
_latest: Final[dict[str, _Noted]] = {}


def policy_on(binding: Binding, dialect: Dialect, scope: object = None) -> TTL | None:
    """A policy with the default that an engine's database has; None unless it was noted of late.

    The scope is what the column says that tells rows with defaults of their own apart.
    """
    noted = _noted_on(dialect).get(name_of(binding.first.table))
    if noted is None or monotonic() > noted.until:
        return None
    return noted.policy if scope is None else noted.of(binding, scope, dialect)


def policy_as_noted(binding: Binding, dialect: Dialect | None, scope: object = None) -> TTL:
    """The same by what was noted last, however long ago.

    A dialect of None stands for the database that was asked last.

    Raises:
        TTLError: Nothing was.
    """
    every = _latest if dialect is None else _noted_on(dialect)
    noted = every.get(name_of(binding.first.table))
    if noted is None:
        raise TTLError(
            f"The default ttl of {binding.name} isn't known yet: it is stored in the database, "
            "and this process hasn't read it. Load a row in a session first, or select "
            "expires_at()."
        )
    return noted.of(binding, scope, dialect)


def defaults_now(connection: Connection, binding: Binding) -> list[int | None]:
    """Every default that rows of a table may inherit, as the database has them.

    A row that is missing, or no ttl, is None: TTL is off.
    """
    stored = _read(connection, binding)
    return list({WHOLE_TABLE: None, **stored}.values())


def _read(connection: Connection, binding: Binding) -> dict[str, int | None]:
    """What is stored, by scopes."""
    table = binding.first.table
    c = tables_of(table).policies.c
    conditions = row_of(table)[: 2 if binding.source.scoping is None else 1]
    rows = connection.execute(select(c.scope, c.ttl).where(*conditions))
    return {scope: lenient_ttl(ttl) for scope, ttl in rows}


def see_to(connection: Connection, binding: Binding) -> None:
    """Note what is stored, unless that was done a moment ago.

    A transaction may see the database as it was when it began, so what it reads is as old as
    itself. Not where one engine serves several schemas by translating their names: each may have
    defaults of its own, and the engine is all that objects can be judged by.
    """
    now, name = monotonic(), name_of(binding.first.table)
    noted = _noted_on(connection.dialect).get(name)
    if noted is not None and now <= noted.until:  # that is all for most statements
        return
    if connection.get_execution_options().get("schema_translate_map"):
        return
    since = _begun(connection)
    if noted is not None and now > since + KNOWN_FOR:
        return  # an old transaction has nothing newer to say
    policy = binding.policy
    assert isinstance(policy, TTL)  # noqa: S101 (no other has a stored default)
    stored = _read(connection, binding)
    # Of thousands of scopes few have a value of their own.
    of_values = {ttl: policy.with_default(ttl) for ttl in {None, *stored.values()}}
    of_scopes = {scope: of_values[ttl] for scope, ttl in stored.items() if scope != WHOLE_TABLE}
    until = since + KNOWN_FOR + len(of_scopes) / _SCOPES_A_SECOND
    noted = _Noted(of_values[stored.get(WHOLE_TABLE)], until, of_scopes)
    dialect = connection.dialect
    dialect.ttl_odm_noted = {**_noted_on(dialect), name: noted}  # type: ignore[attr-defined]
    _latest[name] = noted


def _begun(connection: Connection) -> float:
    """When a connection's transaction began, by the clock of notes; long ago if nobody knows.

    That is noted from now on: a first transaction of an engine has begun before it was asked.
    """
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return monotonic()
    dialect: Any = connection.dialect
    if not isinstance(dialect.do_begin, _NotedBegin):
        dialect.do_begin = _NotedBegin(dialect.do_begin)
    begun: float = connection.info.get(_BEGUN, -math.inf)
    return begun


class _NotedBegin:
    """Begins transactions of a dialect, and so of its engine, and notes when.

    A listener to `begin` would do so, too. But as soon as an engine has a listener, SQLAlchemy asks
    at each of its statements whether it is to be told, which takes longer than a look-up.
    """

    def __init__(self, begin: Callable[[PoolProxiedConnection], None]) -> None:
        self._begin = begin

    def __call__(self, dbapi_connection: PoolProxiedConnection) -> None:
        dbapi_connection.info[_BEGUN] = monotonic()
        self._begin(dbapi_connection)


def forget(connection: Connection) -> None:
    """Let the next statement note anew what is stored, as a transaction has changed it.

    And once more when that is committed: until then the others see what was before, and what is
    noted in it counts for nobody.
    """

    def anew(changed: Connection) -> None:
        changed.dialect.ttl_odm_noted = {}  # type: ignore[attr-defined]

    anew(connection)
    if connection.in_transaction():
        connection.info[_BEGUN] = -math.inf
        event.listen(connection, "commit", anew, once=True)


def _noted_on(dialect: Any) -> dict[str, _Noted]:
    return getattr(dialect, "ttl_odm_noted", _NOTHING)
