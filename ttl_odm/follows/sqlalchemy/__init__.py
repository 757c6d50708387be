"""`Follows` on SQLAlchemy; imported when the first model declares it.

- `declaration`: what a class declares, and the parent that it leads to.
- `follower`: the rule of a table, the columns of its link, and their index.
- `rule`: everything that the base asks: `FollowsRule` of a table, `Followers` of a policy.
- `conditions`: whether a row is live by its parent, in statements and in `live()`, `expired()` and
  `expires_at()`.
- `links`: the link of a row, and the condition on it if SQL moves rows to another parent.
- `parents`, `parent_keys`: no row gets an expired parent.
- `parent_locks`: writes by key, which leave parents unlocked on InnoDB.
- `renewals`: writes that restart the lifetime of parents.
- `removal`: followers are removed before their parents, in the way of a write, and as orphans; what
  `ttl-odm check` reports of them.
"""

from __future__ import annotations

from ttl_odm.follows.sqlalchemy.declaration import bind
from ttl_odm.follows.sqlalchemy.rule import Followers
from ttl_odm.sqlalchemy.policy.references import dependents

__all__ = ["bind"]

dependents.append(Followers())
