"""``renews=True``: writes that restart the lifetime of the rows' parents.

The ``_ts`` of the parents is set before the write. If the parents follow others in turn, it is the
``_ts`` of the rows at the root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Integer, Update, literal_column, select, update

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.follows.sqlalchemy.follower import following_of
from ttl_odm.follows.sqlalchemy.links import link_of
from ttl_odm.follows.sqlalchemy.parent_keys import parents_written
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.keys.updates import TargetLookup
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED, KEEP_LAST_MODIFIED
from ttl_odm.sqlalchemy.policy.references import done_by_flush, root_of
from ttl_odm.sqlalchemy.purge.statements import chunks, in_subquery, is_one_of
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.timestamps import has_timestamp, in_utc, shown_in_utc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Table
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.follows.sqlalchemy.follower import Following
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Links
    from ttl_odm.sqlalchemy.rewrite.writes import Target

    Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RenewedParents:
    """Renews, before a write, the parents of the rows that it writes.

    Attributes:
        following: The rule of their table.
        lookup: The rows of an UPDATE or DELETE; None for an INSERT.
        may_move: Whether an UPDATE may give rows another parent.
    """

    following: Following
    lookup: TargetLookup | None = None
    may_move: bool = False

    @classmethod
    def of_insert(cls, table: object) -> Self | None:
        """Return the renewal for an INSERT into a table; None if it renews nothing."""
        following = following_of(table)
        return cls(following) if following is not None and following.declared.renews else None

    @classmethod
    def of_target(cls, target: Target) -> Self | None:
        """Return the renewal for an UPDATE or DELETE; None if it renews nothing.

        None, too, if its rows can't be read beforehand: it contains other writes, or has a limit.
        """
        following = following_of(target.table)
        write = target.statement.statement
        if following is None or not following.declared.renews:
            return None
        if target.acts or compat.is_limited(write):
            return None
        link = link_of(following.links())
        may_move = isinstance(write, Update) and not target.written.isdisjoint(link.names)
        return cls(following, TargetLookup(target), may_move)

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Restart the lifetime of the parents; in a flush, once for each parent."""
        binding = root_of(self.following.table)
        if current or binding is None or context.execution_options.get(KEEP_LAST_MODIFIED):
            return 0
        links, reclaimer = self.following.links(), KeyReclaimer.of(context)
        # A key that is a TIMESTAMP is read in UTC: a wall time may stand for two instants. Values
        # that are sent are stored as they are.
        shows_utc = reclaimer.dialect.name in MYSQL_FAMILY and has_timestamp(links.own)
        keys = dict.fromkeys(self._parents_matched(context, reclaimer, links, shows_utc=shows_utc))
        if shows_utc and keys:
            with in_utc(reclaimer.connection):
                self._renew(binding, links, list(keys), reclaimer)
            keys = {}
        if self.lookup is None or self.may_move:
            new = parents_written(context, self.following, self.lookup, but_ignored=True)
            keys |= dict.fromkeys(written.key for written in new)
        self._renew(binding, links, self._not_yet_renewed(list(keys), reclaimer), reclaimer)
        return 0

    def _parents_matched(
        self,
        context: DefaultExecutionContext,
        reclaimer: KeyReclaimer,
        links: Links,
        *,
        shows_utc: bool,
    ) -> Iterator[Key]:
        """Yield the keys of the present parents of the rows that an UPDATE or DELETE will match."""
        if self.lookup is None:
            return
        # The ORM's options may add conditions to its WHERE clause.
        options = compat.loader_options(compat.invoked(context))
        for target, executions in self.lookup.targets(context):
            own = [target.source.c[column.key] for column in links.own]
            shown = shown_in_utc(own) if shows_utc else own
            for parameters in executions:
                rows = target.matched(parameters, *shown).distinct().options(*options)
                for row in reclaimer.execute(rows):
                    if None not in row:
                        yield tuple(row)

    def _not_yet_renewed(self, keys: Sequence[Key], reclaimer: KeyReclaimer) -> list[Key]:
        """Return the keys of parents that this flush hasn't renewed, and note them as renewed."""
        renewed = done_by_flush.get()
        if renewed is None:
            return list(keys)
        parent, engine = self.following.links().parent, reclaimer.connection.engine
        new = [key for key in keys if (engine, parent, key) not in renewed]
        renewed.update((engine, parent, key) for key in new)
        return new

    def _renew(
        self, binding: Binding, links: Links, keys: Sequence[Key], reclaimer: KeyReclaimer
    ) -> None:
        for some in chunks(keys):
            matched = _at_root(links.parent, is_one_of(links.theirs, some))
            value = binding.instants.stored(Stamp())
            stamp = update(binding.table).values({binding.last_modified: value}).where(matched)
            seconds = self.following.declared.at_most_every
            if seconds is not None:
                clock = clock_of(reclaimer.dialect)
                before = clock.literal(clock.now_at_write) - clock.span(
                    literal_column(str(seconds), Integer())
                )
                instants = binding.instants.on(clock)
                stamp = stamp.where(instants.reached(binding.last_modified, before))
            reclaimer.execute(stamp.execution_options(**{INCLUDE_EXPIRED: False}))


def _at_root(table: Table, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return a condition on a table, turned into one on the table at the root of its parents."""
    following = following_of(table)
    if following is None:
        return condition
    links = following.links()
    above = in_subquery(links.theirs, select(*links.own).where(condition))
    return _at_root(links.parent, above)
