"""What becomes of expired documents: ``__ttl_archive__``, and whom a class tells: its hooks.

A class that archives, or has ``__ttl_on_purged__``, leaves its documents to the sweeper
(``__ttl_purge__ = "sweeper"``): MongoDB's own monitor would delete them and tell nobody. Read from
the class when documents are purged, since an archive may be declared after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ttl_odm.beanie.policy.binding import collection_of
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import ArchiveSink, Hooks

if TYPE_CHECKING:
    from bson.raw_bson import RawBSONDocument

    from ttl_odm.beanie.policy.binding import Binding


@dataclass(frozen=True, slots=True)
class Archive:
    """Copy documents to another collection in the transaction that deletes them.

    They are copied as they are stored, to the byte. An archive whose documents have a ttl of their
    own keeps each from the moment when it gets it.

    Attributes:
        into: The archive: a collection's name in the same database, or a document class.
        archived_at: The field that gets the instant of archiving; None for none.
    """

    into: Any
    archived_at: str | None = None

    def collection(self, database: Any) -> Any:
        """Return the archive, gated.

        Args:
            database: That of the documents, gated.
        """
        return database[self.into] if isinstance(self.into, str) else collection_of(self.into)

    def copies(self, rows: list[RawBSONDocument], policy: Any, as_of: Any) -> list[Any]:
        """Return what the archive gets.

        Args:
            rows: The documents.
            policy: The archive's own; None where it has none.
            as_of: The instant of archiving.
        """
        dropped: set[str | None] = set()
        if isinstance(policy, TTL):
            dropped = {policy.last_modified, policy.override, EXPIRY}
        if self.archived_at is None and not dropped:
            return list(rows)
        copies = [{key: row[key] for key in row if key not in dropped} for row in rows]
        if self.archived_at is not None:
            for copy in copies:
                copy[self.archived_at] = as_of
        return copies


@dataclass(frozen=True, slots=True)
class Mode:
    """What a class says of its expired documents.

    Attributes:
        archive: Where they are copied to.
        sink: What they are given to.
        hooks: Whom to tell.
    """

    archive: Archive | None = None
    sink: ArchiveSink | None = None
    hooks: Hooks = field(default_factory=Hooks)


def mode_of(binding: Binding, name: str) -> Mode:
    """Read what the class of a collection declares.

    Args:
        binding: The collection's.
        name: The collection.

    Raises:
        TTLConfigurationError: It can't be; the message says what to write instead.
    """
    model: Any = binding.model
    told = getattr(model, "__ttl_on_purged__", None)
    kept = getattr(model, "__ttl_archive__", None)
    if binding.purge == "native" and (told is not None or kept is not None):
        declared = "__ttl_on_purged__" if kept is None else "__ttl_archive__"
        raise TTLConfigurationError(
            f"{model.__name__}.{declared}: MongoDB deletes these documents by itself, and nobody "
            "is told: declare __ttl_purge__ = 'sweeper', too."
        )
    hooks = Hooks.of({name: told}) if told is not None else Hooks()
    if kept is None:
        return Mode(hooks=hooks)
    if isinstance(kept, ArchiveSink) and not isinstance(kept, type):
        return Mode(sink=kept, hooks=hooks)
    archive = kept if isinstance(kept, Archive) else Archive(kept)
    _check(archive, f"{model.__name__}.__ttl_archive__", name)
    return Mode(archive=archive, hooks=hooks)


def _check(archive: Archive, where: str, name: str) -> None:
    into = archive.into
    is_class = isinstance(into, type) and hasattr(into, "get_settings")
    if not is_class and not (isinstance(into, str) and into):
        raise TTLConfigurationError(
            f"{where} = {into!r}: give the name of a collection, a document class, an Archive of "
            "one of these, or an object with a method write()."
        )
    if into == name:
        raise TTLConfigurationError(f"{where}: the archive {name!r} is the collection itself.")
