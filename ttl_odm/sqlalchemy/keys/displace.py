"""Deleting the expired rows that stand in the way of a write, in the write's transaction.

An expired row doesn't exist, so it may neither hold a key that a write takes nor refer to a row
that is deleted or whose key changes. This module finds the rows that have to go: referring rows
before the row that they refer to, and on InnoDB without a lock where there are none. They are
archived, reported to hooks and deleted as in a sweep: `ttl_odm.sqlalchemy.purge.removal`.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Table, and_, inspect, not_, select
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.sql.visitors import cloned_traverse

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import (
    Binding,
    bound_tables,
    key_columns,
    sub_binding_of,
    subtables,
)
from ttl_odm.sqlalchemy.policy.predicate import Predicate, expired_in, include_expired
from ttl_odm.sqlalchemy.policy.references import Change, root_of, rules_below
from ttl_odm.sqlalchemy.policy.second_tables import on_first
from ttl_odm.sqlalchemy.purge.errors import is_passing, is_restricted, kept_by_live_rows
from ttl_odm.sqlalchemy.purge.removal import (
    DELETE,
    Removal,
    depends_on_zone,
    lock_defaults,
    mode_of,
    take_file,
)
from ttl_odm.sqlalchemy.purge.statements import (
    PurgeDelete,
    SweepSelect,
    chunks,
    in_subquery,
    is_one_of,
)
from ttl_odm.sqlalchemy.purge.ties import Together, remove_together, ties
from ttl_odm.sqlalchemy.rewrite.from_clauses import LiveRows, binding_of_source
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.timestamps import in_utc, shown_in_utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, Connection, CursorResult, Executable, FromClause, Select
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.sqlalchemy.policy.bindings import SubBinding
    from ttl_odm.sqlalchemy.policy.references import Consequence
    from ttl_odm.sqlalchemy.policy.rules import Rule

    Keys = Sequence[Sequence[object]]
    Policy = Binding | Rule
    Layer = list[tuple[Policy | Change, Keys]]
    """Expired rows of policies, and rows that the database changes when others go."""

_BATCH: Final = 200
"""Rows that one statement names by their keys: SQLite nests conditions at most 1,000 deep."""


class PurgeConditions(NamedTuple):
    """What `must_select_first` depends on; it changes with each declared model or purge.

    Attributes:
        schema: Changes with each table that is declared, or gets a policy or a rule.
        purge: The model's own declarations, as the next two.
        recorded: Whether each model that a cascade reaches is recorded.
    """

    schema: tuple[int, int]
    purge: object
    archive: object
    on_purged: object
    recorded: tuple[bool, ...]


def purge_conditions(binding: Binding, before: PurgeConditions | None = None) -> PurgeConditions:
    """Return the present conditions of a policy; `before` are those that were returned last."""
    owner, table = binding.default.owner, binding.first.table
    schema = len(table.metadata.tables), bound_tables.changes
    # Mostly a cascade reaches no model, and only another schema can change that.
    reaches_none = before is not None and before.schema == schema and not before.recorded
    return PurgeConditions(
        schema,
        getattr(owner, "__ttl_purge__", DELETE),
        getattr(owner, "__ttl_archive__", None),
        getattr(owner, "__ttl_on_purged__", None),
        () if reaches_none else Change(table).recorded(),
    )


def must_select_first(binding: Binding, dialect: Dialect) -> bool:
    """Return whether displacing rows of a table takes more than one DELETE.

    On InnoDB, a DELETE that finds nothing locks the gap where the key would be, and two such
    sessions that then insert deadlock. A plain read locks nothing. And a default that others may
    change is locked only if there is a row to delete by it.
    """
    _, purge, archive, on_purged, _ = purge_conditions(binding)
    return (
        dialect.name in MYSQL_FAMILY
        or (not binding.source.is_known and clock_of(dialect).locks_rows)
        or purge != DELETE
        or archive is not None
        or on_purged is not None
        or bool(subtables(binding.first, dialect.name))
        or bool(rules_below(binding.first.table))
        or bool(Change(binding.first.table).consequences())
    )


_here: WeakKeyDictionary[Dialect, set[tuple[str | None, str]]] = WeakKeyDictionary()
"""By dialect: the tables known to be in the engine's database, where that had to be checked."""


