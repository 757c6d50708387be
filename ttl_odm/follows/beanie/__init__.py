"""`Follows` on Beanie; imported when the first document class declares it.

- `declaration`: what a class may declare, and how its rule gets on the collection.
- `options`: what such a class can't declare of their removal.
- `following`: what a collection's documents follow, and the way to the parent.
- `sharing`: classes without a policy that share the collection.
- `index`: the index of that link.
- `rule`: all that the base asks: `FollowsRule` of a collection, `Followers` below a policy.
- `stages`: how the server judges documents by their parents, instead of a predicate.
- `find`, `methods`: reads and writes of such documents.
- `parents`: no document gets an expired parent, and writes restart the lifetimes of parents.
- `documents`: documents in memory.
- `displacement`: expired documents that are in the way of a write.
- `removal`, `orphans`: what goes before the documents of a policy, and what is left over.
- `checks`: what `ttl-odm check` reports.
"""

from __future__ import annotations

from ttl_odm.beanie.policy.rules import dependents
from ttl_odm.follows.beanie.declaration import bind, check, check_collection
from ttl_odm.follows.beanie.rule import Followers

__all__ = ["bind", "check", "check_collection"]

dependents.append(Followers())
