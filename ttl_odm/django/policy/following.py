"""Tables whose rows follow those of another: what `ttl_odm.follows` means for a model.

Such a table has no `Binding`: its rows have no instant, no default and no sweep by themselves. What
stands for it among the policies is a `Following`. This module must not know SQL, nor how a parent
is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import Q, QuerySet

from ttl_odm.django.policy.binding import (
    Binding,
    TablePolicy,
    is_historical,
    put,
    table_policies,
    table_policy,
)
from ttl_odm.django.policy.options import include_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.db.models import Model as Instance

    from ttl_odm.django.policy.binding import Model
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.follows import Follows, Orphan

    Key = tuple[Any, ...]


@dataclass(frozen=True)
class Links:
    """The model that rows follow, and pairs of a field of theirs and the parent's that it equals.

    The parent has a policy of its own, or follows another in turn; of a subclass with a table of
    its own it is the model at the root.
    """

    parent: Model
    pairs: tuple[tuple[AnyField, AnyField], ...]

    @property
    def own(self) -> list[AnyField]:
        """The fields of the model that follows."""
        return [own for own, _ in self.pairs]

    @property
    def theirs(self) -> list[AnyField]:
        """The fields of the parent."""
        return [theirs for _, theirs in self.pairs]

    @property
    def policy(self) -> TablePolicy:
        """That of the parent's table."""
        policy = table_policy(self.parent._meta.db_table)
        assert policy is not None  # noqa: S101 (it was there when this was found)
        return policy


class Following(TablePolicy):
    """A table whose rows live while their parents do.

    `find` finds the parent, which may be declared later; it raises TTLConfigurationError where that
    can't be.
    """

    link = None

    def __init__(self, model: Model, declared: Follows, find: Callable[[], Links]) -> None:
        """Say whose rows follow what."""
        values = {"follower": model, "follows": declared, "find": find}
        vars(self).update(values)

    follower: Model
    follows: Follows  # type: ignore[misc] # of the class it is None
    find: Callable[[], Links]

    @cached_property
    def links(self) -> Links:
        """The parent."""
        return self.find()

    @property
    def binding(self) -> Binding:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The policy of the rows at the end: that which says when these expire."""
        return self.links.policy.binding

    @property
    def model(self) -> Model:
        """The model that follows."""
        return self.follower

    @property
    def depth(self) -> int:
        """How many parents there are up to the rows with a lifetime."""
        above = self.links.policy
        return 1 + (above.depth if isinstance(above, Following) else 0)

    def is_enforced(self, using: str) -> bool:
        """Whether a database lets no row refer to a parent that isn't there."""
        relation = self.follows.parent
        if not isinstance(relation, str) or not connections[using].features.supports_foreign_keys:
            return False
        return all(getattr(own, "db_constraint", False) for own in self.links.own)

    def keys_of(self, objs: Iterable[Instance]) -> list[Key]:
        """The keys of the parents that instances name: without SQL and NULLs, each once."""
        pairs = self.links.pairs
        keys: dict[Key, None] = {}
        for obj in objs:
            values = [getattr(obj, own.attname) for own, _ in pairs]
            if any(value is None or hasattr(value, "resolve_expression") for value in values):
                continue
            key = tuple(
                theirs.to_python(value) for (_, theirs), value in zip(pairs, values, strict=True)
            )
            keys[key] = None
        return list(keys)

    def parent_of(self, obj: Instance) -> Instance | None:
        """The row that the row of an instance follows, expired or not; asks the database."""
        keys = self.keys_of([obj])
        if not keys:
            return None
        rows: Any = QuerySet(model=self.links.parent, using=obj._state.db)
        found: Instance | None = (
            include_expired(rows).filter(is_one_of(self.links.theirs, keys)).first()
        )
        return found

    def root_of(self, obj: Instance) -> tuple[Binding, Instance] | None:
        """The row at the end that the row of an instance follows, with its policy.

        None for one without a parent. Asks the database once for each level.
        """
        above, row = self.links.policy, self.parent_of(obj)
        if row is None:
            return None
        return above.root_of(row) if isinstance(above, Following) else (above.binding, row)

    def orphan_of(self, obj: Instance) -> Orphan | None:
        """What the row of an instance is, where it or a parent of it has none; else None."""
        above, row = self.links.policy, self.parent_of(obj)
        if row is None:
            return self.follows.orphan
        return above.orphan_of(row) if isinstance(above, Following) else None


def bind_following(following: Following) -> None:
    """Put what the rows of a model follow on its table."""
    put(following)


def following_of(model: Model) -> Following | None:
    """What the rows of a model follow; None where they don't."""
    policy = table_policy(model._meta.db_table)
    return policy if isinstance(policy, Following) and not is_historical(model) else None


def followings() -> list[Following]:
    """All of them, in the order of declaration."""
    return [policy for policy in table_policies() if isinstance(policy, Following)]


def followers_of(model: Model) -> list[Following]:
    """The tables whose rows follow those of a model."""
    model = model._meta.concrete_model or model
    return [following for following in followings() if following.links.parent is model]


def all_followers(model: Model) -> list[Following]:
    """Those, and what follows these, at whatever depth."""
    below = followers_of(model)
    return below + [deeper for following in below for deeper in all_followers(following.model)]


def is_one_of(fields: Sequence[AnyField], keys: Iterable[Key]) -> Q:
    """Which rows have one of some keys, by the values of some fields."""
    if len(fields) == 1:
        return Q((f"{fields[0].attname}__in", [key[0] for key in keys]))
    names, found = [field.attname for field in fields], Q(pk__in=[])
    for key in keys:
        found |= Q(*zip(names, key, strict=True))
    return found
