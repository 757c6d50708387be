"""No row is put under a parent that has expired.

One look at the parents, just before the write; it locks them, so that no sweeper takes one away
until the transaction is over. Which parent the database computes isn't known by then: such a row
is written, and is expired as its parent is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Insert, select

from ttl_odm.core.follows import under_expired
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.defaults import with_defaults
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.policy.following import following_of
from ttl_odm.sqlalchemy.policy.parameters import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.purge.errors import ExpiredError
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, is_one_of
from ttl_odm.sqlalchemy.rewrite.stamps import is_sql, rows_of
from ttl_odm.sqlalchemy.rewrite.targets import TargetLookup
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.sqlalchemy.policy.following import Following, Links
    from ttl_odm.sqlalchemy.rewrite.targets import Target

    Row = Mapping[str, Any]

    Key = tuple[Any, ...]

CHUNK: Final = 500
"""Keys in one statement."""


def parents_written(
    context: DefaultExecutionContext, links: Links, lookup: TargetLookup | None
) -> list[Key]:
    """The keys of the parents that a statement names in rows: without SQL and NULLs.

    Without a `lookup` the statement is an INSERT.
    """
    names = [own.key for own in links.own]
    rows = _inserted(context, links) if lookup is None else _updated(context, lookup)
    keys = dict.fromkeys(tuple(row.get(name) for name in names) for row in rows)
    return [key for key in keys if not any(map(is_sql, key)) and None not in key]


def _updated(context: DefaultExecutionContext, lookup: TargetLookup) -> Iterator[Row]:
    for target, executions in lookup.targets(context):
        yield from target.rows(executions)


def _inserted(context: DefaultExecutionContext, links: Links) -> Iterator[Row]:
    executions = context.compiled_parameters
    statement: Insert = compat.emitted(compat.invoked(context))
    if compat.selected_names(statement):
        return
    for number, row in enumerate(rows_of(statement, executions)):
        yield with_defaults(row, tuple(links.own), executions[0], number)


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
        columns = {own.key for own in following.links().own}
        return None if columns.isdisjoint(target.written) else cls(following, TargetLookup(target))

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:  # noqa: ARG002 (a `Preparation`)
        """Raise `ExpiredError` for a row that would have an expired parent."""
        links = self.following.links()
        keys = parents_written(context, links, self.lookup)
        reclaimer = KeyReclaimer.of(context)
        for start in range(0, len(keys), CHUNK):
            self._check(reclaimer, links, keys[start : start + CHUNK])
        return 0

    def _check(self, reclaimer: KeyReclaimer, links: Links, keys: Sequence[Key]) -> None:
        parents = is_one_of(links.theirs, keys)
        live: Any = select(*links.theirs).where(parents)
        if clock_of(reclaimer.dialect).locks_rows:
            live = live.with_for_update(read=True, key_share=True, of=links.parent)
        live = live.execution_options(**{INCLUDE_EXPIRED: False})
        found = reclaimer.execute(live).all()
        if len(found) == len(keys):
            return
        alive = set(map(tuple, found))
        for row in reclaimer.execute(SweepSelect(*links.theirs).where(parents)):
            key = tuple(row)
            if key not in alive:
                model = self.following.owner.__name__
                raise ExpiredError(
                    under_expired(model, links.parent.fullname, key),
                    model=model,
                    key=key[0] if len(key) == 1 else key,
                )
