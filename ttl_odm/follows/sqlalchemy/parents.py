"""No row is put under a parent that has expired.

One SELECT just before the write reads the parents and locks them, so that no sweeper deletes one
before the transaction ends. If a parent has expired, a flush, like everything else that writes
objects, raises `ExpiredError`. A Core statement writes its other rows, as if its WHERE clause left
these out: an execution that would write them isn't sent. If SQL computes the parent, the statement
gets a condition instead (`ttl_odm.follows.sqlalchemy.links`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import inspect, select
from sqlalchemy.engine.interfaces import ExecuteStyle

from ttl_odm.follows import under_expired
from ttl_odm.follows.sqlalchemy.follower import following_of
from ttl_odm.follows.sqlalchemy.links import link_of
from ttl_odm.follows.sqlalchemy.parent_keys import parents_written
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.keys.updates import TargetLookup
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.policy.references import done_by_flush
from ttl_odm.sqlalchemy.purge.errors import ExpiredError
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, chunks, is_one_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.follows.sqlalchemy.follower import Following
    from ttl_odm.follows.sqlalchemy.parent_keys import Key
    from ttl_odm.sqlalchemy.rewrite.writes import Target

_NOTHING: Final = "(SELECT 1 AS one) AS ttl_odm_none WHERE 1 = 0"


@dataclass(frozen=True, slots=True)
class LiveParents:
    """Checks, before a write to a table whose rows follow others, that their parents are live.

    Attributes:
        following: The rule of the table.
        lookup: The rows of an UPDATE; None for an INSERT.
    """

    following: Following
    lookup: TargetLookup | None = None

    @classmethod
    def of_insert(cls, table: object) -> Self | None:
        """Return the check for an INSERT into a table; None if its rows follow nothing."""
        following = following_of(table)
        return None if following is None else cls(following)

    @classmethod
    def of_update(cls, target: Target) -> Self | None:
        """Return the check for an UPDATE; None if it moves no row to another parent."""
        following = following_of(target.table)
        if following is None:
            return None
        moves = not target.written.isdisjoint(link_of(following.links()).names)
        return cls(following, TargetLookup(target)) if moves else None

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Leave out the rows that would have an expired parent, or raise `ExpiredError`."""
        if current:
            return 0
        parents = parents_written(context, self.following, self.lookup)
        expired = set(self._expired(context, list(dict.fromkeys(new.key for new in parents))))
        if not expired:
            return 0
        is_of_objects = self._writes_objects(context)
        late = [new for new in parents if new.key in expired]
        for new in late:
            if is_of_objects or (new.execution is None and not new.excludes):
                raise self._error(new.key)
        unsent = {new.execution for new in late if new.execution is not None}
        if unsent:
            _leave_out(context, unsent, self.following)
        return 0

    def _expired(self, context: DefaultExecutionContext, keys: Sequence[Key]) -> Iterator[Key]:
        """Yield the keys of expired parents among these; the live parents are locked."""
        reclaimer, links = KeyReclaimer.of(context), self.following.links()
        for some in chunks(keys):
            parents = is_one_of(links.theirs, some)
            live = self._live(reclaimer, parents)
            if len(live) == len(some):
                continue
            # The others have expired, or never existed.
            stored = set(map(tuple, reclaimer.execute(SweepSelect(*links.theirs).where(parents))))
            expired = stored - live
            if expired:  # or were committed in between
                expired -= self._live(reclaimer, parents)
            if len(some) == 1:
                yield from some if expired else ()
            elif expired.issubset(some):
                yield from expired
            else:  # keys that the database takes for equal: collations, values of other types
                for key in some:
                    yield from self._expired(context, [key])

    def _live(self, reclaimer: KeyReclaimer, parents: ColumnElement[bool]) -> set[Key]:
        """Lock the live parents that a condition selects, and return their keys."""
        links = self.following.links()
        live: Any = select(*links.theirs).where(parents)
        if clock_of(reclaimer.dialect).locks_rows:
            live = live.with_for_update(read=True, key_share=True, of=links.parent)
        live = live.execution_options(**{INCLUDE_EXPIRED: False})
        return set(map(tuple, reclaimer.execute(live)))

    def _writes_objects(self, context: DefaultExecutionContext) -> bool:
        """Return whether the ORM writes objects or mappings, so no caller sees a count of rows."""
        if done_by_flush.get() is not None:
            return True
        statement = compat.invoked(context)
        cache = context.execution_options.get("compiled_cache")
        mapper: Any = inspect(self.following.owner)
        return compat.is_bulk(statement) or (
            cache is not None and cache is compat.compiled_cache(mapper.base_mapper)
        )

    def _error(self, key: Key) -> ExpiredError:
        model, parent = self.following.owner.__name__, self.following.links().parent.fullname
        name = key[0] if len(key) == 1 else key
        return ExpiredError(under_expired(model, parent, key), model=model, key=name)


def _leave_out(context: Any, executions: Collection[int], following: Following) -> None:
    """Don't send some executions of an INSERT or UPDATE.

    If none is left, a statement is sent that does nothing and returns the columns that the original
    one would return, without a row.
    """
    numbers = range(len(context.compiled_parameters))
    rest = [number for number in numbers if number not in executions]
    if rest:
        context.parameters = [context.parameters[number] for number in rest]
        context.compiled_parameters = [context.compiled_parameters[number] for number in rest]
        return
    compiled, context.ttl_does_nothing = context.compiled, True
    statement = compat.in_schemas(context, _doing_nothing(context, following))
    none = context.dialect.execute_sequence_format() if compiled.positional else {}
    if context.execute_style is ExecuteStyle.INSERTMANYVALUES and compiled.effective_returning:
        # SQLAlchemy hasn't divided the rows into batches yet, and without rows makes none.
        context.dialect.do_execute(context.cursor, statement, none, context)
        context.parameters, context.compiled_parameters = [], []
        return
    context.execute_style = ExecuteStyle.EXECUTE
    context.statement, context.parameters = statement, [none]


def _doing_nothing(context: Any, following: Following) -> str:
    """Return the INSERT or UPDATE that does nothing."""
    compiled, table = context.compiled, following.table
    own = next(column for column in table.c if column.computed is None)
    preparer = compiled.preparer
    name, column = preparer.format_table(table), preparer.format_column(own)
    if context.isinsert:
        needed = [  # MariaDB requires values for them before it knows that there is no row
            other
            for other in table.c
            if other is own
            or not (other.nullable or other.server_default or other is table.autoincrement_column)
            # (A generated column has a default: its expression.)
        ]
        columns = ", ".join(map(preparer.format_column, needed))
        nulls = ", ".join(["NULL"] * len(needed))
        statement = f"INSERT INTO {name} ({columns}) SELECT {nulls} FROM {_NOTHING}"  # noqa: S608 (names of ours)
    else:
        statement = f"UPDATE {name} SET {column} = {column} WHERE 1 = 0"  # noqa: S608
    return f"{statement} {compiled.ttl_returning}".rstrip()
