"""`Follows` on Beanie; imported when the first document class declares it.

- `declaration`: what a class declares, and how its rule gets on the collection.
- `follower`: the rule of a collection, the way to the parent, the index of the link, and what a
  follower can't have.
- `rule`: everything that the base asks: `FollowsRule` of a collection, `Followers` of a policy.
- `stages`: the pipeline stages that judge documents by their parents.
- `find`, `methods`: reads and writes of such documents.
- `parents`: no document gets an expired parent, and writes restart the lifetimes of parents.
- `documents`: documents in memory.
- `removal`: followers are removed before their parents, in the way of a write, and as orphans; what
  `ttl-odm check` reports of them.
"""

from __future__ import annotations

from ttl_odm.beanie.policy.rules import dependents
from ttl_odm.follows.beanie.declaration import bind, check, check_collection
from ttl_odm.follows.beanie.rule import Followers

__all__ = ["bind", "check", "check_collection"]

dependents.append(Followers())
