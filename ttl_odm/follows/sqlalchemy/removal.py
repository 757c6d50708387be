"""Removing the rows that follow others before those others, the deepest first.

This happens in the transaction that removes the parents, or in earlier ones, so no reader sees
followers of expired rows. The transaction has locked the parents, and they stay expired: see
`seal`.

Rows of a family may refer to each other by further foreign keys, which are called ties here: a post
replies to another, a thread links to its last message. Such rows may form trees and rings in which
no row can go first. All of them have expired, so the columns of a tie become NULL before the row
that they refer to is deleted. If they can't be NULL, one DELETE has to take all rows of a ring,
which SQLite and PostgreSQL allow as long as they are in one chunk; ``ttl-odm check`` reports it.

Expired followers in the way of a write are removed by their keys. Their parents then lack some of
their followers, so the row at the root is locked first, as in a sweep, and sealed.

Orphans are rows whose parent is missing, as it was deleted past the gate or never existed. They are
expired, unless ``orphan="live"``, but no sweep of their parents finds them. If the database
enforces a foreign key for the link, the only orphans are rows with a NULL in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import ColumnElement, and_, exists, false, inspect, not_, or_, select

from ttl_odm.core.policy import TTL
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.follows import check_options, sealing_ttl
from ttl_odm.follows.sqlalchemy.follower import all_followers, ancestry, following_of
from ttl_odm.follows.sweep import Removal
from ttl_odm.sqlalchemy.policy.bindings import binding_of, key_columns
from ttl_odm.sqlalchemy.policy.predicate import (
    INCLUDE_EXPIRED,
    Predicate,
    expired_in,
    include_expired,
)
from ttl_odm.sqlalchemy.policy.references import root_of, rules_below
from ttl_odm.sqlalchemy.policy.second_tables import BareCopy
from ttl_odm.sqlalchemy.policy.sources import SourceColumns
from ttl_odm.sqlalchemy.purge.statements import (
    PurgeDelete,
    SweepSelect,
    SweepUpdate,
    chunks,
    in_subquery,
    is_one_of,
)
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
from ttl_odm.sqlalchemy.sweep.transactions import (
    name_of,
    prepared,
    reading,
    unlogged,
    writing,
    zone_settings,
)
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import BatchResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Column, Connection, ForeignKeyConstraint, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.follows.sqlalchemy.follower import Following
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Checked, Execute, Kept, Keys
    from ttl_odm.sqlalchemy.sweep.foreign_keys import Name
    from ttl_odm.sweeper import BatchRequest
    from ttl_odm.sweeper.findings import Finding

_READ: Final = 100_000
"""Keys that are read at once, some 10 MB."""

_BATCH: Final = 200
"""Rows in the way of a write whose keys one statement names: SQLite nests conditions at most 1,000
deep."""

_MIGRATE: Final = "alembic revision --autogenerate -m ttl  (with import ttl_odm.alembic in env.py)"


def seal(connection: Connection, binding: Binding, keys: Keys) -> None:
    """Give expired rows that inherit the default a ttl of their own, with which they stay expired.

    Otherwise a default that is raised after some of their followers were removed would bring them
    back with the other followers only. Does nothing if rows can't have their own ttl.
    """
    own = binding.override
    if own is None:
        return
    table = binding.table
    # Without `onupdate`, and the stamp is set to itself: MySQL's column may have ON UPDATE.
    stamp, bare = binding.last_modified.name, BareCopy.of(table)
    predicate = Predicate(clock_of(connection.dialect), writing=True)
    columns = SourceColumns(bare.c[stamp], bare.c[own.name], None, None)
    rows = is_one_of([bare.c[str(key.name)] for key in key_columns(table)], keys)
    statement = SweepUpdate(bare).where(rows, predicate.inherits(binding, columns))
    never = binding.policy.never if isinstance(binding.policy, TTL) else ()
    connection.execute(statement.values({own.name: sealing_ttl(never), stamp: bare.c[stamp]}))


@dataclass(slots=True)
class FollowersRemoval(Removal):
    """Removes followers of rows, up to a limit."""

    connection: Connection
    limit: int | None = None
    removed: Counter[str] = field(default_factory=Counter)
    _ties: dict[Table, list[_Tie]] = field(init=False, default_factory=dict)

    def of(self, binding: Binding, keys: Keys) -> None:
        """Remove the followers of rows of a policy, by the primary keys of these rows."""
        self._below(binding.table, key_columns(binding.table), keys)

    def _below(self, table: Table, columns: Sequence[Column[object]], keys: Keys) -> None:
        for following in rules_below(table):
            check_options(following.owner)
            links = following.links()
            for some in chunks(keys):
                is_key = list(columns) == links.theirs
                referred = some if is_key else self._read(links.theirs, is_one_of(columns, some))
                if referred:
                    self.of_table(following.table, is_one_of(links.own, referred))

    def of_table(self, table: Table, condition: ColumnElement[bool]) -> None:
        """Remove rows of a table that follows another, after their own followers."""
        if self._goes_at_once(table):
            self._remove_at_once(table, condition)
            return
        columns = key_columns(table)
        for keys in self._batches(columns, condition):
            self._below(table, columns, keys)
            if not self.is_done:
                return
            for tie in self._ties_to(table):
                _untie(self.connection, tie, table, keys)
            self._delete(table, is_one_of(columns, keys))

    def _goes_at_once(self, table: Table) -> bool:
        """Return whether one DELETE per table removes any number of rows, here and in tables below.

        InnoDB might read the whole table for it and lock every row, so its rows are found by an
        index and deleted by key. SQLite can find rows by a single column of other rows only.
        """
        return (
            self.limit is None
            and self.connection.dialect.name not in MYSQL_FAMILY
            and not self._ties_to(table)
            and all(
                len(below.links().own) == 1 and self._goes_at_once(below.table)
                for below in rules_below(table)
            )
        )

    def _remove_at_once(self, table: Table, condition: ColumnElement[bool]) -> None:
        for following in rules_below(table):
            check_options(following.owner)
            links = following.links()
            rows = SweepSelect(*links.theirs).where(condition)
            self._remove_at_once(following.table, in_subquery(links.own, rows))
        self._delete(table, condition)

    def _delete(self, table: Table, condition: ColumnElement[bool]) -> None:
        deleted = self.connection.execute(PurgeDelete(table).where(condition)).rowcount
        self.removed[table.fullname] += deleted

    def _ties_to(self, table: Table) -> list[_Tie]:
        if table not in self._ties:
            self._ties[table] = list(_ties_to(table))
        return self._ties[table]

    def _batches(
        self, columns: Sequence[Column[object]], condition: ColumnElement[bool]
    ) -> Iterator[Keys]:
        """Read keys, and yield as many as fit into one statement at a time.

        Many are read at once, because each read walks over the index entries of all rows that this
        transaction has deleted.
        """
        while self.is_done:
            most = self.next_size(_READ)
            keys = self._read(columns, condition, most)
            yield from chunks(keys)
            if len(keys) < most:
                return

    def _read(
        self,
        columns: Sequence[Column[object]],
        condition: ColumnElement[bool],
        limit: int | None = None,
    ) -> Keys:
        """Lock rows and read some of their columns, as they are now rather than in a snapshot."""
        rows = SweepSelect(*columns).where(condition).limit(limit)
        if clock_of(self.connection.dialect).locks_rows:
            rows = rows.with_for_update()
        return self.connection.execute(rows).all()


class _Tie(NamedTuple):
    """A foreign key by which rows of a family refer to rows of one of its tables."""

    table: Table
    columns: tuple[Column[object], ...]
    referred: tuple[Column[object], ...]

    @property
    def nullable(self) -> list[Column[object]]:
        """Its columns that can be NULL: with a NULL in one of them, a row refers to nothing."""
        return [column for column in self.columns if column.nullable and not column.primary_key]


def _ties_to(table: Table) -> Iterator[_Tie]:
    """Yield the foreign keys inside a family that would keep rows of one of its tables."""
    root = root_of(table)
    for other in tuple(table.metadata.tables.values()):
        if root_of(other) is not root:
            continue
        for key in other.foreign_key_constraints:
            restricts = (key.ondelete or "NO ACTION").upper() in {"NO ACTION", "RESTRICT"}
            if key.referred_table is table and restricts and not _is_link(key):
                pairs = [(element.parent, element.column) for element in key.elements]
                columns, referred = zip(*pairs, strict=True)
                yield _Tie(other, columns, referred)


def _is_link(key: ForeignKeyConstraint) -> bool:
    """Return whether rows follow by a foreign key: then they are removed before the parent."""
    following = following_of(key.table)
    return following is not None and {element.parent for element in key.elements} == set(
        following.links().own
    )


def _untie(connection: Connection, tie: _Tie, table: Table, keys: Keys) -> None:
    """Let expired rows no longer refer to rows of a table, which have these primary keys."""
    own = key_columns(table)
    if tuple(own) != tie.referred:
        referred = connection.execute(SweepSelect(*tie.referred).where(is_one_of(own, keys)))
        keys = [tuple(row) for row in referred if None not in tuple(row)]
    if not (keys and tie.nullable):
        return
    columns = key_columns(tie.table)
    refers = is_one_of(tie.columns, keys)
    rows = set(map(tuple, connection.execute(SweepSelect(*columns).where(refers))))
    if not rows:
        return
    live: Any = select(*columns).where(refers).execution_options(**{INCLUDE_EXPIRED: False})
    expired = list(rows.difference(map(tuple, connection.execute(live))))
    bare = BareCopy.of(tie.table)
    nulls: dict[str, object] = {column.name: None for column in tie.nullable}
    binding = binding_of(tie.table)
    if binding is not None:
        stamp = binding.last_modified.name
        nulls[stamp] = bare.c[stamp]  # MySQL's column may have ON UPDATE.
    for some in chunks(expired):
        theirs = is_one_of([bare.c[str(column.name)] for column in columns], some)
        connection.execute(SweepUpdate(bare).where(theirs).values(nulls))


# Expired followers in the way of a write


def remove_displaced(
    connection: Connection, execute: Execute, following: Following, keys: Keys
) -> int:
    """Delete expired rows after all their followers; return how many of all these rows.

    Rows that are live again by then stay.

    Args:
        connection: Where they are.
        execute: Executes a statement there, with the options of the write.
        following: The rule of their table.
        keys: Their primary keys.
    """
    columns, removal = key_columns(following.table), FollowersRemoval(connection)
    for some in chunks(keys, _BATCH):
        doomed = _doomed(connection, execute, following, is_one_of(columns, some))
        if doomed:
            removal.of_table(following.table, is_one_of(columns, doomed))
    return removal.removed.total()


def _doomed(
    connection: Connection,
    execute: Execute,
    following: Following,
    condition: ColumnElement[bool],
) -> list[tuple[object, ...]]:
    """Return the keys of expired rows, including orphans; their roots are locked and sealed."""
    own, above = key_columns(following.table), ancestry(following.table, keeps_orphans=True)
    parents = [parent.c[level.links().theirs[0].key] for level, parent in above.levels]
    binding = root_of(following.table)
    assert binding is not None  # noqa: S101 (that is where a chain ends)
    root = [above.root.c[column.key] for column in key_columns(binding.table)]
    rows: Any = select(*own, *parents, *root).select_from(above.joined).where(condition)
    doomed: list[tuple[object, ...]] = []
    under: dict[tuple[object, ...], list[tuple[object, ...]]] = defaultdict(list)
    width, end = len(own), len(own) + len(parents)
    for row in execute(rows.options(include_expired())):
        key, chain = tuple(row[:width]), list(row[width:end])
        if None not in chain:
            under[tuple(row[end:])].append(key)
        elif above.levels[chain.index(None)][0].declared.orphan == "expired":
            doomed.append(key)
    if under:
        columns = key_columns(binding.table)
        roots: Any = SweepSelect(*columns).where(is_one_of(columns, under))
        roots = roots.where(expired_in(connection, binding, locking=True))
        if clock_of(connection.dialect).locks_rows:
            roots = roots.with_for_update()
        expired = [tuple(row) for row in execute(roots)]
        seal(connection, binding, expired)
        doomed += [key for row in expired for key in under[row]]
    return doomed


# Orphans


def has_orphans(connection: Connection, binding: Binding) -> bool:
    """Return whether followers of a table have orphans, by a connection fresh from the pool."""
    queries: list[Any] = [
        SweepSelect(*table.primary_key.columns).where(orphaned).limit(1)
        for table, orphaned in _orphans(connection.dialect, binding)
    ]
    if not queries:
        return False
    with prepared(connection), reading(connection):
        return any(connection.execute(rows).first() is not None for rows in queries)


def purge_orphans(
    connection: Connection, binding: Binding, request: BatchRequest, kept: Kept
) -> BatchResult:
    """Delete a batch of orphans and their followers, by a connection fresh from the pool.

    Rows that `kept` selects stay: deleting them would cascade to rows whose deletion is recorded.
    """
    with (
        prepared(connection, request.timeout, settings=zone_settings(connection, binding)),
        unlogged(connection, replicate=request.replicate),
        writing(connection, binding.table, request.timeout, replicate=request.replicate),
    ):
        removal = FollowersRemoval(connection, request.size)
        for table, orphaned in _orphans(connection.dialect, binding):
            stays = kept(table)
            removal.of_table(table, orphaned if stays is None else and_(orphaned, not_(stays)))
    return BatchResult(0, removal.resume(request), referring=removal.removed)


def _orphans(dialect: Dialect, binding: Binding) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """Yield the tables that follow a table, each with the condition for its orphans."""
    for following in all_followers(binding.table):
        if following.declared.orphan == "live":
            continue
        links = following.links()
        orphaned: list[ColumnElement[bool]] = [own.is_(None) for own in links.own if own.nullable]
        if not _is_enforced(dialect, following):
            parent = links.parent.alias()
            same_row = (own == parent.c[theirs.key] for own, theirs in links.pairs)
            parents = select().add_columns(*parent.primary_key).where(*same_row)
            orphaned.append(
                not_(exists(parents.correlate(following.table).options(include_expired())))
            )
        if orphaned:
            yield following.table, or_(false(), *orphaned)


def _is_enforced(dialect: Dialect, following: Following) -> bool:
    """Return whether the database enforces that each link leads to a parent."""
    pairs = set(following.links().pairs)
    return dialect.name != "sqlite" and any(
        {(element.parent, element.column) for element in key.elements} == pairs
        for key in following.table.foreign_key_constraints
    )


# What ttl-odm check reports


def check_followers(checked: Checked) -> Iterator[Finding]:
    """Check that the followers of a table exist, and that no foreign key keeps their rows."""
    inspector = inspect(checked.connection)
    for following in all_followers(checked.binding.table):
        schema, name = name_of(checked.connection, following.table)
        if inspector.has_table(name, schema):
            yield from _check_keys(checked, following.table, (schema, name))
        else:
            message = f"table {name}, which follows it, doesn't exist"
            yield checked.error("missing-table", message, _MIGRATE)


def _check_keys(checked: Checked, table: Table, place: Name) -> Iterator[Finding]:
    """Check that no other rows refer to rows of a follower in a way that would keep them."""
    metadata = checked.binding.table.metadata
    ties = {
        (tie.table.name, frozenset(str(column.name) for column in tie.columns)): tie
        for tie in _ties_to(table)
    }
    for key in ReferringKeys().of(checked.connection, place):
        tie = ties.get((key.table[1], frozenset(key.columns)))
        if not key.restricts or key.is_link_in(metadata) or (tie and tie.nullable):
            continue
        is_free = "make it nullable, " if tie else ""
        yield checked.warning(
            "restricting-key",
            f"{key} refers to rows of {place[1]}, which follow it, without ON DELETE: rows "
            "there prevent expired rows from being deleted",
            f"{is_free or 'let its model follow too, '}or write ForeignKey(..., "
            f'ondelete="CASCADE") or "SET NULL" on {key}, in a migration',
        )
