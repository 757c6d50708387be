"""The index by which the documents that follow one are found: what it is, and what does as well.

Sweeps need it, and writes that free the key of a parent. Pure functions; nothing here talks to a
server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.beanie.policy.ttl_indexes import Index, is_ours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie.drivers import Document

LINK: Final = "__ttl_follows"
"""Its name."""


class LinkIndex(Index):
    """An index on the paths that lead to a parent."""

    __slots__ = ()

    def is_served_by(self, existing: Document) -> bool:
        """Say whether one of the application's own finds documents as well."""
        return leads_to(existing, (self.field, *self.more))


def link_index(paths: Sequence[str]) -> LinkIndex:
    """Return the index by which documents are found that follow another one.

    It is sparse, since no lookup is for null, and because MongoDB then allows one of the
    application's own on the same fields beside it, which Beanie may create later.
    """
    field, *more = paths
    return LinkIndex(LINK, field, None, None, more=tuple(more), sparse=True)


def leads_to(existing: Document, paths: Sequence[str]) -> bool:
    """Say whether an index that listIndexes gave finds documents by the values of these fields."""
    first = dict([*existing["key"].items()][: len(paths)])
    is_usable = all(
        direction == "hashed" or isinstance(direction, (int, float)) for direction in first.values()
    )
    is_partial = not existing.keys().isdisjoint(("partialFilterExpression", "hidden"))
    # One of the application's own may have another collation than the collection.
    has_collation = "collation" in existing and not is_ours(existing["name"])
    return first.keys() == {*paths} and is_usable and not is_partial and not has_collation
