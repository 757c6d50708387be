"""How what is left of a table is divided among several workers; see `ttl_odm.sweeper.Dividing`.

By an index into ranges of what it is ordered by, which is what batches go by: so no worker comes
to a row that another has locked. A table that is walked, into ranges of its pages, on PostgreSQL.
SQLite has one writer at a time, and a walk by the primary key reads more than it deletes: there one
worker does it all. So it does where scopes are gone through one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import StaticPool

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.sweep import table_walk
from ttl_odm.sqlalchemy.sweep.batch_rows import Beside
from ttl_odm.sqlalchemy.sweep.due import PartIndex
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading, zone_settings
from ttl_odm.sqlalchemy.sweep.walks import walk_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.sweep.whereabouts import Whereabouts
    from ttl_odm.sweeper import BatchRequest


def divide(
    connection: Connection,
    binding: Binding,
    request: BatchRequest,
    shares: int,
    where: Whereabouts,
) -> Sequence[object]:
    """Find the marks between the stretches of several workers."""
    dialect = connection.dialect.name
    has_marks = dialect == "postgresql" or (
        dialect in MYSQL_FAMILY and request.part is not Part.ALL
    )
    is_single = isinstance(connection.engine.pool, StaticPool)  # has one connection for everybody
    if not has_marks or is_single or isinstance(request.resume, Beside):
        return ()
    if request.part is Part.INHERITING and walk_of(connection, binding) is not None:
        return ()

    def marks(source: Table, stretch: tuple[Any, Any]) -> list[Any]:
        if request.part is Part.ALL:
            resume, until = stretch
            return [] if resume is None else table_walk.marks(resume, until, shares)
        index = PartIndex(binding, request.part, clock_of(connection.dialect), source)
        return index.marks(connection, request.size, stretch, shares)

    with (
        prepared(connection, request.timeout, settings=zone_settings(connection, binding)),
        reading(connection, request.timeout),
    ):
        return where.divide(connection, request, shares, marks)
