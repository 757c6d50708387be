"""`Copy`: how expired rows are copied to another table, in the transaction that deletes them.

An `Archive` names the table, which gets the columns of the same names. `removal` decides whether
and when rows are copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, TableClause, inspect
from sqlalchemy import column as bare_column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Mapper
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper.hooks import Archive


class UTCNow(FunctionElement[Any]):
    """The database's now for a column of dates, in UTC."""

    inherit_cache = True


class NaiveUTCNow(UTCNow):
    """The database's now for a column without a time zone, in UTC."""

    inherit_cache = True


@compiles(UTCNow)
def _render_utc_now(_: UTCNow, compiler: SQLCompiler, **__: object) -> str:
    clock = clock_of(compiler.dialect)
    return clock.date(clock.at_write)


@compiles(NaiveUTCNow, "postgresql")
def _render_naive_utc_now(_: NaiveUTCNow, compiler: SQLCompiler, **__: object) -> str:
    # PostgreSQL would store the wall time of the session's time zone.
    return f"({clock_of(compiler.dialect).at_write} AT TIME ZONE 'UTC')"


@dataclass(frozen=True, slots=True)
class Copy:
    """An archive, the columns that it gets from a table, and further values by column.

    The archive is a bare table without defaults: in an INSERT from a SELECT, SQLAlchemy would
    evaluate a Python default once for all rows, and the gate would look for keys to free.
    """

    archive: TableClause
    columns: list[Column[object]]
    extra: dict[str, ColumnElement[Any]] = field(default_factory=dict)
    has_own_key: bool = True
    """Whether the archive can keep a key that is used, expires, and is used again."""

    @classmethod
    def of(cls, binding: Binding, archive: Archive, where: str) -> Copy:
        """Find the columns that an archive has in common with a table."""
        table, into = binding.table, _table_of(archive)
        # An archive with a ttl of its own keeps rows from the moment when it gets them; a date that
        # rows bring along is copied.
        kept = binding_of(into)
        lifetime = () if kept is None or not kept.stamps else (kept.last_modified, kept.override)
        own = {column.name for column in lifetime if column is not None}
        columns: list[Column[object]] = [
            column for column in table.c if column.name in into.c and column.name not in own
        ]
        missing = [column.name for column in table.primary_key if column not in columns]
        if into is table or missing:
            problem = "is the table itself" if into is table else f"has no column {missing[0]!r}"
            raise TTLConfigurationError(f"{where}: the archive {into.fullname!r} {problem}.")
        extra: dict[str, ColumnElement[Any]] = {}
        if archive.archived_at is not None:
            if archive.archived_at not in into.c:
                raise TTLConfigurationError(
                    f"{where}: the archive {into.fullname!r} has no column {archive.archived_at!r}."
                )
            kind = into.c[archive.archived_at].type
            utc_now = UTCNow() if getattr(kind, "timezone", False) else NaiveUTCNow()
            extra[archive.archived_at] = Stamp() if isinstance(kind, LastModified) else utc_now
        bare = compat.NamedTable(
            into.name,
            *(bare_column(column.name, column.type) for column in into.c),
            schema=into.schema,
        )
        own, theirs = ({column.name for column in one.primary_key} for one in (into, table))
        return cls(bare, columns, extra, has_own_key=not own or not own <= theirs)

    @property
    def names(self) -> list[str]:
        """The names of the archive's columns: those of `columns`, then those of `extra`."""
        return [*(str(column.name) for column in self.columns), *self.extra]


def _table_of(archive: Archive) -> Table:
    into = archive.into
    if callable(into) and not isinstance(into, type):
        into = into()
    mapper: Any = inspect(into, raiseerr=False) if isinstance(into, type) else None
    table = mapper.local_table if isinstance(mapper, Mapper) else into
    if isinstance(table, Table):
        return table
    raise TTLConfigurationError(
        f"Archive({archive.into!r}): pass a Table, a model, or a function that returns one of "
        "these."
    )