def referred_rows(
    consequence: Consequence,
    table: Table,
    *criteria: ColumnElement[bool],
    source: FromClause | None = None,
    sources: Sequence[FromClause] = (),
) -> Select[Any]:
    """Return a SELECT of the columns that others refer to in rows of a table.

    Args:
        consequence: Which columns these are.
        table: The table with the rows.
        criteria: The conditions for the rows.
        source: The alias of the table in the conditions, if it isn't the table itself.
        sources: All FROM elements of the conditions, if there are others.
    """
    columns, chosen = (table if source is None else source).c, select().select_from(*sources)
    chosen = chosen.where(*criteria)
    if consequence.referred[0].table is table:
        return chosen.add_columns(*(columns[column.key] for column in consequence.referred))
    sub = sub_binding_of(consequence.referred[0].table)
    assert sub is not None  # noqa: S101 (see `Change`: otherwise they are in such a table)
    own, roots = zip(*sub.keys, strict=True)
    rows = chosen.add_columns(*(columns[root.key] for root in roots))
    return select(*consequence.referred).where(in_subquery(own, rows))


def referring(consequence: Consequence, rows: Select[Any]) -> ColumnElement[bool]:
    """Return the condition for the rows that refer to the rows of a SELECT.

    It is a condition on the table that changes; or, if its expired rows have to go, on the table
    with the policy.
    """
    refers = and_(in_subquery(consequence.columns, rows), consequence.refers_to_another_row())
    return refers if consequence.change else at_root(sub_binding_of(consequence.table), refers)


