"""What a model declares of its expired rows besides ``__ttl__``, read alike by every adapter.

``__ttl_purge__`` says who deletes, or how; ``__ttl_archive__`` where rows are kept;
``__ttl_on_purged__`` who hears of them; ``__ttl_sweep__`` how the sweeper finds them. They are read
when they are needed, since an archive may be declared after the model.

What an archive is in a database (a table, a collection) and whether it fits is for the adapter's
purge room. This module must not know any database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.hooks import ArchiveSink, Hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

PurgeT = TypeVar("PurgeT", bound=str)
SweepBy: TypeAlias = Literal["index", "scan"]
"""How expired rows are found: by the sweeper's indexes, or by reading everything in slices."""

_UNREAD: Final = object()


@dataclass(frozen=True, slots=True)
class Archive:
    """Copy rows to another table or collection in the transaction that deletes them.

    On SQL databases, columns are matched by name. The archive must have at least the primary key;
    it receives every column it shares with the model, and its other columns get the server's
    default. Documents are copied byte for byte. If the archive has a ttl of its own, it counts
    from when a row is archived.

    Attributes:
        into: The archive. On SQLAlchemy a Table, a model, or a function without arguments that
            returns one; on Beanie a collection's name in the same database, or a document class;
            on Django a model, or its label.
        archived_at: The column or field that is set to the time of archiving, in UTC; None for
            none.
    """

    into: Any
    archived_at: str | None = None


def declarations(
    *, purge: str | None, archive: object, on_purged: object, sweep: str | None
) -> dict[str, object]:
    """What ``enable()`` sets on a class beside ``__ttl__``; None leaves what the class has."""
    attributes = {
        "__ttl_purge__": purge,
        "__ttl_archive__": archive,
        "__ttl_on_purged__": on_purged,
        "__ttl_sweep__": sweep,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def purge_of(owner: type, possible: Sequence[PurgeT], declared: object = _UNREAD) -> PurgeT:
    """Who deletes the expired rows of a model, or how: one of those possible, the default first.

    It is read from the class's ``__ttl_purge__``, unless it was declared elsewhere.
    """
    value = getattr(owner, "__ttl_purge__", possible[0]) if declared is _UNREAD else declared
    for purge in possible:
        if isinstance(value, str) and value == purge:
            return purge
    fix = f"write {' or '.join(map(repr, possible))}"
    if isinstance(value, (Archive, ArchiveSink)):
        fix = f"to archive rows, declare __ttl_archive__. Here {fix}"
    raise TTLConfigurationError(f"{owner.__name__}.__ttl_purge__ = {value!r}: {fix}.")


def archive_of(owner: type) -> Archive | ArchiveSink | None:
    """Where the expired rows of a model are kept; None for nowhere."""
    value: object = getattr(owner, "__ttl_archive__", None)
    if value is None or isinstance(value, Archive):
        return value
    if isinstance(value, ArchiveSink) and not isinstance(value, type):
        return value
    raise TTLConfigurationError(
        f"{owner.__name__}.__ttl_archive__ = {value!r}: write Archive(...), or an object with a "
        "method write()."
    )


def hooks_of(owner: type, table: str) -> Hooks:
    """Whom a model calls for its purged rows, for its table."""
    return Hooks.of({table: getattr(owner, "__ttl_on_purged__", None)})


def reject_partitions(owner: type, declared: object = _UNREAD) -> None:
    """Reject ``__ttl_partition__`` where the adapter has no partitions.

    Raises:
        TTLConfigurationError: It is declared.
    """
    name = "__ttl_partition__"
    value = getattr(owner, name, None) if declared is _UNREAD else declared
    if value is not None:
        from ttl_odm.combinations import CAPABILITIES  # noqa: PLC0415 (only if it is wrong)

        why = CAPABILITIES["partitions"].absent
        raise TTLConfigurationError(
            f"{owner.__name__}.{name} = {value!r}: {why}; leave {name} out."
        )


def sweep_of(owner: type) -> SweepBy:
    """How the sweeper finds the expired rows of a model."""
    value: object = getattr(owner, "__ttl_sweep__", "index")
    if value == "index":
        return "index"
    if value == "scan":
        return "scan"
    raise TTLConfigurationError(
        f"{owner.__name__}.__ttl_sweep__ = {value!r}: write 'index' or 'scan'."
    )
