"""`Follows` on Django; imported when the first model declares it.

- `declaration`: what a model declares, and the parent that it leads to.
- `follower`: the rule of a model, and the rows that one row leads to.
- `rule`: everything that the base asks: `FollowsRule` of a model, `Followers` of a policy.
- `conditions`: whether a row is live by its parent, also if a query joins that.
- `links`: the link of a row, and the values that a write gives it.
- `parents`: no row gets an expired parent.
- `parent_locks`: locks on parents, and writes by key, which leave them unlocked on InnoDB.
- `renewals`: writes that restart the lifetime of parents.
- `index`: `FollowsIndex`, by which followers are found, and what checks report of followers.
- `removal`: followers are removed before their parents, and as orphans.
"""

from __future__ import annotations

from ttl_odm.django.policy.rules import dependents
from ttl_odm.follows.django.declaration import bind
from ttl_odm.follows.django.rule import Followers

__all__ = ["bind"]

dependents.append(Followers())
