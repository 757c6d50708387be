"""The index by which the followers of a document are found, and the check that it exists.

Sweeps need it, and writes that free the key of a parent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.beanie.indexes.changes import Aim
from ttl_odm.beanie.policy.commands import indexes_of
from ttl_odm.beanie.policy.ttl_indexes import Index, is_ours
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows.beanie.follower import all_followers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie.drivers import Document
    from ttl_odm.beanie.policy.rules import Checked
    from ttl_odm.sweeper.findings import Finding

_NAME: Final = "__ttl_follows"


class LinkIndex(Index):
    """An index on the paths that lead to a parent."""

    __slots__ = ()

    def is_served_by(self, existing: Document) -> bool:
        """Say whether an index of the application finds documents as well."""
        return _leads_to(existing, (self.field, *self.more))


def link_index(paths: Sequence[str]) -> LinkIndex:
    """Return the index by which documents are found that follow another one.

    It is sparse, since no lookup is for null, and because MongoDB then allows an index of the
    application on the same fields, which Beanie may create later.
    """
    field, *more = paths
    return LinkIndex(_NAME, field, None, None, more=tuple(more), sparse=True)


def _leads_to(existing: Document, paths: Sequence[str]) -> bool:
    """Say whether an index that listIndexes returned finds documents by the values of fields."""
    first = dict([*existing["key"].items()][: len(paths)])
    is_usable = all(
        direction == "hashed" or isinstance(direction, (int, float)) for direction in first.values()
    )
    is_partial = not existing.keys().isdisjoint(("partialFilterExpression", "hidden"))
    # An index of the application may have another collation than the collection.
    has_collation = "collation" in existing and not is_ours(existing["name"])
    return first.keys() == {*paths} and is_usable and not is_partial and not has_collation


async def check_followers(checked: Checked) -> list[Finding]:
    """Check that sweeps find the followers of a collection by an index."""
    findings = []
    for following in all_followers(checked.collection):
        own, model = following.links.own, following.model.__name__
        place = checked.collection.database.client[following.database][following.collection]
        existing = await indexes_of(place)
        aim = Aim(following.collection, (), following.declared, rebuild=False, can_change=True)
        try:
            aim.relied_on(existing)
        except TTLConfigurationError as error:
            findings.append(checked.wrong_index(error, model))
        if not any(_leads_to(index, own) for index in existing):
            message = (
                f"{following.collection}({', '.join(own)}) follows it and has no index, so a sweep "
                "reads all of that collection for each batch of expired documents"
            )
            fix = f"await ensure_indexes({model})"
            findings.append(checked.warning("missing-follows-index", message, fix))
    return findings
