"""What `ttl-odm check` reports of documents that follow those of a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.indexes.changes import Aim
from ttl_odm.beanie.policy.commands import indexes_of
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows.beanie.following import all_followers
from ttl_odm.follows.beanie.index import leads_to

if TYPE_CHECKING:
    from ttl_odm.beanie.policy.rules import Checked
    from ttl_odm.sweeper.findings import Finding


async def followers(checked: Checked) -> list[Finding]:
    """See that a sweeper finds what follows a collection without reading whole collections."""
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
        if not any(leads_to(index, own) for index in existing):
            message = (
                f"{following.collection}({', '.join(own)}) follows it and has no index, so a sweep "
                "reads all of that collection for each batch of expired documents"
            )
            fix = f"await ensure_indexes({model})"
            findings.append(checked.warning("missing-follows-index", message, fix))
    return findings
