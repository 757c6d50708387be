"""What becomes of expired rows, as a model declares it, in terms of its table.

``__ttl_purge__`` is ``"delete"`` (the default) or ``"orm"``, which deletes through a session so
that the ORM's cascades and events run. ``__ttl_archive__`` is an `Archive`, or a sink of one's own
(see `ArchiveSink`). Read when rows are purged, since an archive may be declared after the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import ColumnClause, Table, TableClause, column, inspect
from sqlalchemy import table as bare_table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Mapper
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.binding import binding_of
from ttl_odm.sqlalchemy.purge.subtables import all_subtables
from ttl_odm.sqlalchemy.rewrite.stamps import Stamp
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.column_types import LastModified
from ttl_odm.sweeper.declarations import Archive, archive_of, hooks_of, purge_of
from ttl_odm.sweeper.hooks import ArchiveSink, Hooks

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement

    from ttl_odm.sqlalchemy.policy.binding import Binding

DELETE: Final = "delete"
ORM: Final = "orm"
PURGES: Final[tuple[Literal["delete", "orm"], ...]] = (DELETE, ORM)
"""What ``__ttl_purge__`` may be."""


class UTCNow(FunctionElement[Any]):
    """The database's now for a column of dates, in UTC."""

    inherit_cache = True


class NaiveUTCNow(UTCNow):
    """The same for a column that knows no time zones."""

    inherit_cache = True


@compiles(UTCNow)
def _render_utc_now(_: UTCNow, compiler: Any, **__: Any) -> str:
    clock = clock_of(compiler.dialect)
    return clock.date(clock.at_write)


@compiles(NaiveUTCNow, "postgresql")
def _render_naive_utc_now(_: NaiveUTCNow, compiler: Any, **__: Any) -> str:
    # PostgreSQL would store what a clock shows in the session's time zone.
    return f"({clock_of(compiler.dialect).at_write} AT TIME ZONE 'UTC')"


@dataclass(frozen=True, slots=True)
class Copy:
    """An archive and the columns that it gets from a table.

    Attributes:
        archive: Without what SQLAlchemy knows of its defaults: in an INSERT from a SELECT it would
            evaluate one of Python's once for all rows, and the gate would look for keys to free.
        columns: The columns of the table that it gets.
        extra: What else it gets, by column.
    """

    archive: TableClause
    columns: list[Column[Any]]
    extra: dict[str, ColumnElement[Any]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The archive's columns, those of `columns` before those of `extra`."""
        return [*(_name(each) for each in self.columns), *self.extra]


def _name(each: Any) -> str:
    return str(each.name)


@dataclass(frozen=True, slots=True)
class Mode:
    """What a model says of its expired rows.

    Attributes:
        copy: To be copied to a table.
        sink: To be given to a sink.
        orm: To be deleted through a session, as objects of this class.
        hooks: Whom to tell.
    """

    copy: Copy | None = None
    sink: ArchiveSink | None = None
    orm: type | None = None
    hooks: Hooks = field(default_factory=Hooks)


def mode_of(binding: Binding) -> Mode:
    """Read what the owner of a table's policy declares.

    Raises:
        TTLConfigurationError: It can't be; the message says what to write instead.
    """
    owner = binding.default.owner
    purge, archive = purge_of(owner, PURGES), archive_of(owner)
    hooks = hooks_of(owner, binding.table.fullname)
    if archive is None:
        return Mode(orm=owner if purge == ORM else None, hooks=hooks)
    where = f"{owner.__name__}.__ttl_archive__"
    if all_subtables(binding):
        raise TTLConfigurationError(
            f"{where}: rows of joined subclasses are in several tables, which no archive takes; "
            f"write __ttl_purge__ = {ORM!r} and archive in an event of the ORM."
        )
    if purge == ORM:
        raise TTLConfigurationError(
            f"{where}: rows that the ORM deletes aren't archived; write __ttl_purge__ = "
            f"{DELETE!r}, or archive in an event of the ORM."
        )
    if isinstance(archive, Archive):
        return Mode(copy=_copy_of(binding, archive, where), hooks=hooks)
    return Mode(sink=archive, hooks=hooks)


def _table_of(archive: Archive) -> Table:
    into = archive.into
    if callable(into) and not isinstance(into, type):
        into = into()
    mapper: Any = inspect(into, raiseerr=False) if isinstance(into, type) else None
    table = mapper.local_table if isinstance(mapper, Mapper) else into
    if isinstance(table, Table):
        return table
    raise TTLConfigurationError(
        f"Archive({archive.into!r}): give a Table, a model, or a function that returns one."
    )


def _lifetime_columns(archive: Table) -> set[str]:
    """The columns that an archive with a ttl keeps its rows' own lifetimes in."""
    found = binding_of(archive)
    if found is None or not found.stamps:  # a date that rows bring along is copied
        return set()
    override = set() if found.override is None else {str(found.override.name)}
    return {str(found.last_modified.name), *override}


def _copy_of(binding: Binding, archive: Archive, where: str) -> Copy:
    table, into = binding.table, _table_of(archive)
    # An archive with a ttl of its own keeps rows from the moment when it gets them.
    its_own = _lifetime_columns(into)
    columns: list[Column[Any]] = [
        each for each in table.c if each.name in into.c and each.name not in its_own
    ]
    missing = [each.name for each in table.primary_key if each not in columns]
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
    its_columns: list[ColumnClause[Any]] = [column(each.name, each.type) for each in into.c]
    return Copy(bare_table(into.name, *its_columns, schema=into.schema), columns, extra)
