"""What a model says of its expired rows: whether they are archived, and who hears of them.

It is read when rows are purged (`mode_of`), since an archive may be declared after its model. With
joined inheritance a row continues in sub-tables. These refer to the table at the root, so what they
hold of a row goes first: see `subtables`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import inspect

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.binding import SubBinding, all_subtables, binding_of, root_binding_of
from ttl_odm.sqlalchemy.policy.foreign_keys import is_recorded
from ttl_odm.sqlalchemy.policy.rules import rule_of
from ttl_odm.sqlalchemy.purge.archive import Copy
from ttl_odm.sqlalchemy.time.timestamps import (
    has_timestamp,
    has_timestamp_key,
    timestamp_tables,
)
from ttl_odm.sweeper import Hooks
from ttl_odm.sweeper.declarations import Archive, archive_of, hooks_of, purge_of

if TYPE_CHECKING:
    from sqlalchemy import Connection, MetaData

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sweeper import ArchiveSink

DELETE: Final = "delete"
ORM: Final = "orm"
PURGES: Final[tuple[Literal["delete", "orm"], ...]] = (DELETE, ORM)
"""What ``__ttl_purge__`` may be: ``"orm"`` deletes through a session, with the ORM's cascades and
events."""


@dataclass(frozen=True, slots=True)
class Mode:
    """What a model says of its expired rows: where they are kept, and whom to call.

    With `orm` they are deleted through a session, as objects of that class.
    """

    copy: Copy | None = None
    sink: ArchiveSink | None = None
    orm: type | None = None
    hooks: Hooks = field(default_factory=Hooks)


def mode_of(binding: Binding) -> Mode:
    """Read what the owner of a table's policy declares; TTLConfigurationError if it can't be."""
    owner = binding.default.owner
    purge, archive = purge_of(owner, PURGES), archive_of(owner)
    hooks = hooks_of(owner, binding.table.fullname)
    if archive is None:
        return Mode(orm=owner if purge == ORM else None, hooks=hooks)
    where = f"{owner.__name__}.__ttl_archive__"
    if all_subtables(binding):
        raise TTLConfigurationError(
            f"{where}: rows of joined subclasses are spread over several tables, which can't be "
            f"archived; write __ttl_purge__ = {ORM!r}, and archive in an ORM event."
        )
    if purge == ORM:
        from ttl_odm.combinations import combination  # noqa: PLC0415 (only if it is wrong)

        line = combination("sqlalchemy", "archive", "orm")
        raise TTLConfigurationError(f"{where}: {line.reason}; {line.instead}.")
    if isinstance(archive, Archive):
        return Mode(copy=Copy.of(binding, archive, where), hooks=hooks)
    return Mode(sink=archive, hooks=hooks)


def depends_on_zone(connection: Connection, metadata: MetaData) -> bool:
    """Whether the session's time zone matters where rows of a MetaData are removed.

    It does on MariaDB and MySQL if a ``TIMESTAMP`` is in a key, in what leads rows to a parent, or
    in a row that is archived; see `ttl_odm.sqlalchemy.time.timestamps`.
    """
    if connection.dialect.name not in MYSQL_FAMILY:
        return False
    tables = timestamp_tables(metadata)
    return (
        has_timestamp_key(tables)
        or any(
            getattr(binding.default.owner, "__ttl_archive__", None) is not None
            for binding in filter(None, map(binding_of, tables))
        )
        or any(has_timestamp(rule.links().own) for rule in filter(None, map(rule_of, tables)))
    )


def subtables(binding: Binding, dialect: str) -> list[SubBinding]:
    """The sub-tables that the database doesn't see to.

    Where the foreign key says ON DELETE CASCADE it does; on SQLite only if the connection was told
    to enforce foreign keys, which can't be relied on.
    """

    def cascades(sub: SubBinding) -> bool:
        own = {column for column, _ in sub.keys}
        return any(
            (constraint.ondelete or "").upper() == "CASCADE"
            for constraint in sub.table.foreign_key_constraints
            if own.issuperset(constraint.columns)
        )

    return [sub for sub in all_subtables(binding) if dialect == "sqlite" or not cascades(sub)]


def orm_takes_along(owner: type, hooks: Hooks) -> bool:
    """Whether cascades of the ORM delete rows of models that are archived or reported to hooks."""
    waiting, seen = [owner], {owner}
    while waiting:
        mapper: Any = inspect(waiting.pop())
        for relation in mapper.relationships:
            target = relation.mapper.class_
            if not relation.cascade.delete or relation.viewonly or target in seen:
                continue
            binding = root_binding_of(relation.mapper.local_table)
            if binding is not None and is_recorded(binding, hooks):
                return True
            seen.add(target)
            waiting += [target, *(sub.class_ for sub in relation.mapper.self_and_descendants)]
    return False
