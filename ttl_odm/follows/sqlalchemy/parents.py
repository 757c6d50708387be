"""No row is put under a parent that has expired.

One look at the parents, just before the write; it locks them, so that no sweeper takes one away
until the transaction is over. A flush, and whatever else writes objects, raises `ExpiredError`. A
statement of Core writes its other rows, as if its WHERE left these out: an execution that would
write them isn't sent. Where SQL says which parent it is, the statement has a condition by itself
(`ttl_odm.follows.sqlalchemy.links`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import inspect, select
from sqlalchemy.engine.interfaces import ExecuteStyle

from ttl_odm.follows import under_expired
from ttl_odm.follows.sqlalchemy.following import following_of
from ttl_odm.follows.sqlalchemy.links import link_of
from ttl_odm.follows.sqlalchemy.parent_keys import parents_written
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.keys.updates import TargetLookup
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.policy.references import done_by_flush
from ttl_odm.sqlalchemy.purge.errors import ExpiredError
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, is_one_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.follows.sqlalchemy.following import Following
    from ttl_odm.follows.sqlalchemy.parent_keys import Key
    from ttl_odm.sqlalchemy.rewrite.writes import Target

_NOTHING: Final = "(SELECT 1 AS one) AS ttl_odm_none WHERE 1 = 0"

CHUNK: Final = 500
"""Keys in one statement."""


@dataclass(frozen=True, slots=True)
class LiveParents:
    """Before a write to a table whose rows follow others: whether their parents have expired.

    Without a `lookup` it is for an INSERT.
    """

    following: Following
    lookup: TargetLookup | None = None

    @classmethod
    def of_insert(cls, table: object) -> Self | None:
        """For an INSERT into a table; None where its rows follow nothing."""
        following = following_of(table)
        return None if following is None else cls(following)

    @classmethod
    def of_update(cls, target: Target) -> Self | None:
        """For an UPDATE; None where it moves no row to another parent."""
        following = following_of(target.table)
        if following is None:
            return None
        moves = not target.written.isdisjoint(link_of(following.links()).names)
        return cls(following, TargetLookup(target)) if moves else None

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Leave out the rows that would have an expired parent, or raise `ExpiredError`."""
        if current:
            return 0
        written = parents_written(context, self.following, self.lookup)
        expired = set(self._expired(context, list(dict.fromkeys(one.key for one in written))))
        if not expired:
            return 0
        is_of_objects = self._writes_objects(context)
        late = [one for one in written if one.key in expired]
        for one in late:
            if is_of_objects or (one.execution is None and not one.excludes):
                raise self._error(one.key)
        left_out = {one.execution for one in late if one.execution is not None}
        if left_out:
            _leave_out(context, left_out, self.following)
        return 0

    def _expired(self, context: DefaultExecutionContext, keys: Sequence[Key]) -> Iterator[Key]:
        """Those of some parents that have expired; the live ones are locked."""
        reclaimer, links = KeyReclaimer.of(context), self.following.links()
        for start in range(0, len(keys), CHUNK):
            some = keys[start : start + CHUNK]
            parents = is_one_of(links.theirs, some)
            found = self._live(reclaimer, parents)
            if len(found) == len(some):
                continue
            # The others have expired, or never were.
            stored = set(map(tuple, reclaimer.execute(SweepSelect(*links.theirs).where(parents))))
            stored -= found
            if stored:  # or were committed in between
                stored -= self._live(reclaimer, parents)
            if len(some) == 1:
                yield from some if stored else ()
            elif stored.issubset(some):
                yield from stored
            else:  # the database takes others for equal: collations, and values of other types
                for key in some:
                    yield from self._expired(context, [key])

    def _live(self, reclaimer: KeyReclaimer, parents: ColumnElement[bool]) -> set[Key]:
        """The live ones of some parents, which are locked."""
        links = self.following.links()
        live: Any = select(*links.theirs).where(parents)
        if clock_of(reclaimer.dialect).locks_rows:
            live = live.with_for_update(read=True, key_share=True, of=links.parent)
        live = live.execution_options(**{INCLUDE_EXPIRED: False})
        return set(map(tuple, reclaimer.execute(live)))

    def _writes_objects(self, context: DefaultExecutionContext) -> bool:
        """Whether it is the ORM that writes objects, or mappings, and nobody asks for a count."""
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
    """Let some of the executions of an INSERT or UPDATE not be sent.

    If that is all of them, what is sent does nothing, but returns what the statement would: columns
    without a row.
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
        # SQLAlchemy has made no batches yet, and then makes none.
        context.dialect.do_execute(context.cursor, statement, none, context)
        context.parameters, context.compiled_parameters = [], []
        return
    context.execute_style = ExecuteStyle.EXECUTE
    context.statement, context.parameters = statement, [none]


def _doing_nothing(context: Any, following: Following) -> str:
    compiled, table = context.compiled, following.table
    own = next(column for column in table.c if column.computed is None)
    preparer = compiled.preparer
    name, column = preparer.format_table(table), preparer.format_column(own)
    if context.isinsert:
        needed = [  # MariaDB asks for them before it knows that there is no row
            other
            for other in table.c
            if other is own
            or not (other.nullable or other.server_default or other is table.autoincrement_column)
            # (A generated column has a default: what it is computed by.)
        ]
        columns = ", ".join(map(preparer.format_column, needed))
        nulls = ", ".join(["NULL"] * len(needed))
        statement = f"INSERT INTO {name} ({columns}) SELECT {nulls} FROM {_NOTHING}"  # noqa: S608 (names of ours)
    else:
        statement = f"UPDATE {name} SET {column} = {column} WHERE 1 = 0"  # noqa: S608
    return f"{statement} {compiled.ttl_returning}".rstrip()
