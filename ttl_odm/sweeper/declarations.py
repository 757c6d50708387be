"""What a model declares about its expired rows besides ``__ttl__``, for every adapter.

``__ttl_purge__`` is who deletes them, or how; ``__ttl_archive__`` where they are kept;
``__ttl_on_purged__`` the hooks; ``__ttl_sweep__`` how the sweeper finds them. They are read when
they are needed, because an archive may be declared after the model.

The adapters decide what an archive is in a database, and whether it fits. This module must not know
any database.
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
"""How expired rows are found: by the sweeper's indexes, or by reading the whole table in slices."""

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
    """Return what ``enable()`` sets on a class besides ``__ttl__``; None leaves the class's own."""
    attributes = {
        "__ttl_purge__": purge,
        "__ttl_archive__": archive,
        "__ttl_on_purged__": on_purged,
        "__ttl_sweep__": sweep,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def purge_of(owner: type, possible: Sequence[PurgeT], declared: object = _UNREAD) -> PurgeT:
    """Return who deletes the expired rows of a model, or how.

    Args:
        owner: The model.
        possible: The adapter's values, the default first.
        declared: What was declared instead of the class's ``__ttl_purge__``.
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
    """Return the archive of a model; None if it has none."""
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
    """Return the hooks of a model, for its table."""
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
    """Return how the sweeper finds the expired rows of a model."""
    value: object = getattr(owner, "__ttl_sweep__", "index")
    if value == "index":
        return "index"
    if value == "scan":
        return "scan"
    raise TTLConfigurationError(
        f"{owner.__name__}.__ttl_sweep__ = {value!r}: write 'index' or 'scan'."
    )
