"""Deleting the expired rows that stand in the way of a write, in the write's transaction.

An expired row doesn't exist, so it may neither hold a key that somebody wants nor refer to a
row that somebody deletes. Here is found which rows have to go, what refers to a row before the
row, and on InnoDB without a lock where there is none. How they go, archived and reported to hooks,
is as in a sweep: `ttl_odm.sqlalchemy.purge.removal`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Table, and_, select
from sqlalchemy.exc import IntegrityError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.binding import Binding, bound_tables, key_columns
from ttl_odm.sqlalchemy.policy.foreign_keys import RestrictingKey, restricting_children
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.purge.removal import DELETE, expired_in, purge_displaced, subtables
from ttl_odm.sqlalchemy.purge.statements import in_subquery, is_one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, CursorResult, Executable, Select
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext

    Keys = Sequence[Sequence[Any]]
    Layer = list[tuple[Binding, Keys]]

_BATCH: Final = 200
"""Rows that one statement names by their keys: SQLite nests conditions at most 1,000 deep."""


def purge_conditions(binding: Binding) -> tuple[object, ...]:
    """What `must_select_first` depends on: it changes with each model or purge declared."""
    owner = binding.default.owner
    return (
        len(binding.table.metadata.tables),
        len(bound_tables),
        getattr(owner, "__ttl_purge__", DELETE),
        getattr(owner, "__ttl_archive__", None),
        getattr(owner, "__ttl_on_purged__", None),
    )


def must_select_first(binding: Binding, dialect: Dialect) -> bool:
    """Whether it takes more than one DELETE to displace rows of a table.

    A DELETE that finds nothing locks the gap where the key would be, on InnoDB, and two such
    sessions that then insert deadlock. A plain read locks nothing.
    """
    *_, purge, archive, on_purged = purge_conditions(binding)
    return (
        dialect.name in MYSQL_FAMILY
        or purge != DELETE
        or archive is not None
        or on_purged is not None
        or bool(subtables(binding, dialect.name))
        or any(True for _ in restricting_children(binding.table))
    )


@dataclass(frozen=True, slots=True)
class KeyReclaimer:
    """Makes room for a write, on its connection and with those of its options that matter here.

    With `current` it looks at rows as they are now. (InnoDB: not as the transaction's snapshot
    shows them. This locks them, and the gap where there are none.)
    """

    connection: Connection
    options: Mapping[str, Any] | None = None
    current: bool = False

    @classmethod
    def of(cls, context: DefaultExecutionContext, *, current: bool = False) -> KeyReclaimer:
        """For the statement of an execution context."""
        schemas = context.execution_options.get("schema_translate_map")
        options = None if schemas is None else {"schema_translate_map": schemas}
        return cls(context.root_connection, options, current)

    @property
    def dialect(self) -> Dialect:
        """The dialect of the connection."""
        return self.connection.dialect

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """Execute a statement where the write will be."""
        return self.connection.execute(statement, parameters, execution_options=self.options)

    def expired_rows(self, binding: Binding, columns: Iterable[ColumnElement[Any]]) -> Select[Any]:
        """A SELECT of expired rows."""
        rows = select(*columns).where(expired_in(self.connection, binding))
        if self.current:
            rows = rows.with_for_update(read=True)
        return rows.options(include_expired())

    def displace(self, binding: Binding, criterion: ColumnElement[bool]) -> int:
        """Delete the expired rows of a table that a condition finds, and expired rows below them.

        Returns how many of its own are gone. It is an IntegrityError if a live row refers to one.
        """
        if any(True for _ in restricting_children(binding.table)):
            total = 0
            while True:
                keys = self._keys(binding, criterion, limit=_BATCH)
                deleted = 0
                # From the last layer on; what counts is how many of the first are gone.
                for layer in reversed(self._layers(binding, keys)):
                    deleted = sum(
                        self._purge(child, is_one_of(key_columns(child.table), some))
                        for child, rows in layer
                        for some in _batches(rows)
                    )
                total += deleted
                if not deleted or len(keys) < _BATCH:
                    return total
        if must_select_first(binding, self.dialect):
            first = next(iter(binding.table.c))
            rows = self.expired_rows(binding, [first]).where(criterion)
            if self.execute(rows.limit(1)).first() is None:
                return 0
        return self._purge(binding, criterion)

    def _purge(self, binding: Binding, criterion: ColumnElement[bool]) -> int:
        """Archive and delete as the model says."""
        connection, options = self.connection, self.options
        doomed = and_(expired_in(connection, binding), criterion)
        with with_hint(binding.table):
            if not options:
                return purge_displaced(connection, binding, doomed)
            before = connection.get_execution_options()
            connection.execution_options(**options)
            try:
                return purge_displaced(connection, binding, doomed)
            finally:
                connection.execution_options(**{name: before.get(name) for name in options})

    def _keys(
        self, binding: Binding, criterion: ColumnElement[bool], limit: int | None = None
    ) -> Keys:
        rows = self.expired_rows(binding, key_columns(binding.table)).where(criterion).limit(limit)
        return self.execute(rows).all()

    def _layers(self, binding: Binding, keys: Keys) -> list[Layer]:
        """Rows, then the expired rows that refer to them, then those that refer to these, ...

        A row that refers to several is in several layers; the last one counts. Rows that refer to
        each other in a circle would go on for ever, hence no more layers than rows.
        """
        layers = [[(binding, keys)]]
        rows = {(binding.table, tuple(key)) for key in keys}
        while len(layers) <= len(rows):
            below = [
                (child, referring)
                for parent, some in layers[-1]
                for child, key in restricting_children(parent.table)
                if (referring := self._referring(child, key, parent, some))
            ]
            if not below:
                break
            layers.append(below)
            rows.update((child.table, tuple(key)) for child, keys in below for key in keys)
        return layers

    def _referring(self, child: Binding, key: RestrictingKey, parent: Binding, keys: Keys) -> Keys:
        columns = key_columns(parent.table)
        referring: list[Sequence[Any]] = []
        for some in _batches(keys):
            referred = select(*key.referred_columns).where(is_one_of(columns, some))
            refers = in_subquery(key.columns, referred.options(include_expired()))
            referring += self._keys(child, and_(refers, key.refers_to_another_row()))
        return referring


def _batches(keys: Keys) -> Iterator[Keys]:
    return (keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH))


@contextmanager
def with_hint(table: Table) -> Iterator[None]:
    """Let an IntegrityError say that it was an expired row which couldn't be deleted."""
    try:
        yield
    except IntegrityError as error:
        error.add_detail(
            f"An expired row of {table.fullname!r} is in the way of this statement and can't be "
            "deleted, because another row refers to it. Let that foreign key cascade "
            "(ON DELETE CASCADE or SET NULL), or delete the referring row first."
        )
        raise
