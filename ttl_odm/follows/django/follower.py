"""Models whose rows follow others: the rule, and the way from a row to its parent and root.

This module must not know SQL, nor how a parent's model is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections
from django.db.models import Q, QuerySet

from ttl_odm.django.policy.options import include_expired
from ttl_odm.django.policy.rules import Rule, all_rules_below, rule_of, rules_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from django.db.models import Model as Instance

    from ttl_odm.django.policy.bindings import Binding, Model, TablePolicy
    from ttl_odm.django.policy.rules import Links
    from ttl_odm.django.time.fields import AnyField
    from ttl_odm.follows import Follows, Orphan

    Key = tuple[object, ...]


class Following(Rule):
    """The rule of a model whose rows live while their parents do."""

    def __init__(self, model: Model, declared: Follows, find: Callable[[], Links]) -> None:
        """Take the model, its declaration, and the function that finds its parent: see `Rule`."""
        super().__init__(model, find)
        self.declared = declared

    def chain(self) -> Iterator[Following]:
        """Yield this rule and those of its parents, up to the one whose parent has a lifetime."""
        rule: TablePolicy = self
        while isinstance(rule, Following):
            yield rule
            rule = rule.links.policy

    def is_enforced(self, using: str) -> bool:
        """Return whether a database enforces that each link leads to a parent."""
        relation = self.declared.parent
        if not isinstance(relation, str) or not connections[using].features.supports_foreign_keys:
            return False
        return all(getattr(own, "db_constraint", False) for own in self.links.own)

    def keys_of(self, objs: Iterable[Instance]) -> list[Key]:
        """Return the keys of parents that instances name, each once; no expressions, no NULLs."""
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
        """Return the parent of an instance's row, expired or not; asks the database."""
        keys = self.keys_of([obj])
        if not keys:
            return None
        rows: QuerySet[Instance] = QuerySet(model=self.links.parent, using=obj._state.db)
        return include_expired(rows).filter(is_one_of(self.links.theirs, keys)).first()

    def root_of(self, obj: Instance) -> tuple[Binding, Instance] | None:
        """Return the row at the root of an instance's row, with its policy; None without a parent.

        Asks the database once for each level.
        """
        above, row = self.links.policy, self.parent_of(obj)
        if row is None:
            return None
        return above.root_of(row) if isinstance(above, Following) else (above.binding, row)

    def orphan_of(self, obj: Instance) -> Orphan | None:
        """Return what a row is as an orphan; None if it and all rows above it have parents."""
        above, row = self.links.policy, self.parent_of(obj)
        if row is None:
            return self.declared.orphan
        return above.orphan_of(row) if isinstance(above, Following) else None


def following_of(model: Model) -> Following | None:
    """Return the rule of a model; None if its rows don't follow others."""
    rule = rule_of(model)
    return rule if isinstance(rule, Following) else None


def followers_of(model: Model) -> list[Following]:
    """Return the rules of the models that follow a model directly."""
    return [rule for rule in rules_below(model) if isinstance(rule, Following)]


def all_followers(model: Model) -> list[Following]:
    """Return the rules of all models that follow a model, directly or not, parents first."""
    return [rule for rule in all_rules_below(model) if isinstance(rule, Following)]


def is_one_of(fields: Sequence[AnyField], keys: Iterable[Key]) -> Q:
    """Return the condition for rows whose fields have the values of one of these keys."""
    if len(fields) == 1:
        return Q((f"{fields[0].attname}__in", [key[0] for key in keys]))
    names, condition = [field.attname for field in fields], Q(pk__in=[])
    for key in keys:
        condition |= Q(*zip(names, key, strict=True))
    return condition
