"""What has to happen just before a compiled statement runs, and once more after it failed.

The gate decides it while it compiles a statement, and does it in the execution context, both in
`ttl_odm.sqlalchemy.gate.compiler`. The keys of writes are `ttl_odm.sqlalchemy.keys.writes`.

The second try is MariaDB's and MySQL's. In REPEATABLE READ, InnoDB's default, a transaction reads
the rows that there were when it first read, and writes those that there are: the lookup of expired
rows in the way of a write misses a younger one, and the write fails on it. Reading the rows as they
are now would lock the gaps where there are none, before every INSERT; such an error is rare, and
undoes no more than its statement. So that lookup comes after it, and the write once more if it
found something. An error can still be fixed only in the dialect's two functions that hand a
statement to the driver; an engine that writes to a TTL table has others in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlalchemy import Update, or_, update
from sqlalchemy.exc import CompileError, DBAPIError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.defaults import with_sources
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer, referred_rows
from ttl_odm.sqlalchemy.policy.binding import first_of
from ttl_odm.sqlalchemy.policy.foreign_keys import Change
from ttl_odm.sqlalchemy.policy.parameters import KEEP_LAST_MODIFIED, base_row_written
from ttl_odm.sqlalchemy.purge.statements import in_subquery
from ttl_odm.sqlalchemy.rewrite.stamps import Stamp
from ttl_odm.sqlalchemy.rewrite.targets import TargetLookup, filled

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from sqlalchemy.engine.interfaces import DBAPICursor
    from typing_extensions import Self

    from ttl_odm.sqlalchemy.keys.upserts import MetRows
    from ttl_odm.sqlalchemy.policy.binding import SubBinding
    from ttl_odm.sqlalchemy.rewrite.targets import Target

_IN_THE_WAY: Final = frozenset({
    1022,  # a duplicate key
    1062,  # a duplicate key, and which
    1586,  # a duplicate key, and its name
    1217,  # another row refers to it
    1451,  # another row refers to it, and by which foreign key
    1242,  # an upsert met an expired row, see `ttl_odm.sqlalchemy.rewrite.upserts`
})  # fmt: skip

_SAVEPOINT: Final = "ttl_odm_second_try"


class Preparation(Protocol):
    """Something to do before a statement."""

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Do it, and return how many expired rows were in the way and are gone.

        `current` (see `KeyReclaimer`): the statement has failed on a row that its transaction
        doesn't see, and this is the second try.
        """
        ...


@dataclass(frozen=True, slots=True)
class Several:
    """Some preparations for one statement."""

    preparations: tuple[Preparation, ...]

    @classmethod
    def of(cls, *preparations: Preparation | None) -> Preparation | None:
        """Those that there are; None where there is none."""
        some = tuple(preparation for preparation in preparations if preparation is not None)
        return cls(some) if len(some) > 1 else next(iter(some), None)

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Do all of them."""
        return sum(
            preparation.prepare(context, current=current) for preparation in self.preparations
        )


@dataclass(frozen=True, slots=True)
class ChangedReferences:
    """Before a DELETE, or an UPDATE of a key: the expired rows that refer to its rows."""

    change: Change
    lookup: TargetLookup | MetRows

    @classmethod
    def of(cls, target: Target, met: MetRows | None = None) -> ChangedReferences | None:
        """For what a statement sets, or deletes; None where nothing refers to it.

        That is, no TTL table does, nor one that hangs on the rows.
        """
        columns = None
        if isinstance(target.statement.statement, Update):
            written = target.written
            columns = frozenset(
                column.key
                for column in target.table.c  # generated ones change with their sources
                if not written.isdisjoint(source.key for source in with_sources(column))
            )
        change = Change(first_of(target.table), columns)
        return cls(change, met or TargetLookup(target)) if change.consequences() else None

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that would keep the statement's rows as they are."""
        reclaimer = KeyReclaimer.of(context, current=current)
        deleted = 0
        for target, executions in self.lookup.targets(context):
            if target.acts:  # which rows it changes is known once it has run
                continue
            rows = zip(executions, target.rows(executions), strict=True)
            for (parameters, row), consequence in product(rows, self.change.consequences()):
                conditions, source = [*target.statement.criteria], target.source
                if self.change.columns is not None:  # a key that stays as it is needs no room
                    moves = (
                        source.c[column.key].is_distinct_from(row.get(column.key))
                        for column in consequence.referred
                        if column.key in self.change.columns
                    )
                    conditions.append(or_(*moves))
                changed = referred_rows(
                    consequence,
                    self.change.table,
                    *conditions,
                    source=source,
                    sources=target.sources,
                )
                deleted += reclaimer.make_way(consequence, filled(changed, parameters))
        return deleted


@dataclass(frozen=True, slots=True)
class StampedBase:
    """Before an UPDATE of a joined subclass's table: the ``_ts`` of the rows at the root."""

    sub: SubBinding
    lookup: TargetLookup

    @classmethod
    def of(cls, sub: SubBinding, target: Target) -> Self:
        """For a table that an UPDATE changes; CompileError where its rows can't be told before."""
        if sub.base.stamps and (target.acts or compat.is_limited(target.statement.statement)):
            raise CompileError(
                f"This statement writes {sub.table.fullname!r}, so it has to reset _ts in "
                f"{sub.base.table.fullname!r} ({sub.base.name}). Of which rows can't be told "
                "beforehand, for it has a CTE that writes, or a LIMIT. Find the keys of the rows "
                "first, and name them in its WHERE."
            )
        return cls(sub, TargetLookup(target))

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Reset ``_ts`` in the table at the root, of the rows that the UPDATE will match."""
        base = self.sub.base
        if (
            current
            or not base.stamps
            or context.execution_options.get(KEEP_LAST_MODIFIED)
            or base_row_written.get()
        ):
            return 0
        reclaimer = KeyReclaimer.of(context)
        # With the UPDATE's options, since those of the ORM may add conditions inside its WHERE.
        options = compat.loader_options(compat.invoked(context))
        stamp = update(base.table).values({base.last_modified: Stamp()}).options(*options)
        for target, executions in self.lookup.targets(context):
            own, roots = zip(*self.sub.keys_of(target.source), strict=True)
            for parameters in executions:
                matched = in_subquery(roots, target.matched(parameters, *own))
                reclaimer.execute(stamp.where(matched))
        return 0


def try_twice(dialect: Dialect) -> None:
    """See that writes of a dialect (that is, of its engine) are tried again where that helps."""
    if dialect.name in MYSQL_FAMILY and not isinstance(dialect.do_execute, _Execute):
        replaced: Any = dialect  # mypy: methods can't be assigned to
        replaced.do_execute = _Execute(dialect, dialect.do_execute)
        replaced.do_executemany = _ExecuteMany(dialect, dialect.do_executemany)


class _Execute:
    """One statement, which fails as a whole."""

    def __init__(self, dialect: Dialect, send: Callable[..., None]) -> None:
        self._dialect = dialect
        self._send = send

    def __call__(
        self, cursor: DBAPICursor, statement: str, parameters: Any, context: Any = None
    ) -> None:
        compiled = getattr(context, "compiled", None)
        preparation: Preparation | None = getattr(compiled, "ttl_preparation", None)
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

    def _is_in_the_way(self, error: BaseException) -> bool:
        return compat.error_code(self._dialect, error) in _IN_THE_WAY


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
