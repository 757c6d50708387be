"""MariaDB and MySQL: a second try for a write that fails on an expired row it could not see.

In REPEATABLE READ, InnoDB's default, a transaction reads the rows that there were when it first
read, and writes those that there are. So the look for expired rows in the way of a write misses
one that is younger than that, and the write fails on it. Looking at the rows as they are now would
lock the gaps where there are none, before every INSERT; such an error is rare, and undoes no more
than its statement. So that look comes after it, and the write once more if it found something.

The dialect's two functions that hand a statement to the driver are the only place where an error
can still be fixed; they are replaced on the dialect of an engine that writes to a TTL table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects import MYSQL_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.sqlalchemy.gate.before import Preparation

_IN_THE_WAY: Final = frozenset({
    1022,  # a duplicate key
    1062,  # a duplicate key, and which
    1586,  # a duplicate key, and its name
    1217,  # another row refers to it
    1451,  # another row refers to it, and by which foreign key
    1242,  # an upsert met an expired row, see `ttl_odm.sqlalchemy.rewrite.upserts`
})  # fmt: skip

_SAVEPOINT: Final = "ttl_odm_second_try"


def try_twice(dialect: Any) -> None:
    """See that writes of a dialect (that is, of its engine) are tried again where that helps."""
    if dialect.name in MYSQL_FAMILY and not isinstance(dialect.do_execute, _Execute):
        dialect.do_execute = _Execute(dialect, dialect.do_execute)
        dialect.do_executemany = _ExecuteMany(dialect, dialect.do_executemany)


class _Execute:
    """One statement, which fails as a whole."""

    def __init__(self, dialect: Any, send: Callable[..., None]) -> None:
        self._dialect = dialect
        self._send = send

    def __call__(self, cursor: Any, statement: Any, parameters: Any, context: Any = None) -> None:
        preparation = _preparation_of(context)
        if preparation is None:
            self._send(cursor, statement, parameters, context)
        else:
            self._prepared(preparation, cursor, statement, parameters, context)

    def _prepared(self, preparation: Preparation, *call: Any) -> None:
        context = call[-1]
        try:
            self._send(*call)
        except self._dialect.loaded_dbapi.Error as error:
            if not (self._is_in_the_way(error) and preparation.prepare(context, current=True)):
                raise
            self._send(*call)

    def _is_in_the_way(self, error: Exception) -> bool:
        return self._dialect._extract_error_code(error) in _IN_THE_WAY


class _ExecuteMany(_Execute):
    """Drivers make several statements of it, of which some may have run when one fails."""

    def _prepared(self, preparation: Preparation, *call: Any) -> None:
        context = call[-1]
        connection = context.root_connection
        connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
        try:
            self._send(*call)
        except self._dialect.loaded_dbapi.Error as error:
            if not self._is_in_the_way(error):
                raise
            try:
                connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            except DBAPIError:  # autocommit: what has run stays
                raise error from None
            if not preparation.prepare(context, current=True):
                raise
            self._send(*call)


def _preparation_of(context: Any) -> Preparation | None:
    found: Preparation | None = getattr(getattr(context, "compiled", None), "ttl_preparation", None)
    return found
