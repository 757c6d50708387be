"""How what is left of a table is divided among several workers; see `ttl_odm.sweeper.Dividing`.

By an index into ranges of what it is ordered by, which is what batches go by: so no worker comes
to a row that another has locked. A table that is walked, into ranges of its pages, on PostgreSQL.
SQLite has one writer at a time, and a walk by the primary key reads more than it deletes: there one
worker does it all. So it does where scopes of a stored default are gone through one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import StaticPool

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.sweep import table_walk
from ttl_odm.sqlalchemy.sweep.batch_rows import Beside
from ttl_odm.sqlalchemy.sweep.due import PartIndex
from ttl_odm.sqlalchemy.sweep.partitions import Resume, leaf_table, leaves_of
from ttl_odm.sqlalchemy.sweep.stored_indexes import scope_index
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading, zone_settings
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sweeper import BatchRequest


def divide(
    connection: Connection, binding: Binding, request: BatchRequest, shares: int
) -> Sequence[object]:
    """Find the marks between the stretches of several workers."""
    dialect = connection.dialect.name
    has_marks = dialect == "postgresql" or (
        dialect in MYSQL_FAMILY and request.part is not Part.ALL
    )
    is_single = isinstance(connection.engine.pool, StaticPool)  # has one connection for everybody
    if not has_marks or is_single or isinstance(request.resume, Beside):
        return ()
    if request.part is Part.INHERITING and scope_index(connection, binding) is not None:
        return ()
    with (
        prepared(connection, request.timeout, settings=zone_settings(connection, binding)),
        reading(connection, request.timeout),
    ):
        if isinstance(request.resume, Resume):
            return _in_leaves(connection, binding, request, request.resume, shares)
        return _marks(connection, binding, request, binding.table, shares)


def _marks(
    connection: Connection, binding: Binding, request: BatchRequest, source: Table, shares: int
) -> list[Any]:
    """The marks in a table, or in one of its partitions."""
    resume: Any = request.resume
    until: Any = request.until
    if isinstance(resume, Resume):
        end = until.resume if until is not None and until.leaf == resume.leaf else None
        resume, until = resume.resume, end
    if request.part is Part.ALL:
        return [] if resume is None else table_walk.marks(resume, until, shares)
    index = PartIndex(binding, request.part, clock_of(connection.dialect), source)
    return index.marks(connection, request.size, (resume, until), shares)


def _in_leaves(
    connection: Connection, binding: Binding, request: BatchRequest, resume: Resume, shares: int
) -> list[Resume]:
    """The marks in the next partition; between partitions, where little is left of that one."""
    source = leaf_table(binding.table, resume.leaf)
    marks = [
        Resume(resume.leaf, mark) for mark in _marks(connection, binding, request, source, shares)
    ]
    if marks:
        return marks
    until: Any = request.until
    left = [
        leaf
        for leaf in leaves_of(connection, binding.table)
        if leaf > resume.leaf and (until is None or until.reaches(leaf))
    ]
    shares = min(shares, len(left) + 1)
    return [Resume(left[len(left) * number // (shares - 1)]) for number in range(shares - 1)]
