"""TTL indexes of archives: MongoDB must not delete what a class means to keep.

An archive whose class has a policy is compared with that, by `ensure_indexes` of its class. This
module must not know how documents get there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.indexes.changes import deleted_by, deletes
from ttl_odm.beanie.policy.bindings import registry_of
from ttl_odm.beanie.policy.commands import indexes_of
from ttl_odm.beanie.purge.removal import archive_in, mode_of
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.beanie.policy.bindings import Binding


async def check_archive(collection: Collection, binding: Binding) -> None:
    """Reject a TTL index on the archive of a collection.

    One on the field that has the time of archiving is how an application limits its archive.

    Raises:
        TTLConfigurationError: MongoDB deletes documents of the archive by another date.
    """
    archive = mode_of(binding, collection.name).archive
    if archive is None:
        return
    with suppress(CollectionWasNotInitialized, AttributeError):  # Beanie hasn't seen its class yet
        into = archive_in(collection.database, archive)
        if registry_of(into.database.client).find(into.database.name, into.name) is not None:
            return
        for index in await indexes_of(into):
            if deletes(index) and next(iter(index["key"])) != archive.archived_at:
                raise TTLConfigurationError(
                    f"The TTL index {index['name']!r} of {into.name!r}, the archive of "
                    f"{binding.model.__name__}, makes MongoDB delete {deleted_by(index)}. Drop it. "
                    "To limit how long the archive keeps documents, declare it as a document class "
                    "with a __ttl__, or put the index on the field that "
                    "Archive(..., archived_at=...) names."
                )
