"""`Follows` on Django: everything that the adapter needs for it, in one place.

Imported when a model declares it. It uses the adapter, which knows it by `Rule` and `Dependents`
only (`ttl_odm.django.policy.rules`).

- `rule`: what the adapter asks: of a model that follows, and of what follows a model.
- `declaration`: what a model declares, and the parent that it leads to.
- `following`: the rule with the declaration that it was made of; rows up to their root.
- `conditions`, `joins`: whether a row is live by its parent, and where the query's joins say that.
- `parents`, `links`, `locks`: no row is put under a parent that has expired.
- `parent_ends`: on InnoDB, writes by key without a lock on the parents.
- `renewals`: writes that restart the lifetime of parents.
- `index`: `FollowsIndex`, by which followers are found.
- `removal`, `orphans`: what goes before the rows of a policy, and what is left over.
- `checks`: what ``manage.py check`` and ``ttl_check`` report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.django.policy.rules import dependents
from ttl_odm.follows.django.declaration import follow
from ttl_odm.follows.django.rule import Followers

if TYPE_CHECKING:
    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.follows import Follows

dependents.append(Followers())


def bind(model: Model, declared: Follows, *, where: str) -> None:
    """Put what the rows of a model follow on its table."""
    follow(model, declared, where=where)
