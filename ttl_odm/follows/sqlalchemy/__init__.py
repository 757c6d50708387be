"""`Follows` on SQLAlchemy; imported when the first model declares it.

- `declaration`: finds the parent that the rows of a class follow.
- `following`: what a table's rows follow.
- `index`: the columns of that link, and their index.
- `rule`: all that the base asks: `FollowsRule` of a table, `Followers` below a policy.
- `conditions`, `links`: the condition on the parent, where rows are read and where SQL moves them.
- `functions`: the same in `live()`, `expired()` and `expires_at()`.
- `parents`, `parent_keys`: no row gets an expired parent.
- `parent_locks`: writes by key, which leave parents unlocked on InnoDB.
- `renewals`: writes that restart the lifetime of parents.
- `displacement`: expired rows that are in the way of a write.
- `removal`, `ties`, `orphans`: what goes before the rows of a policy, and what is left over.
- `checks`: what `ttl-odm check` reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.follows.sqlalchemy.declaration import follow
from ttl_odm.follows.sqlalchemy.rule import Followers
from ttl_odm.sqlalchemy.policy.references import dependents

if TYPE_CHECKING:
    from sqlalchemy.orm import Mapper

    from ttl_odm.follows import Follows

dependents.append(Followers())


def bind(mapper: Mapper[Any], cls: type, declared: Follows) -> None:
    """Put what the rows of a class follow on its table."""
    follow(mapper, cls, declared)