def at_root(sub: SubBinding | None, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return a condition on a joined subclass's table as one on the table with the policy.

    Without a subclass it is that already.
    """
    if sub is None:
        return condition
    own, roots = zip(*sub.keys, strict=True)
    return in_subquery(roots, SweepSelect(*own).where(condition))


@dataclass(frozen=True, slots=True)
class KeyReclaimer:
    """Makes room for a write, on its connection and with its relevant options.

    With `current` it reads rows as they are now, not as the transaction's snapshot shows them
    (InnoDB). This locks them, and the gap where there are none.
    """

    connection: Connection
    options: Mapping[str, Any] | None = None
    current: bool = False

    @classmethod
    def of(cls, context: DefaultExecutionContext, *, current: bool = False) -> KeyReclaimer:
        """Return one for the statement of an execution context."""
        schemas = context.execution_options.get("schema_translate_map")
        options = None if schemas is None else {"schema_translate_map": schemas}
        return cls(context.root_connection, options, current)

    @property
    def dialect(self) -> Dialect:
        """The dialect of the connection."""
        return self.connection.dialect

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """Execute a statement on the write's connection, with its options."""
        return self.connection.execute(statement, parameters, execution_options=self.options)

    def read(self, table: Table, rows: Executable, parameters: Any = None) -> CursorResult[Any]:
        """Read rows of a table, some of which are then deleted."""
        if self.dialect.name == "sqlite":
            # A transaction that began with a read may be unable to write. By default the driver
            # begins at the first write, but not with `autocommit=False` (Python 3.12), nor where
            # SQLAlchemy's recipe makes it send BEGIN.
            driver: Any = self.connection.connection.driver_connection
            begins = driver.isolation_level is None or getattr(driver, "autocommit", -1) is False
            if begins and driver.in_transaction:
                take_file(self.connection, table)
        return self.execute(rows, parameters)

    def expired_rows(self, policy: Policy, columns: Iterable[ColumnElement[Any]]) -> Select[Any]:
        """Return a SELECT of expired rows."""
        if isinstance(policy, Binding):
            expired = expired_in(self.connection, policy)
        else:
            expired = _expired_by_rule(self.connection, policy)
        rows = SweepSelect(*columns).where(expired)
        return rows.with_for_update(read=True) if self.current else rows

    def displace(self, binding: Binding, criterion: ColumnElement[bool]) -> int:
        """Delete the expired rows of a table that meet a condition, and expired rows below them.

        Returns how many rows were deleted. If a live row refers to one, this raises IntegrityError.
        """
        criterion, binding = on_first(criterion, binding), binding.first
        # InnoDB locks every row that a DELETE reads: by primary keys no other row, but the whole
        # table if MariaDB compares with a subquery. (And MariaDB's DELETE accepts no WITH.)
        if self.dialect.name in MYSQL_FAMILY or Change(binding.table).consequences():
            return self._displace_by_key(binding, criterion)
        if must_select_first(binding, self.dialect):
            first = next(iter(binding.table.c))
            rows = self.expired_rows(binding, [first]).where(criterion)
            if self.read(binding.table, rows.limit(1)).first() is None:
                return 0
        self.lock_defaults(binding)
        return self._purge(binding, criterion)

    def displace_ruled(self, rule: Rule, criterion: ColumnElement[bool]) -> int:
        """Do the same for rows of a table with a rule."""
        return self._displace_by_key(rule, criterion)

    def _displace_by_key(self, policy: Policy, criterion: ColumnElement[bool]) -> int:
        total = 0
        while True:
            keys = self._keys(policy, criterion, limit=_BATCH)
            deleted = self._clear(policy, keys)
            total += deleted
            if not deleted or len(keys) < _BATCH:
                return total

    def lock_defaults(self, *bindings: Binding) -> None:
        """Keep the defaults unchanged by which rows are about to be deleted."""
        lock_defaults(self.connection, bindings, self.execute)

    def make_way(self, consequence: Consequence, rows: Select[Any]) -> int:
        """Delete the expired rows that block a change of others; return how many.

        The SELECT finds the columns of those others to which rows refer.
        """
        if not (consequence.is_certain or self._is_here(consequence.table)):
            return 0
        if self.current:  # also in the subquery: see _as_now()
            rows = rows.with_for_update(read=True)
        child, refers = consequence.child, referring(consequence, rows)
        if isinstance(child, Change):
            return self.clear_below(child, refers)
        if isinstance(child, Binding):
            return self.displace(child, refers)
        return self.displace_ruled(child, refers)

    def clear_below(self, change: Change, criterion: ColumnElement[bool]) -> int:
        """Delete the expired rows below others that are about to change; return how many.

        The condition finds those others.
        """
        if not change.consequences():
            return 0
        keys = self._keys(change, criterion)
        return sum(self._clear(change, some) for some in chunks(keys, _BATCH))

    def _clear(self, changed: Policy | Change, keys: Keys) -> int:
        """Delete those of some rows that are expired, after the expired rows below them."""
        if not keys:
            return 0
        depends = depends_on_zone(self.connection, changed.table.metadata)
        with in_utc(self.connection) if depends else nullcontext():  # `_keys` has read UTC
            layers = self._layers(changed, keys)
            below = [part for layer in reversed(layers) for part in layer]
            judged = [part.table for part, rows in below if rows and not isinstance(part, Change)]
            self.lock_defaults(*filter(None, map(root_of, judged)))
            deleted = 0
            for kind, parts in groupby(below, key=lambda part: type(part[0])):
                if kind is Binding:
                    deleted += self._purge_all(cast("list[tuple[Binding, Keys]]", list(parts)))
                elif kind is not Change:
                    for rule, rows in cast("Iterable[tuple[Rule, Keys]]", parts):
                        with self._purging(rule.table):
                            deleted += rule.remove(self.connection, self.execute, rows)
            return deleted

    def _purge_all(self, doomed: Sequence[tuple[Binding, Keys]]) -> int:
        # Whether no row can go first: they form a ring, or on InnoDB may form one.
        if self.dialect.name in MYSQL_FAMILY:
            is_ring = any(ties(list(dict.fromkeys(below.table for below, _ in doomed))))
        else:
            # Rows of a ring occur twice; so does a row that refers to two others, which does no
            # harm.
            every = [(below.table, tuple(key)) for below, keys in doomed for key in keys]
            is_ring = len(set(every)) < len(every)
        if is_ring:
            return self._purge_together(doomed)
        return sum(
            self._purge(below, is_one_of(key_columns(below.table), some))
            for below, rows in doomed
            for some in chunks(rows, _BATCH)
        )

    def _purge_together(self, doomed: Sequence[tuple[Binding, Keys]]) -> int:
        rows: dict[Table, tuple[Binding, dict[Sequence[object], None]]] = {}
        for below, keys in doomed:
            rows.setdefault(below.table, (below, {}))[1].update(dict.fromkeys(map(tuple, keys)))
        connection = self.connection
        with self._purging(list(rows)[-1]):
            parts = [
                Together(
                    Removal(connection, below, mode_of(below).hooks, reason="displaced"),
                    list(keys),
                )
                for below, keys in rows.values()
            ]
            take_file(connection, next(iter(rows)))
            for part in parts:
                part.choose(waits=True)
            deleted = remove_together(parts)
            for part in parts:
                part.removal.report()
            return deleted

    def _is_here(self, table: Table) -> bool:
        """Return whether a table is in the database of this connection."""
        name = compat.place_of(self.options or {}, table)
        known = _here.setdefault(self.dialect, set())
        if name in known:
            return True
        if not clock_of(self.dialect).is_inspected:
            return inspect(self.connection).has_table(table.name, name[0])
        try:
            stored = inspect(self.connection).get_columns(table.name, name[0])
        except NoSuchTableError:  # not remembered, since it may be created at any time
            return False
        is_here = {column.name for column in table.c} <= {column["name"] for column in stored}
        if is_here:
            known.add(name)
        return is_here

    def _purge(self, binding: Binding, criterion: ColumnElement[bool]) -> int:
        """Archive and delete rows as their model declares."""
        doomed = and_(expired_in(self.connection, binding, locking=True), criterion)
        with self._purging(binding.table):
            return _purge_displaced(self.connection, binding, doomed)

    @contextmanager
    def _purging(self, table: Table) -> Iterator[None]:
        """Give the connection the options of the write, and a foreign key's error a hint."""
        connection, options = self.connection, self.options or {}
        before = connection.get_execution_options()
        connection.execution_options(**options)
        try:
            with with_hint(table):
                yield
        finally:
            connection.execution_options(**{name: before.get(name) for name in options})

    def _keys(
        self,
        changed: Policy | Change,
        criterion: ColumnElement[bool],
        limit: int | None = None,
        *,
        with_live: bool = False,
    ) -> Keys:
        """Return the columns in `_identity` of expired rows, or of rows that the database changes.

        With `with_live`, return those of live rows too.
        """
        columns: Sequence[ColumnElement[Any]] = _identity(changed)
        if depends_on_zone(self.connection, changed.table.metadata):
            columns = shown_in_utc(columns)
        if with_live or isinstance(changed, Change):
            rows: Select[Any] = SweepSelect(*columns)
            rows = rows.with_for_update(read=True) if self.current else rows
        else:
            rows = self.expired_rows(changed, columns)
        return self.read(changed.table, rows.where(criterion).limit(limit)).all()

    def _layers(self, changed: Policy | Change, keys: Keys) -> list[Layer]:
        """Return rows, then the rows below that have to go or change before these, and so on.

        A row that refers to several is in several layers; the last one counts. Rows that refer to
        each other in a circle would go on for ever, so there are no more layers than rows.
        """
        layers: list[Layer] = [[(changed, keys)]]
        rows = {(changed.table, tuple(key)) for key in keys}
        displaces = not isinstance(changed, Change)
        while len(layers) <= len(rows) and (below := self._below(layers[-1], displaces=displaces)):
            layers.append(below)
            rows.update((child.table, tuple(key)) for child, keys in below for key in keys)
        return layers

    def _below(self, layer: Layer, *, displaces: bool) -> Layer:
        """Return the rows that have to go or change before those of a layer, each of them once.

        Several parts of a layer can lead to the same rows: those of a table that refers to itself
        are deleted, and change. If each part listed them, the next layer would list them twice as
        often.
        """
        below: dict[Table | Change, tuple[Policy | Change, dict[object, Sequence[object]]]] = {}
        for parent, keys in layer:
            change = parent if isinstance(parent, Change) else Change(parent.table)
            for consequence in change.consequences():
                if rows := self._referring(consequence, parent, keys):
                    child = consequence.child
                    name = child if isinstance(child, Change) else child.table
                    _, known = below.setdefault(name, (child, {}))
                    known.update((tuple(key), key) for key in rows)
                if displaces and consequence.cascades:
                    self._check_live(consequence, parent, keys, rows)
        return [(child, list(known.values())) for child, known in below.values()]

    def _referring(self, consequence: Consequence, parent: Policy | Change, keys: Keys) -> Keys:
        if not (consequence.is_certain or self._is_here(consequence.table)):
            return []
        rows: list[Sequence[object]] = []
        for refers in self._conditions(consequence, parent, keys):
            rows += self._keys(consequence.child, refers)
        return rows

    def _check_live(
        self, consequence: Consequence, parent: Policy | Change, keys: Keys, expired: Keys
    ) -> None:
        """Raise an error if a cascade would delete a live row that must be archived or reported.

        A user who deletes the row that it refers to may do so; here, the write is about another
        row.
        """
        if not (consequence.is_certain or self._is_here(consequence.table)):
            return
        known, child = set(map(tuple, expired)), consequence.child
        for refers in self._conditions(consequence, parent, keys):
            rows = self._keys(child, refers, len(known) + 1, with_live=True)
            if not known.issuperset(map(tuple, rows)):
                names = (parent.table.fullname, child.table.fullname)
                raise kept_by_live_rows(self.dialect, *names)

    def _conditions(
        self, consequence: Consequence, parent: Policy | Change, keys: Keys
    ) -> Iterator[ColumnElement[bool]]:
        """Yield the conditions for the rows that refer to some rows, a batch of these at a time."""
        for some in chunks(keys, _BATCH):
            rows = is_one_of(_identity(parent), some)
            referred = referred_rows(consequence, parent.table, rows)
            refers = referring(consequence, referred.options(include_expired()))
            yield _as_now(refers) if self.current else refers


def _purge_displaced(connection: Connection, binding: Binding, doomed: ColumnElement[bool]) -> int:
    """Delete rows that are in the way of a write, in the write's transaction; return how many.

    They are archived as usual, and the hooks of their model that run inside the transaction are
    called. Hooks after the commit are not: the application commits. It raises IntegrityError if a
    live row refers to one of them and the foreign key restricts it, and HookError if the archive
    rejects one or a hook fails.
    """
    removal = Removal(connection, binding, mode_of(binding).hooks, reason="displaced")
    if removal.takes_statements:
        copy = removal.mode.copy
        try:
            deleted = removal.by_statement(PurgeDelete(binding.table).where(doomed))
        except DBAPIError as error:
            # The error is the archive's, unless a referring row blocks the DELETE.
            if copy is None or is_passing(error) or is_restricted(error):
                raise
            raise removal.not_archived(copy, error) from error
    else:
        take_file(connection, binding.table)
        deleted = removal.by_key(removal.choose([doomed], waits=True))
    removal.report()
    return deleted


def _expired_by_rule(connection: Connection, rule: Rule) -> ColumnElement[bool]:
    """Return the condition for expired rows of a table with a rule, for our own statements."""
    dialect = connection.dialect
    predicate = Predicate(clock_of(dialect), writing=True)
    rows = LiveRows(
        lambda binding, source, _: predicate.live(binding, binding.columns_of(source)),
        partial(binding_of_source, dialect=dialect),
    )
    return not_(and_(*rows.where([rule.table])))


def _as_now(clause: ColumnElement[bool]) -> ColumnElement[bool]:
    """Let subqueries see rows as they are now, as the locking SELECT around them does.

    InnoDB reads the transaction's snapshot in a subquery that doesn't lock by itself.
    """
    return cloned_traverse(clause, {}, {"select": compat.lock_for_share})


def _identity(changed: Policy | Change) -> Sequence[Column[Any]]:
    """Return the columns that identify a row: its key, or if it only changes, the referred ones."""
    if not isinstance(changed, Change):
        return key_columns(changed.table)
    referred = [column for below in changed.consequences() for column in below.referred]
    return list(dict.fromkeys(referred))


@contextmanager
def with_hint(table: Table) -> Iterator[None]:
    """Let a foreign key's error say that an expired row couldn't be deleted."""
    try:
        yield
    except DBAPIError as error:  # an IntegrityError, but with pg8000
        if is_restricted(error):
            error.add_detail(
                f"An expired row of {table.fullname!r} blocks this statement and can't "
                "be deleted, because another row refers to it. Let that foreign key cascade "
                "(ON DELETE CASCADE or SET NULL), or delete the referring row first; see "
                "docs/keys.md#what-cant-make-room."
            )
        raise
