"""Tables whose rows follow those of another: what `ttl_odm.core.follows` means for a table.

A `Following` lives in ``Table.info`` under a key of its own. The table has no `Binding`: its rows
have no stamp, no default and no sweep by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Table

from ttl_odm.sqlalchemy.compat import ANNOTATED
from ttl_odm.sqlalchemy.policy.binding import bind_info, bound_tables, copying, root_binding_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Column

    from ttl_odm.core.follows import Follows
    from ttl_odm.sqlalchemy.policy.binding import Binding

FOLLOWS_KEY: Final = "ttl_odm.follows"
"""Where a table whose rows follow others has its `Following`."""

_FOLLOWERS: Final = "ttl_odm.followers"
"""In ``MetaData.info``: the tables that follow each of its tables, while no table is added."""


following_tables: Final[WeakKeyDictionary[Table, None]] = WeakKeyDictionary()
"""Every table whose rows follow others, while it is in use; copies by `to_metadata` aside."""


class GatedTables:
    """Every table of which expired rows are not seen: see `BoundTables`, and `following_tables`."""

    def __iter__(self) -> Iterator[Table]:
        yield from bound_tables
        references = following_tables.keyrefs()
        yield from (table for reference in references if (table := reference()) is not None)


gated_tables: Final = GatedTables()


@dataclass(frozen=True, slots=True)
class Links:
    """The table that rows follow, and pairs of a column of theirs and the parent's that it equals.

    The parent has a `Binding` or a `Following`: of a joined subclass it is the table at the root.
    """

    parent: Table
    pairs: tuple[tuple[Column[Any], Column[Any]], ...]

    @property
    def own(self) -> list[Column[Any]]:
        """The columns of the table that follows."""
        return [own for own, _ in self.pairs]

    @property
    def theirs(self) -> list[Column[Any]]:
        """The columns of the parent."""
        return [theirs for _, theirs in self.pairs]


@dataclass(frozen=True, slots=True)
class Following:
    """A table whose rows live while their parents do; it has no columns for that.

    `links` finds the parent, which may be declared later; it raises TTLConfigurationError where
    that can't be.
    """

    table: Table
    owner: type
    declared: Follows
    links: Callable[[], Links]

    def on(self, table: Table) -> Following:
        """The same on another Table object, with the parent that stands beside it."""

        def links() -> Links:
            first = self.links()
            names = (first.parent.name, table.schema)
            others = table.metadata.tables.values()
            beside = next((one for one in others if (one.name, one.schema) == names), first.parent)
            columns = {column.name: column for column in table.c}
            parents = {column.name: column for column in beside.c}
            pairs = ((columns[own.name], parents[theirs.name]) for own, theirs in first.pairs)
            return Links(beside, tuple(pairs))

        return replace(self, table=table, links=cache(links))


def bind_following(table: Table, following: Following) -> None:
    """Put what the rows of a table follow on it."""
    bind_info(table, FOLLOWS_KEY, following)
    following_tables[table] = None
    bound_tables.changed()


def root_of(table: Table) -> Binding | None:
    """The policy that says when rows of a table expire: its own, or that of what they follow."""
    following = following_of(table)
    while following is not None:
        table = following.links().parent
        following = following_of(table)
    return root_binding_of(table)


def following_of(table: object) -> Following | None:
    """What the rows of a table follow, or None where they don't."""
    original = getattr(table, ANNOTATED, table)
    if not isinstance(original, Table):
        return None
    following: Following | None = original.info.get(FOLLOWS_KEY)
    if following is not None and following.table is not original:  # to_metadata() copies `info`
        with copying:
            following = cast("Following", original.info[FOLLOWS_KEY])
            if following.table is not original:
                following = following.on(original)
                bind_info(original, FOLLOWS_KEY, following)
    return following


def followers_of(table: Table) -> Sequence[Following]:
    """The tables whose rows follow those of a table."""
    metadata = table.metadata
    state = bound_tables.changes, len(metadata.tables)
    # Each DELETE asks. Kept beside the tables that it names, so that they may go together.
    known_state, known = metadata.info.get(_FOLLOWERS, (None, {}))
    if known_state != state:
        known = defaultdict(list)
        for following in filter(None, map(following_of, tuple(metadata.tables.values()))):
            known[following.links().parent].append(following)
        metadata.info[_FOLLOWERS] = state, known
    return known.get(table, ())  # type: ignore[no-any-return]
